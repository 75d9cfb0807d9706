# SPDX-License-Identifier: Apache-2.0
"""The calls of :class:`DataStoreClient` on the data store that the environment names.

One client serves them all, until the environment or the namespace is another one, or the process ends.
"""
from __future__ import annotations

import asyncio
import atexit
import contextlib
import dataclasses
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from .data_store_client import DataStoreClient, PathLike
from .rsync_client import RsyncClient
from .types import BroadcastWindow, Lifespan, Locale

__all__ = ["get", "ls", "mkdir", "put", "rm", "rsync", "rsync_async"]


@dataclasses.dataclass
class Kept:
    """A client that is kept between calls. One that another has replaced is closed by the last call that uses it."""

    said: tuple[object, ...]
    client: DataStoreClient
    users: int = 0


kept: Kept | None = None
lock = threading.Lock()


@contextlib.contextmanager
def shared_client(namespace: str | None) -> Iterator[DataStoreClient]:
    """The client of a namespace, as the environment is now."""
    global kept
    fresh = DataStoreClient(namespace)
    said = (fresh.namespace, fresh.server, fresh.transport, os.environ.get("PENSTOCK_COMMAND"))
    with lock:
        old = kept
        if old is None or old.said != said:
            kept = Kept(said, fresh)
            if old and old.users == 0:
                old.client.close()
        mine = kept
        assert mine
        mine.users += 1
    try:
        yield mine.client
    finally:
        with lock:
            mine.users -= 1
            unused = mine.users == 0 and mine is not kept
        if unused:
            mine.client.close()


def close() -> None:
    """Close the client that is kept; the next call makes another."""
    global kept
    with lock:
        old, kept = kept, None
    if old:
        old.client.close()


def forget() -> None:
    """In a child made by fork(): the client is the parent's."""
    global kept, lock
    kept, lock = None, threading.Lock()


atexit.register(close)
os.register_at_fork(after_in_child=forget)


def put(key: str | Sequence[str], src: PathLike | Sequence[PathLike] | None = None, locale: Locale = "store",
        lifespan: Lifespan = "cluster", contents: bool = False, filter_options: str | None = None, force: bool = False,
        verbose: bool = False, namespace: str | None = None, broadcast: BroadcastWindow | None = None, *, data: Any = None) -> None:
    """:meth:`DataStoreClient.put`."""
    with shared_client(namespace) as client:
        client.put(key, src, locale, lifespan, contents, filter_options, force, verbose, broadcast, data=data)


def get(key: str | Sequence[str], dest: Any = None, contents: bool = False, filter_options: str | None = None, force: bool = False,
        verbose: bool = False, namespace: str | None = None, broadcast: BroadcastWindow | None = None) -> Any:
    """:meth:`DataStoreClient.get`."""
    with shared_client(namespace) as client:
        return client.get(key, dest, contents, filter_options, force, verbose, broadcast)


def ls(key: str = "", namespace: str | None = None) -> list[dict[str, Any]]:
    """:meth:`DataStoreClient.ls`."""
    with shared_client(namespace) as client:
        return client.ls(key)


def rm(key: str, recursive: bool = False, prefix: bool = False, namespace: str | None = None) -> None:
    """:meth:`DataStoreClient.rm`."""
    with shared_client(namespace) as client:
        client.rm(key, recursive, prefix)


def mkdir(key: str, namespace: str | None = None) -> bool:
    """:meth:`DataStoreClient.mkdir`."""
    with shared_client(namespace) as client:
        return client.mkdir(key)


def rsync(source: str | Sequence[str], dest: str, namespace: str | None = None, service_name: str | None = None,
          contents: bool = False, filter_options: str | None = None, force: bool = False) -> None:
    """:meth:`RsyncClient.upload` of a service's folder."""
    with shared_client(namespace) as client:
        RsyncClient(client.namespace, service_name, client.server, client.tunnels).upload(source, dest, contents, filter_options, force)


async def rsync_async(source: str | Sequence[str], dest: str, namespace: str | None = None, service_name: str | None = None,
                      contents: bool = False, filter_options: str | None = None, force: bool = False) -> None:
    """:func:`rsync` in a thread."""
    await asyncio.to_thread(rsync, source, dest, namespace, service_name, contents, filter_options, force)
