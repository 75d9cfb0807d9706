# SPDX-License-Identifier: Apache-2.0
"""Mooncake's return codes, and what a result of penstock is among them."""
from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import penstock

log = logging.getLogger("penstock.mooncake")

OK = 0
FAILED = -1
NO_ROOM = -200
INVALID = -600
NOT_FOUND = -704
EXISTS = -705
TRANSFER = -800
UNREACHABLE = -900
NOT_READY = -1010
NOT_OFFERED = -1011
NO_TASK = -1400

_STORED_MISS, STORED_EXISTS = 1, 2
_OF_RESULT = {
    0: OK, _STORED_MISS: NOT_FOUND, STORED_EXISTS: EXISTS, 3: NOT_FOUND, 4: UNREACHABLE, 5: UNREACHABLE, 6: EXISTS,
    7: NOT_FOUND, 8: NOT_FOUND,
    -errno.ENOSPC: NO_ROOM, -errno.EDQUOT: NO_ROOM, -errno.EBADMSG: TRANSFER,
    -errno.EFBIG: INVALID, -errno.EINVAL: INVALID, -errno.ENAMETOOLONG: INVALID, -errno.ENOBUFS: INVALID,
    -errno.ERANGE: INVALID, -errno.EMSGSIZE: INVALID,
    -errno.ECONNREFUSED: UNREACHABLE, -errno.EHOSTUNREACH: UNREACHABLE, -errno.ECONNRESET: UNREACHABLE,
    -errno.ETIMEDOUT: UNREACHABLE, -errno.EPIPE: UNREACHABLE, -errno.EREMCHG: UNREACHABLE,
}
CALL_S = 5.0
PAUSE_S = 30.0
_QUIET = {OK, NOT_FOUND, EXISTS}

T = TypeVar("T")


def code_of(result: int) -> int:
    """Mooncake's code for a result of the C library."""
    return _OF_RESULT.get(result, FAILED)


class Calls:
    """Calls of one store, whose errors become codes and lines of the log. If nobody answers one, or not for all of its keys within
    `CALL_S`, those of the next `PAUSE_S` seconds fail at once: an engine computes what it cannot fetch rather than wait for it again
    and again."""

    def __init__(self) -> None:
        self._paused_until = 0.0

    @property
    def _paused(self) -> bool:
        return time.monotonic() < self._paused_until

    def _failed(self, what: str, error: penstock.Error, codes: list[int], began: float) -> None:
        # Of a pool that waits for a node to come back some keys answer at once, and the others take all of the time.
        is_late = time.monotonic() - began > 0.9 * CALL_S
        if is_late or all(code == UNREACHABLE for code in codes):
            self._paused_until = time.monotonic() + PAUSE_S
        if is_late or any(code not in _QUIET for code in codes):
            log.warning("%s: %s", what, error)

    def one(self, what: str, call: Callable[[], T]) -> tuple[T | None, int]:
        """What `call` returned, and its code. A miss and a key that exists are no lines."""
        if self._paused:
            return None, UNREACHABLE
        began = time.monotonic()
        try:
            return call(), OK
        except penstock.Error as error:
            code = code_of(error.result)
            self._failed(what, error, [code], began)
            return None, code

    def many(self, what: str, count: int, call: Callable[[], Sequence[T]]) -> tuple[Sequence[T | None], list[int]]:
        """Of a batch what came of each, and its code."""
        if self._paused:
            return [None] * count, [UNREACHABLE] * count
        began = time.monotonic()
        try:
            return call(), [OK] * count
        except penstock.Error as error:
            codes = [code_of(result) for result in error.results or [error.result or -errno.EIO] * count]
            self._failed(f"{what} of {count} keys", error, codes, began)
            return error.values or [None] * count, codes
