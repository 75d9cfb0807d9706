# SPDX-License-Identifier: Apache-2.0
"""Names of nodes, of any length, and the 16 bytes that a pool knows a node by.

A name of up to 15 bytes is its own id, and so are 32 hexadecimal digits, small ones. For another one its hash stands in. The
pool then has the name as a value, under the id, so that whoever asks finds it.
"""
from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Iterable

from ..errors import Error
from ..store import Store

PREFIX = "umbp.node/"
ID_BYTES = 16
_ID = re.compile(f"[0-9a-f]{{{2 * ID_BYTES}}}")
HEARD_S = 0.3  # a name that another process has just told is found
TOLD_S = 5.0  # a name is not told again
NAMELESS_S = 10.0  # an id without a name is not looked up again
_RETRY_S = 0.02


def node_bytes(name: str) -> bytes:
    """A node's id: 32 hexadecimal digits, a name that fits and gets a zero at its end, or what stands for another one."""
    if _ID.fullmatch(name):
        return bytes.fromhex(name)
    raw = name.encode()
    fits = len(raw) < ID_BYTES and not raw.endswith(b"\0")
    return raw.ljust(ID_BYTES, b"\0") if fits else hashlib.blake2b(raw, digest_size=ID_BYTES).digest()


def short_name(node: bytes) -> str | None:
    """The name that fits into an id; None: it is another one's."""
    name = node.rstrip(b"\0").decode(errors="replace")
    return name if name and node_bytes(name) == node and name.isprintable() else None


def _is_long(name: str) -> bool:
    node = node_bytes(name)
    return node.hex() != name and short_name(node) != name


class NodeNames:
    """Names of a pool's nodes. Threads may share it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[bytes, str] = {}
        self._told: dict[bytes, float] = {}  # until when
        self._nameless: dict[bytes, float] = {}  # until when
        self._lock = threading.Lock()

    def tell(self, name: str) -> bytes:
        """The id of a name. The pool is told of a long one, and again now and then: it may have been cleared, or evict it."""
        node = node_bytes(name)
        if not _is_long(name):
            return node
        now = time.monotonic()
        with self._lock:
            told = now < self._told.get(node, 0.0)
            self._told[node] = now + TOLD_S
            self._known[node] = name
        if not told:
            try:
                self._store.put(PREFIX + node.hex(), name.encode())
            except Error:  # then it is digits to others, until it is told again
                with self._lock:
                    self._told.pop(node, None)
        return node

    def of(self, nodes: Iterable[bytes]) -> dict[bytes, str]:
        """Names by ids; digits where nobody has told one. The first time an id is seen, its name may be on its way."""
        nodes = list(nodes)
        unknown = [node for node in nodes if self._is_unknown(node)]
        fresh = {node for node in unknown if node not in self._nameless}
        until = time.monotonic() + HEARD_S
        while unknown:
            self._look_up(unknown)
            unknown = [node for node in unknown if node not in self._known]
            if time.monotonic() >= until or fresh.isdisjoint(unknown):
                break
            time.sleep(_RETRY_S)
        self._nameless |= dict.fromkeys(unknown, time.monotonic() + NAMELESS_S)
        return {node: short_name(node) or self._known.get(node) or node.hex() for node in nodes}

    def _is_unknown(self, node: bytes) -> bool:
        return short_name(node) is None and node not in self._known and time.monotonic() >= self._nameless.get(node, 0.0)

    def _look_up(self, nodes: list[bytes]) -> None:
        try:
            found = self._store.get_many([PREFIX + node.hex() for node in nodes])
        except Error:
            return
        for node, value in zip(nodes, found):
            name = value.decode(errors="replace") if value else ""
            if node_bytes(name) == node:
                self._known[node] = name

    def clear_all_but(self) -> int:
        """Delete all values but these names. How many are left, pinned ones."""
        try:
            kept = [entry.key for entry in self._store.list(PREFIX)]
            names = self._store.get_many(kept) if kept else []
        except Error:
            kept, names = [], []
        left = self._store.clear()
        self._store.put_many([(key, name) for key, name in zip(kept, names) if name])
        return left
