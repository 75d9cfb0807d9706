# SPDX-License-Identifier: Apache-2.0
"""The calls of :class:`DataStoreClient` on the data store that the environment names."""
from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from .data_store_client import DataStoreClient, PathLike
from .rsync_client import RsyncClient
from .types import BroadcastWindow, Lifespan, Locale

__all__ = ["get", "ls", "mkdir", "put", "rm", "rsync", "rsync_async"]


def put(key: str | Sequence[str], src: PathLike | Sequence[PathLike] | None = None, locale: Locale = "store",
        lifespan: Lifespan = "cluster", contents: bool = False, filter_options: str | None = None, force: bool = False,
        verbose: bool = False, namespace: str | None = None, broadcast: BroadcastWindow | None = None, *, data: Any = None) -> None:
    """:meth:`DataStoreClient.put`."""
    DataStoreClient(namespace).put(key, src, locale, lifespan, contents, filter_options, force, verbose, broadcast, data=data)


def get(key: str | Sequence[str], dest: Any = None, contents: bool = False, filter_options: str | None = None, force: bool = False,
        verbose: bool = False, namespace: str | None = None, broadcast: BroadcastWindow | None = None) -> Any:
    """:meth:`DataStoreClient.get`."""
    return DataStoreClient(namespace).get(key, dest, contents, filter_options, force, verbose, broadcast)


def ls(key: str = "", namespace: str | None = None) -> list[dict[str, Any]]:
    """:meth:`DataStoreClient.ls`."""
    return DataStoreClient(namespace).ls(key)


def rm(key: str, recursive: bool = False, prefix: bool = False, namespace: str | None = None) -> None:
    """:meth:`DataStoreClient.rm`."""
    DataStoreClient(namespace).rm(key, recursive, prefix)


def mkdir(key: str, namespace: str | None = None) -> bool:
    """:meth:`DataStoreClient.mkdir`."""
    return DataStoreClient(namespace).mkdir(key)


def rsync(source: str | Sequence[str], dest: str, namespace: str | None = None, service_name: str | None = None,
          contents: bool = False, filter_options: str | None = None, force: bool = False) -> None:
    """:meth:`RsyncClient.upload` of a service's folder."""
    RsyncClient(namespace or DataStoreClient().namespace, service_name).upload(source, dest, contents, filter_options, force)


async def rsync_async(source: str | Sequence[str], dest: str, namespace: str | None = None, service_name: str | None = None,
                      contents: bool = False, filter_options: str | None = None, force: bool = False) -> None:
    """:func:`rsync` in a thread."""
    await asyncio.to_thread(rsync, source, dest, namespace, service_name, contents, filter_options, force)
