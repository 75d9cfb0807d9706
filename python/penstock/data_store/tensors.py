# SPDX-License-Identifier: Apache-2.0
"""Tensors from one pod to others, without a file and without the store: it only says where they are.

A pod offers them under the path "broadcast://IP:PORT/KEY?NUMBER". The key is that of its agent, and the number another one with each
put: so a group that fetches what was put later is another group for the agents.
"""
from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import AgentError, DataStoreError, KeyNotFound
from .local_offers import Offer, offers, own_ip
from .types import BroadcastWindow, Lifespan
from .values import is_array, is_tensor

if TYPE_CHECKING:
    from .data_store_client import DataStoreClient

__all__ = ["NoFiles", "are_tensors", "get_tensors", "offer_tensors"]

PATH = re.compile(r"broadcast://([0-9.]+):([0-9]{1,5})/(.+)\?([0-9]+)")
FRONT = "broadcast://"


class NoFiles(DataStoreError):
    """Pods have tensors under a key, and nobody has files."""


class Cast(NamedTuple):
    """Where a pod lets others receive tensors."""

    ip: str
    port: int
    key: str
    number: int

    @classmethod
    def of(cls, path: object) -> Cast | None:
        found = PATH.fullmatch(path) if isinstance(path, str) else None
        return cls(found[1], int(found[2]), found[3], int(found[4])) if found else None

    def __str__(self) -> str:
        return f"{FRONT}{self.ip}:{self.port}/{self.key}?{self.number}"


@dataclasses.dataclass(frozen=True)
class TensorOffer(Offer):
    """Tensors that this process shares under a key, and lets other pods receive."""

    number: int = 0

    def publish(self, again: bool = False) -> bool:
        ip = own_ip(self.metadata.server.url)
        cast = Cast(ip, self.agent.serve_broadcast(self.agent_key), self.agent_key, self.number)
        return self.metadata.publish_key(self.key, ip, os.environ.get("POD_NAME"), os.environ.get("POD_NAMESPACE"), str(cast),
                                         self.lifespan, self.service, again)

    def forget(self) -> None:
        with contextlib.suppress(DataStoreError):
            self.agent.unregister_tensors(self.agent_key)


def offer_tensors(client: DataStoreClient, key: str, data: Any, lifespan: Lifespan, service: str | None) -> bool:
    """Offer tensors from this process's memory. Returns False if `data` is not, or has, what can be shared so."""
    if not (is_tensor(data) or is_array(data) or isinstance(data, (Mapping, list, tuple))):
        return False
    offer = TensorOffer(client.metadata_client, client.agent, key, "", False, lifespan, service, number=time.time_ns())
    try:
        from ..sharing import share
        share(offer.agent_key, data, agent=client.agent)
    except (ImportError, TypeError):
        return False
    offers.add(offer)
    return True


def casts_of(client: DataStoreClient, key: str) -> list[Cast]:
    info = client.metadata_client.key_info(key) or {}
    casts = [Cast.of(source.get("src_path")) for source in info.get("sources", ())]
    return [cast for cast in casts if cast]


def are_tensors(info: Mapping[str, Any]) -> bool:
    """Whether pods have tensors under a key, and no files."""
    paths = [source.get("src_path") for source in info.get("sources", ())]
    return bool(paths) and all(Cast.of(path) for path in paths)


def get_tensors(client: DataStoreClient, key: str, dest: Any, window: BroadcastWindow | None = None,
                group: str | None = None) -> tuple[bool, Any]:
    """Whether a pod offers tensors under the key, and the tensors."""
    fault: DataStoreError | None = None
    for cast in casts_of(client, key) if client.server.rsync else ():  # through the tunnel no other pod is reached
        from ..sharing import receive

        members = (window.world_size or len(window.ips or ())) if window else 1
        try:
            return True, receive(cast.key, f"{group or uuid.uuid4().hex} {cast.number}", cast.ip, cast.port, into=dest,
                                 timeout=window.timeout if window else None, world_size=members, agent=client.agent)
        except (AgentError, KeyNotFound) as error:
            fault = error
            if isinstance(error, KeyNotFound) or "nothing listens there" in str(error):
                with contextlib.suppress(DataStoreError):  # the next one may be there all the same
                    client.metadata_client.remove_source(key, cast.ip)
    if fault:
        raise fault
    return False, None
