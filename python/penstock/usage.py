# SPDX-License-Identifier: Apache-2.0
"""What a store holds: its figures, and a table of them where people look."""
from __future__ import annotations

import collections
import dataclasses
import html
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .store import Store

__all__ = ["PrefixUsage", "StoreStat"]

KEYS_MAX = 20_000
ROWS_MAX = 12
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class PrefixUsage(NamedTuple):
    """Keys that begin alike: with what comes before the first slash, and the slash."""

    prefix: str
    keys: int
    size: int
    """Bytes of their values."""


@dataclasses.dataclass(frozen=True)
class StoreStat:
    """Figures of a whole store, as :manpage:`penstock_stat(3)` names them. Sizes are in bytes.

    In a notebook it shows as a table, of tiers and of prefixes.
    """

    page_bytes: int
    pages: int
    pages_used: int
    arenas: int
    shards: int
    keys: int
    value_bytes: int
    cache_keys: int
    pinned: int
    puts: int
    gets: int
    hits: int
    misses: int
    deletes: int
    evictions: int
    evicted_bytes: int
    moved: int
    no_space: int
    slab_pages: int
    slab_bytes: int
    index_bytes: int
    rss_anon_bytes: int
    sessions: int
    uptime_ms: int
    pinned_bytes: int
    reservations: int
    reservation_bytes: int
    waits: int
    watches: int
    ssd_keys: int
    ssd_bytes: int
    demotions: int
    demoted_bytes: int
    promotions: int
    fetches: int
    fetched_bytes: int
    ssd_corrupt: int
    ssd_errors: int
    ssd_hits: int
    ssd_capacity_bytes: int
    ssd_live_bytes: int
    ssd_appended_bytes: int
    ssd_written_bytes: int
    ssd_moved_bytes: int
    ssd_reclaimed_bytes: int
    restored_keys: int
    restored_dropped: int
    restored_ms: int
    nodes: int
    pool_master_requests: int
    pool_node_requests: int
    pool_located: int
    pool_existed: int
    pool_put_bytes: int
    pool_retries: int
    pool_failovers: int
    refused_secret: int
    refused_version: int
    refused_busy: int
    refused_other: int
    malformed: int
    copies_asked: int
    refused_plain: int
    refused_tls: int
    refused_certificate: int
    refused_expired: int
    refused_replayed: int
    refused_by_client: int
    forbidden: int
    hbm_keys: int
    hbm_bytes: int
    hbm_capacity_bytes: int
    hbm_used_bytes: int
    hbm_promotions: int
    hbm_demotions: int
    hbm_hits: int
    hbm_errors: int
    store: Store | None = dataclasses.field(default=None, repr=False, compare=False)
    """Where they are from, for :meth:`prefixes`."""

    @property
    def write_amplification(self) -> float:
        """Bytes written to the SSD for each byte of a value that went there; 0 when none has."""
        return self.ssd_written_bytes / self.ssd_appended_bytes if self.ssd_appended_bytes else 0.0

    def prefixes(self, keys_max: int = KEYS_MAX) -> tuple[list[PrefixUsage], bool]:
        """Usage by prefix, from a listing of now.

        Parameters
        ----------
        keys_max : int
            How many keys are looked at, in order.

        Returns
        -------
        list of PrefixUsage
            The largest first.
        bool
            Whether there are more keys than were looked at.
        """
        listing = iter(()) if self.store is None or self.store.closed else self.store.list()
        sums: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
        for entry in itertools.islice(listing, keys_max):
            head, slash, _ = entry.name.partition("/")
            of_prefix = sums[head + slash if slash else ""]
            of_prefix[0] += 1
            of_prefix[1] += entry.size
        usage = [PrefixUsage(prefix, *of_prefix) for prefix, of_prefix in sums.items()]
        return sorted(usage, key=lambda one: -one.size), next(listing, None) is not None

    def _repr_html_(self) -> str:
        used, room = self.pages_used * self.page_bytes, self.pages * self.page_bytes
        tiers = [("DRAM", f"{self.keys - self.ssd_keys:,}", _size(self.value_bytes - self.ssd_bytes), _size(used),
                  _size(room), _bar(used, room))]
        if self.ssd_capacity_bytes:
            tiers.append(("SSD", f"{self.ssd_keys:,}", _size(self.ssd_bytes), _size(self.ssd_live_bytes),
                          _size(self.ssd_capacity_bytes), _bar(self.ssd_live_bytes, self.ssd_capacity_bytes)))
        classes = (f"<p>{self.keys - self.cache_keys:,} keys kept, {self.cache_keys:,} that may be evicted, "
                   f"{self.pinned:,} pinned; {self.shards} shards, {self.sessions} sessions</p>")
        prefixes, cut = self.prefixes()
        rows = [(_name(one.prefix), f"{one.keys:,}", _size(one.size), _bar(one.size, self.value_bytes))
                for one in prefixes[:ROWS_MAX]]
        by_prefix = _table(("prefix", "keys", "values", ""), rows) if rows else ""
        notes = [f"the {ROWS_MAX} largest of {len(prefixes):,} prefixes"] if len(prefixes) > ROWS_MAX else []
        notes += [f"from the first {KEYS_MAX:,} keys alone: there are more"] if cut else []
        by_tier = _table(("tier", "keys", "values", "in use", "of", ""), tiers)
        return by_tier + classes + by_prefix + (f"<p>{'; '.join(notes)}</p>" if notes else "")


def _size(count: float) -> str:
    for unit in UNITS[:-1]:
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} {UNITS[-1]}"


def _name(prefix: str) -> str:
    shown = prefix.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return html.escape(shown) if shown else "<i>without a slash</i>"


def _bar(part: int, whole: int) -> str:
    percent = min(100 * part / whole, 100) if whole else 0
    return (f'<div style="width:10em;background:#8884" title="{percent:.1f} %">'
            f'<div style="width:{percent:.1f}%;background:#48c">&nbsp;</div></div>')


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """The cells of rows are HTML."""
    lines = ["".join(f"<th>{cell}</th>" for cell in head)]
    lines += ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"
