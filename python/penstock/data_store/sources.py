# SPDX-License-Identifier: Apache-2.0
"""Where files and folders land that are put under a key, whatever carries them."""
from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Source", "links_below", "sources"]


class Source(NamedTuple):
    """A file or folder of this host, and its name below the key; without a name it takes the key's own."""

    path: str
    name: str
    is_folder: bool

    def key(self, key: str) -> str:
        """The key that it gets when it is put under `key`."""
        return f"{key}/{self.name}" if self.name else key


def sources(paths: Iterable[str], contents: bool) -> list[Source]:
    """What paths lead to, with links resolved.

    A folder goes below the key, or with `contents` only what it has; one of several files goes below it, too.
    """
    resolved = [os.path.realpath(os.path.expanduser(path)) for path in paths]
    if not resolved:
        raise ValueError("there is nothing to put")
    found = []
    for path in resolved:
        is_folder = os.path.isdir(path)
        if not os.path.exists(path):
            raise FileNotFoundError(f"there is nothing at {path}")
        if not is_folder and not os.path.isfile(path):
            raise ValueError(f"{path} is neither a file nor a folder")
        below = not contents if is_folder else len(resolved) > 1
        if below and path == "/":
            raise ValueError("/ has no name, and goes nowhere unless its contents do")
        found.append(Source(path, os.path.basename(path) if below else "", is_folder))
    return found


def links_below(paths: Iterable[str]) -> list[str]:
    """The links below folders; FileNotFoundError for one that leads nowhere, which nothing can follow."""
    links = []
    for path in paths:
        for folder, folders, files in os.walk(path):
            links += [link for link in (os.path.join(folder, name) for name in (*folders, *files)) if os.path.islink(link)]
    for link in links:
        if not os.path.exists(link):
            raise FileNotFoundError(f"{link} leads nowhere; transport 'native' keeps such a link")
    return links
