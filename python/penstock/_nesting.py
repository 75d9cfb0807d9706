# SPDX-License-Identifier: Apache-2.0
"""Dicts, lists and tuples, nested at will, as JSON; what is in them has names, its path joined by dots."""
from __future__ import annotations

import collections
from typing import Any, Callable, Container, Iterator, Mapping, Union

from .safetensors import FormatError

DEPTH_MAX = 100
MISSING = object()
MALFORMED = "damaged state dict: its nesting is malformed"
Path = tuple[Union[str, int], ...]


def unused(name: str, taken: Container[str]) -> str:
    """`name`, or what nobody has yet: {"a.b": .., "a": {"b": ..}}."""
    while name in taken:
        name += "'"
    return name


def _is_plain(value: object) -> bool:
    return value is None or type(value) in (bool, int, float, str)


def _is_item(value: object) -> bool:
    """Whether it is a dict's key and value."""
    return isinstance(value, list) and len(value) == 2 and type(value[0]) in (str, int)


def flatten(value: Any, leaf: Callable[[Any, str], Any], path: str = "", depth: int = 0) -> Any:
    """The JSON form of a tree.

    Parameters
    ----------
    leaf : callable
        Takes a value and its path. Returns its JSON form, an object of one member that is none of "v", "d", "l" and "u", or None:
        it is no leaf.
    """
    if depth > DEPTH_MAX:
        raise ValueError(f"state dict nested deeper than {DEPTH_MAX} at {path!r}")
    found = leaf(value, path)
    if found is not None:
        return found
    if _is_plain(value):
        return {"v": value}
    if isinstance(value, Mapping):
        if not all(type(key) in (str, int) for key in value):
            raise TypeError(f"state dict: a key of {path!r} is neither text nor a whole number")
        items = [[key, flatten(inner, leaf, f"{path}.{key}" if path else str(key), depth + 1)] for key, inner in value.items()]
        return {"d": items}
    if type(value) in (list, tuple):
        inner = [flatten(one, leaf, f"{path}.{i}" if path else str(i), depth + 1) for i, one in enumerate(value)]
        return {"l" if type(value) is list else "u": inner}
    raise TypeError(f"state dict: {path!r} is a {type(value).__name__} and would need pickling")


def leaves(node: Any, path: Path = ()) -> Iterator[tuple[str, Path]]:
    """The names that a tree's leaves have in its JSON form, and the keys that lead to each."""
    if len(path) > DEPTH_MAX or not isinstance(node, dict) or len(node) != 1:
        raise FormatError(MALFORMED)
    [(kind, inner)] = node.items()
    if kind not in ("d", "l", "u"):
        if kind != "v" and isinstance(inner, str):
            yield inner, path
        return
    if not isinstance(inner, list) or kind == "d" and not all(map(_is_item, inner)):
        raise FormatError(MALFORMED)
    for key, one in inner if kind == "d" else enumerate(inner):
        yield from leaves(one, (*path, key))


def _joined(path: Path) -> str:
    """As `flatten` joins it; what has no name is called a tensor."""
    name = ""
    for key in path:
        name = f"{name}.{key}" if name else str(key)
    return name or "tensor"


def partners(targets: Mapping[str, Path], stored: Mapping[str, Path]) -> dict[str, str]:
    """By name, what is stored for each target: what joins to the same name; of several, what has the same path."""
    there: dict[str, list[str]] = {}
    for name, path in stored.items():
        there.setdefault(_joined(path), []).append(name)
    count = collections.Counter(map(_joined, targets.values()))
    out = {}
    for name, path in targets.items():
        found = there.get(_joined(path), [])
        if len(found) > 1 or found and count[_joined(path)] > 1:
            found = [one for one in found if stored[one] == path]
            if not found:
                raise ValueError(f"state dict: several tensors are called {_joined(path)!r}, and none lies where one to fill does")
        if found:
            out[name] = found[0]
    return out


def unflatten(node: Any, leaf: Callable[[str, Any], Any], depth: int = 0) -> Any:
    """The tree again.

    Parameters
    ----------
    leaf : callable
        Takes the name and the value of the one member. Returns what it stands for; MISSING: it is left out; None: it is no leaf.
    """
    if depth > DEPTH_MAX or not isinstance(node, dict) or len(node) != 1:
        raise FormatError(MALFORMED)
    [(kind, inner)] = node.items()
    if kind == "v" and _is_plain(inner):
        return inner
    found = leaf(kind, inner)
    if found is not None:
        return found
    if not isinstance(inner, list) or kind not in ("d", "l", "u"):
        raise FormatError(MALFORMED)
    if kind != "d":
        items = [one for one in (unflatten(item, leaf, depth + 1) for item in inner) if one is not MISSING]
        return items if kind == "l" else tuple(items)
    out = {}
    for item in inner:
        if not _is_item(item):
            raise FormatError(MALFORMED)
        one = unflatten(item[1], leaf, depth + 1)
        if one is not MISSING:
            out[item[0]] = one
    return out
