# SPDX-License-Identifier: Apache-2.0
"""Trees and files whose bytes follow from a seed, a name and a version, so that each can be told from all others."""

import functools
import os
import random
from pathlib import Path

KIB = 1 << 10
FILES = 6
FILE_BYTES = (1, 640 * KIB)
SINGLE_BYTES = 2048 * KIB
CACHED = 32


@functools.lru_cache(CACHED)
def version_of(seed: int, name: str, version: int) -> dict[str, bytes]:
    """Files by their paths; that of a single file, whose name begins with "file", is "."."""
    dice = random.Random(f"{seed} {name} {version}")
    if name.startswith("file"):
        return {".": dice.randbytes(SINGLE_BYTES + version)}
    return {f"{'sub/' if number % 2 else ''}{number}": dice.randbytes(dice.randint(*FILE_BYTES)) for number in range(FILES)}


def write_version(seed: int, name: str, version: int, path: Path) -> None:
    """Make one, with times that no other version has."""
    for at, data in version_of(seed, name, version).items():
        file = path / at
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        os.utime(file, (0, 1_700_000_000 + version))


def fault_of(seed: int, name: str, versions: range, path: Path) -> str:
    """What is wrong with what lies there: it is none of these versions, whole. Empty: nothing is."""
    there = bytes_of(path)
    wanted = [version_of(seed, name, version) for version in versions]
    if there in wanted:
        return ""
    near = max(wanted, key=lambda each: sum(there.get(at) == data for at, data in each.items()))
    wrong = [f"{at} ({len(there[at]) if at in there else 'no'} bytes of {len(near[at]) if at in near else 'no'})"
             for at in sorted(near.keys() | there.keys()) if near.get(at) != there.get(at)]
    return f"{path} is none of versions {list(versions)} of {name}: {', '.join(wrong)}"


def bytes_of(path: Path) -> dict[str, bytes]:
    """What lies there, by paths; nothing of what is not there."""
    if path.is_file():
        return {".": path.read_bytes()}
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
