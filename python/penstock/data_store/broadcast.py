# SPDX-License-Identifier: Apache-2.0
"""A file or folder to many pods.

In a row, if the store and this pod can: pieces flow from pod to pod while they arrive. Else as a tree: each pod fetches all from
its parent, and serves it to its children once it has it.
"""
from __future__ import annotations

import contextlib
import os
import pathlib
import time
from typing import TYPE_CHECKING, Any

from .errors import AgentError, DataStoreError, KeyNotFound, RsyncError, TreeError
from .key_utils import ParsedKey
from .local_offers import own_ip
from .pod_data_server import DEFAULT_TCP_PORT, Place, start_server_if_needed
from .rsync_client import Fetch, peer_source
from .tree_client import TreeClient
from .types import BroadcastWindow

if TYPE_CHECKING:
    from .data_store_client import DataStoreClient

__all__ = ["get_by_broadcast", "take_part"]

PARENTS_MAX = 32  # that one get asks
WAIT_S = 60.0
ASK_S = 5.0  # a parent that has nothing yet says so this often


def get_by_broadcast(client: DataStoreClient, parsed: ParsedKey, group: str, window: BroadcastWindow, fetch: Fetch) -> bool:
    """Fetch a key as a member of a group. Returns False if none of the others had it, and it is to be fetched otherwise."""
    trees = None if fetch.filter_options or not client.server.rsync else client.trees()
    if trees and trees.broadcasts and client.metadata_client.has_store_pod(parsed.full_key):
        return in_a_row(client, trees, parsed, group, window, fetch)
    if not client.server.rsync or (fetch.contents and os.path.isdir(fetch.folder) and os.listdir(fetch.folder)):
        return False  # no other pod is reached; what lies in the folder already is not for other pods
    agent, metadata, ip = client.agent, client.metadata_client, own_ip(client.server.url)
    try:
        start_server_if_needed(agent.socket_path)
        place: dict[str, Any] | None = metadata.join_fs_broadcast(group, parsed.full_key, ip, os.environ.get("POD_NAME"), window.fanout)
    except DataStoreError:
        return False
    for _ in range(PARENTS_MAX):
        if place is None:
            return False
        try:
            final = from_parent(client, parsed, group, window, fetch, place)
        except (AgentError, RsyncError) as error:
            if isinstance(error, RsyncError) and error.is_local:
                raise
            if isinstance(error, RsyncError) and error.is_refusal:  # the parent is there for others
                return False
            place = next_place(client, parsed, group, ip, place["parent_ip"])
            continue
        with contextlib.suppress(AgentError):  # this pod has it; others find another parent
            agent.fs_broadcast_complete(group, parsed.full_key, final)
        return True
    return False


def in_a_row(client: DataStoreClient, trees: TreeClient, parsed: ParsedKey, group: str, window: BroadcastWindow,
             fetch: Fetch) -> bool:
    """Fetch what the store has as a member of its row; the first to join decides by `window` how many are expected."""
    members = window.world_size or len(window.ips or ())
    try:
        with client.noting_faults():
            trees.broadcast(parsed.full_key, fetch.final(parsed.full_key), group, members, fetch.verbose)
    except (KeyNotFound, TreeError) as error:
        if isinstance(error, TreeError) and error.is_final:
            raise
        return False
    return True


def from_parent(client: DataStoreClient, parsed: ParsedKey, group: str, window: BroadcastWindow, fetch: Fetch,
                place: dict[str, Any]) -> pathlib.Path:
    """Fetch it from the parent that a place in the tree names. Returns where it lies."""
    rsync, leaf, parent_ip = client.rsync(parsed), pathlib.PurePosixPath(parsed.full_key).name, place["parent_ip"]
    if place["parent_rank"] == 0:
        path = place.get("source_path") or leaf
        if client.metadata_client.has_store_pod(parsed.full_key) and not path.startswith("rsync://"):
            return client.fetch_stored(parsed, fetch)
        return fetch.run(rsync, peer_source(parent_ip, path), leaf)
    answer = path_at(client, parsed, group, window, parent_ip)
    return fetch.run(rsync, peer_source(parent_ip, Place.of(answer).url(parent_ip)), leaf)


def path_at(client: DataStoreClient, parsed: ParsedKey, group: str, window: BroadcastWindow, parent_ip: str) -> dict[str, Any]:
    """Wait until the parent has the tree. One that does not even say that it has not is given up in seconds."""
    port = int(os.environ.get("PENSTOCK_AGENT_PORT", DEFAULT_TCP_PORT))
    end = time.monotonic() + (WAIT_S if window.timeout is None else window.timeout)
    while True:
        left = end - time.monotonic()
        try:
            return client.agent.fs_broadcast_get_path_remote(parent_ip, port, group, parsed.full_key, max(0.0, min(left, ASK_S)))
        except AgentError as error:
            if left <= ASK_S or not error.answered or "Timeout" not in str(error):
                raise


def next_place(client: DataStoreClient, parsed: ParsedKey, group: str, ip: str, parent_ip: str) -> dict[str, Any] | None:
    """Where this pod stands without that parent; None: there is nobody else, or the store does not say."""
    with contextlib.suppress(DataStoreError):
        return client.metadata_client.report_unreachable(group, parsed.full_key, ip, parent_ip)
    return None


def take_part(client: DataStoreClient, keys: list[str], role: str, window: BroadcastWindow) -> None:
    """Be counted in the window's quorum, as one who has done its part. Nobody waits for the others."""
    ip = own_ip(client.server.url)
    told = client.metadata_client.join_broadcast(keys, role, ip, os.environ.get("POD_NAME"), window)
    with contextlib.suppress(DataStoreError):  # it is not complete before all are there
        client.metadata_client.complete_broadcast(str(told["broadcast_id"]), ip)
