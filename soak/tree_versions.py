# SPDX-License-Identifier: Apache-2.0
"""Trees and files whose bytes follow from a seed, a name and a version, so that each can be told from all others.

A name that begins with "file" is a single file, new in each version. One that begins with "evolving" is a tree of which each
version has some blocks of the one before. Any other is a tree with one version.
"""

import functools
import os
import random
from pathlib import Path

KIB = 1 << 10
FILES = 6
FILE_BYTES = (1, 640 * KIB)
SINGLE_BYTES = 2048 * KIB
BLOCK_BYTES, BLOCKS = 96 * KIB, (0, 1, 5, 9)  # of the files of a tree that evolves
CHANGED_EVERY = 4  # versions, in each of which a block may change
FRONT_BYTES = (0, 300)  # so that blocks begin elsewhere than in the version before
CACHED = 32

Files = dict[str, bytes]


@functools.lru_cache(CACHED)
def version_of(seed: int, name: str, version: int) -> Files:
    """Files by their paths; that of a single file is "."."""
    dice = random.Random(f"{seed} {name} {version}")
    if name.startswith("file"):
        return {".": dice.randbytes(SINGLE_BYTES + version)}
    if name.startswith("evolving"):
        return {f"{'sub/' if number % 2 else ''}{number}": evolved(f"{seed} {name} {number}", version, blocks)
                for number, blocks in enumerate(BLOCKS)}
    return {f"{'sub/' if number % 2 else ''}{number}": dice.randbytes(dice.randint(*FILE_BYTES)) for number in range(FILES)}


def evolved(seed: str, version: int, blocks: int) -> bytes:
    """A front that changes with each version, and blocks of which each changes now and then."""
    dice = random.Random(f"{seed} {version}")
    front = dice.randbytes(dice.randint(*FRONT_BYTES))
    return front + b"".join(random.Random(f"{seed} {block} {changed_last(seed, version, block)}").randbytes(BLOCK_BYTES)
                            for block in range(blocks))


def changed_last(seed: str, version: int, block: int) -> int:
    """The last version in which the block changed."""
    while version > 1 and random.Random(f"{seed} {block} at {version}").randrange(CHANGED_EVERY):
        version -= 1
    return version


def write_version(seed: int, name: str, version: int, path: Path) -> None:
    """Make one, with times that no other version has."""
    for at, data in version_of(seed, name, version).items():
        file = path / at
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        os.utime(file, (0, 1_700_000_000 + version))


def fault_of(seed: int, name: str, versions: range, path: Path, mixed: bool = False) -> str:
    """What is wrong with what lies there: it is none of these versions, whole. Empty: nothing is.

    With `mixed` each of its files may be of another version, as in a tree that is brought up to date file by file.
    """
    there = bytes_of(path)
    wanted = [version_of(seed, name, version) for version in versions]
    if there in wanted or (mixed and is_mixture(there, wanted)):
        return ""
    near = max(wanted, key=lambda each: sum(there.get(at) == data for at, data in each.items()))
    wrong = [f"{at} ({len(there[at]) if at in there else 'no'} bytes of {len(near[at]) if at in near else 'no'})"
             for at in sorted(near.keys() | there.keys()) if near.get(at) != there.get(at)]
    return f"{path} is none of versions {list(versions)} of {name}: {', '.join(wrong)}"


def is_mixture(there: Files, wanted: list[Files]) -> bool:
    """Whether each file is that of some version."""
    return there.keys() == wanted[0].keys() and all(any(data == each[at] for each in wanted) for at, data in there.items())


def bytes_of(path: Path) -> Files:
    """What lies there, by paths; nothing of what is not there."""
    if path.is_file():
        return {".": path.read_bytes()}
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
