# SPDX-License-Identifier: Apache-2.0
"""Keys: "service/path"."""
from __future__ import annotations

import dataclasses

__all__ = ["ParsedKey", "parse_key"]


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


def parse_key(key: str) -> ParsedKey:
    """Cut a key at its first slash; slashes around it fall away."""
    service, _, path = key.strip("/").partition("/")
    return ParsedKey(service or None, path, key)
