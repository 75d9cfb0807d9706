# SPDX-License-Identifier: Apache-2.0
"""Files, folders and values from anywhere to everywhere: a client of ``penstockd --role store``.

>>> from penstock import data_store
>>> data_store.put("team/model", "weights/", contents=True)      # doctest: +SKIP
>>> data_store.get("team/model", "copy")                         # doctest: +SKIP
>>> data_store.put("team/step", data=b"42")                      # doctest: +SKIP
"""
from __future__ import annotations

from .data_store_client import DataStoreClient
from .data_store_cmds import get, ls, mkdir, put, rm, rsync, rsync_async
from .errors import AgentError, DataStoreError, KeyNotFound, RsyncError, Saturated, StoreRefused, StoreUnreachable, TreeError
from .key_utils import ParsedKey, parse_key
from .metadata_client import MetadataClient
from .pod_data_server import PodDataServer, PodDataServerClient, start_server_if_needed
from .rsync_client import RsyncClient
from .server import Server
from .tree_client import TreeClient
from .types import BroadcastWindow, Lifespan, Locale, Transport
from .websocket_tunnel import WebSocketRsyncTunnel

__all__ = ["AgentError", "BroadcastWindow", "DataStoreClient", "DataStoreError", "KeyNotFound", "Lifespan", "Locale",
           "MetadataClient", "ParsedKey", "PodDataServer", "PodDataServerClient", "RsyncClient", "RsyncError", "Saturated",
           "Server", "StoreRefused", "StoreUnreachable", "Transport", "TreeClient", "TreeError", "WebSocketRsyncTunnel",
           "get", "ls", "mkdir", "parse_key", "put", "rm", "rsync", "rsync_async", "start_server_if_needed"]
