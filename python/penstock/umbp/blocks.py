# SPDX-License-Identifier: Apache-2.0
"""Blocks that engines hold in memory of their own: who has which, as a pool's master knows it."""
from __future__ import annotations

import dataclasses
import errno
import logging
import os
from collections.abc import Iterable, Mapping

from ..errors import Error, Invalid, NoSpace
from ..node import Node
from ..records import each_key
from ..store import Store
from .kinds import UMBPTierType
from .names import NodeNames, node_bytes

_log = logging.getLogger("penstock.umbp")
_FASTEST_FIRST = (UMBPTierType.HBM, UMBPTierType.DRAM, UMBPTierType.SSD, UMBPTierType.Unknown)
_SMALL_BYTES = 1 << 20
CONNECT_S = 5.0


@dataclasses.dataclass(slots=True)
class UMBPExternalKvNodeMatch:
    """What one node holds of the blocks that were asked for.

    Attributes
    ----------
    node_id : str
    peer_address : str
        ``HOST:PORT``, empty where the node has none.
    hashes_by_tier : dict of UMBPTierType to list of str
        In the order of the question, on every tier that has any, the fastest first; Unknown only where no tier is known.
    """

    node_id: str = ""
    peer_address: str = ""
    hashes_by_tier: dict[UMBPTierType, list[str]] = dataclasses.field(default_factory=dict)

    def matched_hash_count(self) -> int:
        """How many blocks the node holds: one on two tiers counts once."""
        return len({one for hashes in self.hashes_by_tier.values() for one in hashes})


UMBPExternalKvMatch = UMBPExternalKvNodeMatch  # UMBP has one for its clients, and one for those of its master alone


@dataclasses.dataclass(slots=True)
class UMBPExternalKvHitCountEntry:
    """How often a block was a hit."""

    hash: str = ""
    hit_count_total: int = 0


class Blocks:
    """The questions to a master, each of which raises :class:`penstock.Error`. Threads may share it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.names = NodeNames(store)

    def report(self, name: str, hashes: Iterable[str], tier: UMBPTierType) -> None:
        """Raises NoSpace if the master has not noted all. What is said of a node that the pool does not have is ignored."""
        hashes, tier = list(each_key(hashes, "hashes")), UMBPTierType(tier)
        try:
            refused = self._store.report_blocks(node_bytes(name), tier, hashes)
        except Error as error:
            if error.result != -errno.EHOSTUNREACH or "no member" not in str(error):  # else the master is not there
                raise
            _log.info("%d blocks of node %r are not noted: %s", len(hashes), name, error)
            return
        self.names.tell(name)
        if refused:
            raise NoSpace(f"the master has no room for {refused} of {len(hashes)} blocks")

    def revoke(self, name: str, hashes: Iterable[str] | None, tier: UMBPTierType) -> None:
        """Take reports back for this tier, None: all of them."""
        self._store.revoke_blocks(node_bytes(name), UMBPTierType(tier), None if hashes is None else list(each_key(hashes, "hashes")))

    def match(self, hashes: Iterable[str], count_as_hit: bool) -> list[UMBPExternalKvNodeMatch]:
        """Who holds which of these blocks; who holds none is not among them."""
        asked = list(dict.fromkeys(each_key(hashes, "hashes")))
        found = self._store.match_blocks(asked, hit=count_as_hit)
        names = self.names.of(node for node, *_ in found)
        return [UMBPExternalKvNodeMatch(names[node], address, _by_tier(asked, tiers)) for node, address, _, tiers in found]

    def hits(self, hashes: Iterable[str]) -> list[UMBPExternalKvHitCountEntry]:
        """How often blocks were hits lately; those that were none are left out."""
        asked = list(dict.fromkeys(each_key(hashes, "hashes")))
        return [UMBPExternalKvHitCountEntry(name, count) for name, count in zip(asked, self._store.block_hits(asked)) if count]


def _by_tier(names: list[str], tiers: bytes) -> dict[UMBPTierType, list[str]]:
    held = {tier: [name for name, bits in zip(names, tiers) if bits >> tier & 1] for tier in _FASTEST_FIRST}
    return {tier: hashes for tier, hashes in held.items() if hashes}


class UMBPMasterClient:
    """Asks a pool's master, such as a router does, and is no member of the pool.

    Every call raises :class:`penstock.Error`, a RuntimeError, if it could not be done.

    Parameters
    ----------
    master_address : str
        ``HOST:PORT``, several with commas between them, or a pool's URL.
    node_id, node_address : str
        For :meth:`register_self` alone: the name of a node, and the host where others reach this process.
    secret_file : path, optional
    timeout : float
        Seconds that a call may take.
    """

    def __init__(self, master_address: str, node_id: str = "", node_address: str = "", *,
                 secret_file: str | os.PathLike[str] | None = None, timeout: float = 10.0) -> None:
        self._url = master_address if "://" in master_address else f"pool://{master_address}"
        self._name, self._address, self._secret_file = node_id, node_address, secret_file
        self._node: Node | None = None
        self._store = Store(self._url, secret_file=secret_file, timeout=timeout)
        self._blocks = Blocks(self._store)

    def __repr__(self) -> str:
        return f"<UMBPMasterClient {self._url}>"

    def register_self(self, tier_capacities: Mapping[UMBPTierType, tuple[int, int]] | None = None) -> None:
        """Become a member under `node_id`, so that blocks can be reported for it. It brings no memory along: nothing is put on
        it. `tier_capacities` are accepted, and not used.

        Raises
        ------
        Invalid
            There is no `node_id`, or the process is a member already.
        """
        if not self._name or self._node is not None:
            raise Invalid("register_self: the node is registered already" if self._name else "register_self: node_id is empty")
        node = node_bytes(self._name)
        more = {} if self._secret_file is None else {"secret_file": os.fspath(self._secret_file)}
        masters = self._url.removeprefix("pool://").partition("?")[0].split(",")
        self._node = Node(log=None, connect_timeout=CONNECT_S, master=masters, node_id=node.hex(), dram=_SMALL_BYTES,
                          listen=f"{self._address or '127.0.0.1'}:0", page_size=64 << 10, class_="=cache", **more)
        self._store.drain_id(node, True)

    def unregister_self(self) -> None:
        """Leave the pool. Does nothing the second time."""
        node, self._node = self._node, None
        if node is not None:
            node.close()

    def is_registered(self) -> bool:
        """Whether :meth:`register_self` was called."""
        return self._node is not None

    def report_external_kv_blocks(self, node_id: str, hashes: Iterable[str], tier: UMBPTierType) -> None:
        """Say that a node holds blocks on a tier, too. A node that the pool does not have is ignored."""
        self._blocks.report(node_id, hashes, tier)

    def revoke_external_kv_blocks(self, node_id: str, hashes: Iterable[str], tier: UMBPTierType) -> None:
        """Take a report back for this tier."""
        self._blocks.revoke(node_id, hashes, tier)

    def revoke_all_external_kv_blocks_at_tier(self, node_id: str, tier: UMBPTierType) -> None:
        """Take back all that was reported for the node on this tier."""
        self._blocks.revoke(node_id, None, tier)

    def match_external_kv(self, hashes: Iterable[str], count_as_hit: bool = False) -> list[UMBPExternalKvNodeMatch]:
        """Who holds which of these blocks. `count_as_hit` belongs to users' requests alone."""
        return self._blocks.match(hashes, count_as_hit)

    def get_external_kv_hit_counts(self, hashes: Iterable[str]) -> list[UMBPExternalKvHitCountEntry]:
        """How often blocks were hits lately."""
        return self._blocks.hits(hashes)

    def close(self) -> None:
        """End the client, and leave the pool. Does nothing the second time."""
        self._store.close()
        self.unregister_self()
