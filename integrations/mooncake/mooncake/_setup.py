# SPDX-License-Identifier: Apache-2.0
"""What Mooncake's addresses mean: a store of penstock, and a node that this process brings along to a pool."""
from __future__ import annotations

import numbers
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import penstock

from ._codes import CALL_S, log

SEGMENT_BYTES = 16 << 20
_SCHEMES = ("pool://", "node://", "node+unix://", "mem:")
_CONNECT_S = 5.0


@dataclass(frozen=True)
class Wanted:
    """What setup() was told, as far as penstock has its like."""

    host: str = ""
    metadata: str = ""
    segment_bytes: int = SEGMENT_BYTES
    master: str = ""
    tenant: str = "default"

    def __post_init__(self) -> None:
        """Raises TypeError for what is no text, or no number: callers pass None for what they leave out."""
        for name, kind in (("host", str), ("metadata", str), ("segment_bytes", numbers.Real), ("master", str)):
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name}: {getattr(self, name)!r}")

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> Wanted:
        """Of the dictionary that setup() takes. Raises KeyError for what is missing, ValueError for what is no number."""
        return cls(str(settings["local_hostname"]), str(settings["metadata_server"]),
                   int(settings.get("global_segment_size", SEGMENT_BYTES)), str(settings.get("master_server_addr", "")),
                   str(settings.get("tenant_id", "default")))


def url_of(wanted: Wanted) -> str:
    """The store: an address that is a penstock's URL, else ``PENSTOCK_URL``, else the pool of this master.

    Raises
    ------
    ValueError
        None of them says where it is.
    """
    for address in (wanted.master, wanted.metadata):
        if address.startswith(_SCHEMES):
            return address
    if url := os.environ.get("PENSTOCK_URL"):
        return url
    if not wanted.master or "://" in wanted.master:
        raise ValueError(f"the master's address is {wanted.master!r}: it is HOST:PORT of a penstock's master, or a penstock's URL")
    return f"pool://{wanted.master}"


def _host_of(address: str) -> str:
    """Without the port, if there is one."""
    host, colon, port = address.rpartition(":")
    return host if colon and port.isdigit() and (":" not in host or host.endswith("]")) else address


def _node_of(url: str, wanted: Wanted, prefix: str, secret_file: str | None) -> penstock.Node | None:
    """The segment as a node of the pool."""
    if wanted.segment_bytes <= 0:
        return None
    parts = urlsplit(url)
    if parts.scheme != "pool":
        log.info("global_segment_size is %d: %s takes no memory of its clients, only a pool does", wanted.segment_bytes, url)
        return None
    more = {} if secret_file is None else {"secret_file": secret_file}
    if "trusted" in parse_qs(parts.query).get("fabric", []):
        more["fabric"] = "trusted"
    return penstock.Node(master=parts.netloc.split(","), listen=f"{_host_of(wanted.host)}:0", dram=wanted.segment_bytes,
                         class_=f"{prefix}=cache", connect_timeout=_CONNECT_S, **more)


def opened(wanted: Wanted, prefix: str) -> tuple[penstock.Store, penstock.Node | None]:
    """Store and node; the node is to be closed last. Raises penstock.Error and ValueError."""
    url, secret_file = url_of(wanted), os.environ.get("PENSTOCK_SECRET_FILE") or None
    node = _node_of(url, wanted, prefix, secret_file)
    try:
        return penstock.open(url, secret_file=secret_file, timeout=CALL_S, connect_timeout=_CONNECT_S), node
    except BaseException:
        if node is not None:
            node.close()
        raise
