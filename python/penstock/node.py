# SPDX-License-Identifier: Apache-2.0
"""A node served from within this process."""
from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Iterable
from types import TracebackType
from typing import Protocol, Union

from . import _core

__all__ = ["Node"]

Setting = Union[str, int, bool, "os.PathLike[str]", Iterable[Union[str, "os.PathLike[str]"]]]


class _HasDescriptor(Protocol):
    def fileno(self) -> int: ...


_nodes: weakref.WeakSet[Node] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Nodes own files in a tmpfs: none may be left behind by a program that just ends."""
    for node in list(_nodes):
        node.close()


class Node(_core.Node):
    """Serve a node from within this process, on threads of its own, until it is closed.

    Parameters
    ----------
    log : object with fileno(), optional
        A file or socket that gets one line for each event, ``sys.stderr`` for instance; without it the node is silent.
    connect_timeout : float
        With `master`: seconds until the pool puts values on the node. It does when the constructor returns.
    **settings : str, int, bool, path, or iterable of str or paths
        What ``penstockd --help`` lists, with underscores: ``dram="4G"``, ``listen="127.0.0.1:0"``, ``unix="/run/p.sock"``,
        ``shards=2``, ``class_=["kv/=cache"]``. An iterable repeats the setting. With ``master="HOST:PORT"`` the node is one of
        that master's pool until it is closed. Roles, doors and followers are ``penstockd``'s alone.

    Raises
    ------
    Invalid
        A setting that no node has, or a value that it does not take.
    Unreachable, TimedOut, NotAllowed
        With `master`: no master took the node in within `connect_timeout`; the text says why.
    Unsupported
        UCX is not installed.

    Examples
    --------
    >>> import penstock
    >>> with penstock.Node(dram="64M", listen="127.0.0.1:0") as node, penstock.open(node.urls[0]) as store:
    ...     generation = store.put("k", b"v")
    ...     store.get("k")
    b'v'
    """

    def __init__(self, *, log: _HasDescriptor | None = None, connect_timeout: float = 5.0, **settings: Setting) -> None:
        if log is not None and not hasattr(log, "fileno"):
            raise TypeError(f"log must be a file with a descriptor, not {type(log).__name__}")
        super().__init__(tuple(_pairs(settings)), -1 if log is None else log.fileno(), connect_timeout)
        _nodes.add(self)

    def __repr__(self) -> str:
        return f"<penstock.Node {'closed' if self.closed else ' '.join(self.urls)}>"

    def __enter__(self) -> Node:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


def _pairs(settings: dict[str, Setting]) -> Iterable[str]:
    for name, value in settings.items():
        if isinstance(value, bool):
            values: Iterable[str | os.PathLike[str]] = ["yes" if value else "no"]
        elif isinstance(value, (str, int)):
            values = [str(value)]
        elif isinstance(value, os.PathLike):
            values = [value]
        elif isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray, memoryview)):
            values = value
        else:
            raise TypeError(f"{name} must be a str, an int, a bool, a path or an iterable of these, not {type(value).__name__}")
        yield from (f"{name.rstrip('_')}={os.fspath(one) if isinstance(one, os.PathLike) else one}" for one in values)
