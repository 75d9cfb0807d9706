# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with the data store. Every error is a :class:`DataStoreError`."""
from __future__ import annotations

from ..errors import Busy, Error, NotFound

__all__ = ["AgentError", "DataStoreError", "KeyNotFound", "RsyncError", "Saturated", "StoreRefused", "StoreUnreachable", "TreeError"]


# Exit statuses of rsync: what it was told, and this host's files, memory and processes; a transfer that one of both sides cut short.
LOCAL = (3, 11, 13, 14, 20, 21, 22)
PARTIAL = (23, 24)


class DataStoreError(Error):
    """Base of all errors of the data store."""


class KeyNotFound(DataStoreError, NotFound):
    """Nobody has the key."""


class AgentError(DataStoreError):
    """A pod's agent is not there, could not be started, or refused.

    Attributes
    ----------
    answered : bool
        It is there, and this is what it said.
    """

    def __init__(self, text: str, answered: bool = False) -> None:
        super().__init__(text)
        self.answered = answered


class StoreUnreachable(DataStoreError, ConnectionError):
    """The server is not there, ended the connection, or answered with what is no answer of a data store."""


class StoreRefused(DataStoreError):
    """The server refused a request.

    Attributes
    ----------
    status : int
        Of HTTP.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Saturated(DataStoreError, Busy):
    """Every source of the key serves as many others as it may.

    Attributes
    ----------
    ips : list of str
        Their addresses.
    """

    def __init__(self, key: str, ips: list[str]) -> None:
        super().__init__(f"{key}: every source serves as many as it may")
        self.ips = ips


class RsyncError(DataStoreError):
    """rsync failed.

    Attributes
    ----------
    code : int
        Its exit status.
    output : str
        What it said.
    """

    def __init__(self, code: int, output: str) -> None:
        super().__init__(f"rsync ended with {code}: {output.strip()[-1000:] or 'it said nothing'}")
        self.code = code
        self.output = output

    @property
    def is_refusal(self) -> bool:
        """Whether the source is there, and does not take this client's token."""
        return "auth failed" in self.output

    @property
    def is_local(self) -> bool:
        """Whether this host is at fault, such as its full disk, and no other source would serve better."""
        if self.code in PARTIAL:
            return "[sender]" not in self.output and ("[receiver]" in self.output or "[generator]" in self.output)
        return self.code in LOCAL


class TreeError(DataStoreError):
    """A transfer by the store's own protocol for trees failed.

    Attributes
    ----------
    is_final : bool
        No other source or way would serve better: a disk is full, a token is wrong, or this host lets nothing be written there.
    """

    def __init__(self, text: str, is_final: bool = False) -> None:
        super().__init__(text)
        self.is_final = is_final
