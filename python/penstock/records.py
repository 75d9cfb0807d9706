# SPDX-License-Identifier: Apache-2.0
"""What the store says about keys and about itself."""
from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._core import Key

K = TypeVar("K", bound="Key")


def each_key(keys: Iterable[K], what: str = "keys") -> Iterable[K]:
    """Text or bytes are one key, and no keys."""
    if isinstance(keys, (str, bytes)):
        raise TypeError(f"{what} must be an iterable of keys, not {type(keys).__name__}")
    return keys


def key_bytes(key: Key) -> bytes:
    """A key's bytes, by which two spellings of it are one."""
    return key.encode("utf-8", "surrogateescape") if isinstance(key, str) else bytes(key)


class Entry(NamedTuple):
    """A key of a listing."""

    key: bytes
    size: int
    """Bytes of the value."""
    generation: int
    cache: bool
    """Whether the value may be evicted."""
    depth: int | None
    """Place in a prefix chain, for eviction."""

    @property
    def name(self) -> str:
        """The key as text; bytes that are no UTF-8 come as surrogates, which every call takes back."""
        return self.key.decode("utf-8", "surrogateescape")


class KeyStat(NamedTuple):
    """What is known of one key."""

    size: int
    """Bytes of the value."""
    generation: int
    attrs: bytes
    cache: bool
    """Whether the value may be evicted."""
    depth: int | None
    """Place in a prefix chain, for eviction."""


class PoolNode(NamedTuple):
    """A node of a pool, as its master sees it."""

    id: bytes
    address: str
    """``HOST:PORT``, or a unix socket's path."""
    state: str
    """``serving``, ``draining``, ``stuck`` (until another node joins), ``drained`` (it may be stopped, and nothing is lost), ``silent``."""
    member: int
    primaries: int
    """Partitions of the pool's 4,096 that it serves."""
    copies: int
    """Partitions of which it has copies."""
    keys_left: int
    """Of one that drains: keys that may lie anywhere, and that too few others have."""
    capacity: int
    """Bytes of its memory, and how many are used."""
    used: int


class Event(NamedTuple):
    """A change of a watched key."""

    what: str
    """``put``, ``deleted``, ``evicted``; ``missed`` and ``reset``: events are gone, list the prefix again."""
    key: bytes
    size: int
    """Bytes of the value that came or went."""
    generation: int
    missed: int
    """How many events are gone."""

    @property
    def name(self) -> str:
        """The key as text; bytes that are no UTF-8 come as surrogates, which every call takes back."""
        return self.key.decode("utf-8", "surrogateescape")
