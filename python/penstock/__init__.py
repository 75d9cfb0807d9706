# SPDX-License-Identifier: Apache-2.0
"""penstock: pooled memory for tensors, one store of named byte values.

``penstock.open()`` is a store inside this process; ``penstock.open("node://HOST:PORT")`` one that a node serves.
"""
from ._places import CacheWarning
from .errors import (Busy, Corrupt, Error, Exists, ForkError, Incomplete, Invalid, LimitReached, Lost, NoSpace,
                     NotAllowed, NotFound, Stale, TimedOut, Unknown, Unreachable, Unsupported)
from .node import Node
from .records import Entry, Event, KeyStat, PoolNode
from .store import Reservation, Store, StoreStat, Stream, View, Watch, open
from .tracing import traced
from .usage import PrefixUsage

__version__ = "0.1.0"

__all__ = [
    "Busy", "CacheWarning", "Corrupt", "Entry", "Error", "Event", "Exists", "ForkError", "Incomplete", "Invalid", "KeyStat",
    "LimitReached", "Lost", "Node", "NoSpace", "NotAllowed", "NotFound", "PoolNode", "PrefixUsage", "Reservation", "Stale",
    "Store", "StoreStat", "Stream", "TimedOut", "Unknown", "Unreachable", "Unsupported", "View", "Watch", "open",
    "traced",
]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
