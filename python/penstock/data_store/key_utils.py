# SPDX-License-Identifier: Apache-2.0
"""Keys: "service/path"."""
from __future__ import annotations

import dataclasses

__all__ = ["ParsedKey", "normal_key", "parse_key"]


@dataclasses.dataclass(frozen=True)
class ParsedKey:
    """A key's parts.

    Attributes
    ----------
    service_name : str or None
        The part before the first slash; None of an empty key.
    path : str
        What is behind it.
    original_key : str
    """

    service_name: str | None
    path: str
    original_key: str

    @property
    def storage_path(self) -> str:
        """The path below the service's folder."""
        if self.service_name:
            return self.path
        return f"store/{self.path}" if self.path else "store"

    @property
    def full_key(self) -> str:
        """The key without slashes around it."""
        return "/".join(part for part in (self.service_name, self.path) if part)


def normal_key(key: str) -> str:
    """A key as the store sees it: empty parts and "." fall away, and ".." ends at the namespace's root."""
    parts: list[str] = []
    for part in key.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def parse_key(key: str) -> ParsedKey:
    """Cut a key, in its normal form, at its first slash."""
    service, _, path = normal_key(key).partition("/")
    return ParsedKey(service or None, path, key)
