# SPDX-License-Identifier: Apache-2.0
"""Pages of a KV cache in a store, as engines want them: what cannot be had is missing, and nothing raises."""
from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar
from urllib.parse import quote

import penstock

_log = logging.getLogger("penstock.engines")

BATCH_KEYS = 4096
BATCH_BYTES = 128 << 20
"""A call has one time for all of its pages, so it has no more of them than pass within that time over a slow network, too."""
CALL_S = 5.0
PAUSE_S = 30.0
_EXISTS = 2
_QUIET = {0, 1, _EXISTS, 7, 8, -errno.ENOBUFS}
"""Results that are no lines of the log: found, missing (of a pool: lost), there already, of another size."""
_UNREACHABLE = {4, 5, -errno.ECONNREFUSED, -errno.EHOSTUNREACH, -errno.ENETUNREACH, -errno.ECONNRESET, -errno.EPIPE, -errno.ETIMEDOUT,
                -errno.EREMCHG}

T = TypeVar("T")


def url_of(address: str) -> str:
    """A store's URL, of which ``penstock://HOST:PORT`` is a node's, and HOST:PORT a pool's."""
    if address.startswith("penstock://"):
        return "node://" + address.removeprefix("penstock://")
    return address if "://" in address or address.startswith("mem:") else f"pool://{address}"


def address_of(given: str | None, setting: str) -> str:
    """A store's address: `given`, else what ``PENSTOCK_URL`` names. Raises ValueError: there is none, which `setting` says, or no text."""
    address = given or os.environ.get("PENSTOCK_URL")
    if not address:
        raise ValueError(f"{setting}, and PENSTOCK_URL is not set: where is the store?")
    if not isinstance(address, str):  # of a configuration in JSON, say
        raise ValueError(f"a store's address is a text, not {address!r}")
    return address


def prefix_of(engine: str, model: str, tag: str | None = None) -> str:
    """In front of a model's keys, and of no other's: names of models have slashes, and `Pages.clear` takes all that begins so."""
    tagged = "" if tag is None else quote(tag, safe="") + ":"
    return f"{engine}/{tagged}{quote(model, safe='')}/"


class Pages:
    """Pages by name, below a prefix.

    A page is there or missing. Errors of the store are misses, and one line of the log each. If nobody answers a call, or not for all
    of its pages within `CALL_S`, those of the next `PAUSE_S` seconds miss at once, so that an engine does not wait for a node that is
    gone. Threads may share one.

    Parameters
    ----------
    address : str
        A store's URL; see :func:`url_of`.
    prefix : str
        Of all keys.
    secret_file : path, optional
        By default what ``PENSTOCK_SECRET_FILE`` names.

    Raises
    ------
    penstock.Error
        The store cannot be opened.
    """

    def __init__(self, address: str, prefix: str, *, secret_file: str | os.PathLike[str] | None = None) -> None:
        secret = secret_file or os.environ.get("PENSTOCK_SECRET_FILE") or None
        self.store = penstock.open(url_of(address), secret_file=secret, timeout=CALL_S)
        self.prefix = prefix
        self._paused_until = 0.0

    def __repr__(self) -> str:
        return f"<Pages {self.prefix!r} of {self.store!r}>"

    def put(self, keys: Sequence[str], values: Sequence[object]) -> list[bool]:
        """Put pages. Which are there now; one that was there already stays."""
        def call(names: list[str], batch: list[object]) -> list[object]:
            return self.store.put_many(list(zip(names, batch)), if_absent=True)
        return [result in (0, _EXISTS) for result, _ in self._each("put", call, keys, values)]

    def get_into(self, keys: Sequence[str], rooms: Sequence[object]) -> list[int | None]:
        """Read pages into memory: bytes of each; None for one that is missing, or larger than its room."""
        found = self._each("get", lambda names, batch: self.store.get_into_many(names, batch), keys, rooms)
        return [count if result == 0 else None for result, count in found]

    def get_ranges(self, keys: Sequence[str], offset: int, length: int) -> list[bytes | None]:
        """The same range of each page."""
        found = self._each("get", lambda names, _: self.store.get_many(names, ranges=[(offset, length)] * len(names)), keys)
        return [part if result == 0 else None for result, part in found]

    def exists(self, keys: Sequence[str]) -> list[bool]:
        """Which pages are there."""
        found = self._each("exists", lambda names, _: self.store.exists_many(names), keys)
        return [result == 0 and bool(there) for result, there in found]

    def prefix_length(self, keys: Sequence[str]) -> int:
        """How many pages are there from the first on, up to the first that is missing."""
        return next((i for i, there in enumerate(self.exists(keys)) if not there), len(keys))

    def delete(self, keys: Sequence[str]) -> list[bool]:
        """Delete pages. Which were there."""
        found = self._each("delete", lambda names, _: self.store.delete_many(names), keys)
        return [result == 0 and bool(was) for result, was in found]

    def names(self) -> list[str]:
        """Of all pages."""
        return self._tried("list", lambda: [name[len(self.prefix):] for name in self.store.keys(self.prefix)], [])

    def clear(self) -> int:
        """Delete all pages. How many there were."""
        return self._tried("clear", lambda: self.store.delete_prefix(self.prefix), 0)

    def ping(self) -> bool:
        """Whether the store answers."""
        return self._tried("ping", lambda: self.store.ping() >= 0, False)

    def register(self, address: int, size: int) -> bool:
        """Tell the transport of memory from and to which pages will move."""
        return self._tried(f"register {size} bytes", lambda: self.store.register((address, size)) is None, False)

    def close(self) -> None:
        """End the store. Does nothing the second time."""
        self.store.close()

    # ---- errors ----

    def _each(self, what: str, call: Callable[[list[str], list[object]], Sequence[object]], keys: Sequence[str],
              values: Sequence[object] | None = None) -> list[tuple[int, object]]:
        """Of each key a result and what came of it, by calls of at most `BATCH_KEYS` and `BATCH_BYTES`."""
        if values is not None and len(values) != len(keys):
            raise ValueError(f"{what}: {len(keys)} keys and {len(values)} places")
        found: list[tuple[int, object]] = []
        for batch in _batches(zip(keys, keys if values is None else values)):
            names = [self.prefix + key for key, _ in batch]
            if time.monotonic() < self._paused_until:
                found += [(-errno.ETIMEDOUT, None)] * len(batch)
                continue
            began = time.monotonic()
            try:
                found += [(0, one) for one in call(names, [value for _, value in batch])]
            except penstock.Error as error:
                results = error.results or [error.result or -errno.EIO] * len(batch)
                self._failed(f"{what} of {len(batch)} pages", error, results, began)
                found += zip(results, error.values or [None] * len(batch))
        return found

    def _tried(self, what: str, call: Callable[[], T], otherwise: T) -> T:
        if time.monotonic() < self._paused_until:
            return otherwise
        began = time.monotonic()
        try:
            return call()
        except penstock.Error as error:
            self._failed(what, error, [error.result], began)
            return otherwise

    def _failed(self, what: str, error: penstock.Error, results: Sequence[int], began: float) -> None:
        # Of a pool that waits for a node to come back some keys answer at once, and the others take all of the time.
        if all(result in _UNREACHABLE for result in results) or time.monotonic() - began > 0.9 * CALL_S:
            self._paused_until = time.monotonic() + PAUSE_S
            _log.warning("%s: %s; pages are missing for the next %.0f s", what, error, PAUSE_S)
        elif any(result not in _QUIET for result in results):
            _log.warning("%s: %s", what, error)


def _batches(items: Iterable[tuple[str, object]]) -> Iterator[list[tuple[str, object]]]:
    batch: list[tuple[str, object]] = []
    size = 0
    for item in items:
        more = _bytes_of(item[1])
        if batch and (len(batch) == BATCH_KEYS or size + more > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += more
    if batch:
        yield batch


def _bytes_of(place: object) -> int:
    """Of a page: an address and its size, or a buffer or several. What is asked for without a place is small."""
    if isinstance(place, str):
        return 0
    if isinstance(place, tuple):
        return int(place[1])
    return sum(map(_bytes_of, place)) if isinstance(place, list) else memoryview(place).nbytes  # type: ignore[arg-type]
