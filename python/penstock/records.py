"""What the store says about keys and about itself."""
from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ._core import Key


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
