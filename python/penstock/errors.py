# SPDX-License-Identifier: Apache-2.0
"""What can go wrong. Every error of the store is an :class:`Error`, a RuntimeError, and another builtin one where Python has its
like."""
from __future__ import annotations

from typing import Any


class Error(RuntimeError):
    """Base of all errors.

    Attributes
    ----------
    result : int
        The C library's result: negative is ``-errno``, positive an outcome; 0 where there was none.
    generation : int
        Of the value in the way, with :class:`Exists` and :class:`Stale`.
    results : list of int or None
        Of a batch: every operation's result, in the batch's order. The error is that of the first which failed.
    values : list or None
        Of a batch: what it would have returned, with None for what failed. So one bad key of a `get_many` loses no other value.
    """

    result: int = 0
    generation: int = 0
    results: list[int] | None = None
    values: list[Any] | None = None

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class NotFound(Error, KeyError):
    """No such key."""


class Exists(Error):
    """The key is there already."""


class Stale(Error):
    """The value has another generation than the one named."""


class Busy(Error):
    """Too much at once, until the deadline. Nothing was done."""


class NoSpace(Error):
    """The store is full."""


class LimitReached(Error):
    """More reservations, pins, views or watches than the node grants one client."""


class NotAllowed(Error, PermissionError):
    """Wrong or missing secret, or a file that may not be read."""


class Corrupt(Error):
    """The value's checksum is wrong."""


class Unreachable(Error, ConnectionError):
    """No node there, none of this version, no master that leads, or the connection was lost."""


class Unknown(Unreachable):
    """The connection failed after a write was sent: it may or may not have been applied."""


class Incomplete(Unreachable):
    """Not all nodes of the pool that may have the key can be asked yet."""


class Lost(Error):
    """No node of the pool has the key, and one that may have had it is gone."""


class TimedOut(Error, TimeoutError):
    """The call took longer than the store's timeout."""


class Unsupported(Error):
    """Not possible on this kind of store."""


class Invalid(Error, ValueError):
    """An argument that no store takes: a key that is empty or too long, a value over the limit, a wrong range."""


class ForkError(Error):
    """The store was opened before this process was forked: open it anew."""
