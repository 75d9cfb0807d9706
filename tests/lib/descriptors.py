# SPDX-License-Identifier: Apache-2.0
"""What descriptors a process has open."""
from __future__ import annotations

import contextlib
import os
import pathlib


def memfds_of(pid: int, name: str) -> int:
    """How many descriptors a process has of memories whose names begin with `name`."""
    count = 0
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # closed, or ended, meanwhile
            count += f"memfd:{name}" in os.readlink(fd)
    return count
