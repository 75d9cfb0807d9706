# SPDX-License-Identifier: Apache-2.0
"""What calls of the data store take."""
from __future__ import annotations

import dataclasses
from typing import Any, Literal

__all__ = ["BroadcastWindow", "Lifespan", "Locale", "Transport"]

#: Where the data is to lie: in the store, or where it is ("local": others fetch it from this pod).
Locale = Literal["store", "local"]
#: "cluster": until somebody deletes it. "resource": until its service is cleaned up.
Lifespan = Literal["cluster", "resource"]
#: How files get into the store and out of it. "auto": by the store's own protocol if both sides have it, and rsync otherwise.
Transport = Literal["auto", "rsync", "native"]


@dataclasses.dataclass
class BroadcastWindow:
    """Which pods take part in a broadcast. It begins once any condition that is set holds.

    Attributes
    ----------
    timeout : float or None
        Seconds after the first has joined.
    world_size : int or None
        So many pods, those that put and those that get.
    ips : list of str or None
        All of these addresses.
    group_id : str or None
        Name of the group; made of the keys if not set.
    fanout : int or None
        How many a member serves at most; 50 for files, 2 for tensors on devices.
    pack : bool
        Tensors on devices: all in one buffer.
    """

    timeout: float | None = None
    world_size: int | None = None
    ips: list[str] | None = None
    group_id: str | None = None
    fanout: int | None = None
    pack: bool = False

    def __post_init__(self) -> None:
        if self.timeout is None and self.world_size is None and self.ips is None:
            raise ValueError("a BroadcastWindow needs at least one of timeout, world_size and ips")

    def to_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return dataclasses.asdict(self)
