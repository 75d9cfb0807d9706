# SPDX-License-Identifier: Apache-2.0
"""penstock: pooled memory for tensors, one store of named byte values.

``penstock.open()`` is a store inside this process; ``penstock.open("node://HOST:PORT")`` one that a node serves.
"""
from .errors import (Busy, Corrupt, Error, Exists, ForkError, Incomplete, Invalid, LimitReached, Lost, NoSpace,
                     NotAllowed, NotFound, Stale, TimedOut, Unknown, Unreachable, Unsupported)
from .node import Node
from .records import Entry, Event, KeyStat, PoolNode
from .store import Reservation, Store, StoreStat, View, open
from .usage import PrefixUsage

__version__ = "0.1.0"

__all__ = [
    "Busy", "Corrupt", "Entry", "Error", "Event", "Exists", "ForkError", "Incomplete", "Invalid", "KeyStat",
    "LimitReached", "Lost", "Node", "NoSpace", "NotAllowed", "NotFound", "PoolNode", "PrefixUsage", "Reservation", "Stale", "Store", "StoreStat", "TimedOut", "Unknown", "Unreachable",
    "Unsupported", "View", "open",
]
