# SPDX-License-Identifier: Apache-2.0
"""Dicts, lists and tuples, nested at will, as JSON; what is in them has names, its path joined by dots."""
from __future__ import annotations

from typing import Any, Callable, Container, Mapping

from .safetensors import FormatError

DEPTH_MAX = 100
MISSING = object()


def unused(name: str, taken: Container[str]) -> str:
    """`name`, or what nobody has yet: {"a.b": .., "a": {"b": ..}}."""
    while name in taken:
        name += "'"
    return name


def _is_plain(value: object) -> bool:
    return value is None or type(value) in (bool, int, float, str)


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


def unflatten(node: Any, leaf: Callable[[str, Any], Any], depth: int = 0) -> Any:
    """The tree again.

    Parameters
    ----------
    leaf : callable
        Takes the name and the value of the one member. Returns what it stands for; MISSING: it is left out; None: it is no leaf.
    """
    if depth > DEPTH_MAX or not isinstance(node, dict) or len(node) != 1:
        raise FormatError("damaged state dict: its nesting is malformed")
    [(kind, inner)] = node.items()
    if kind == "v" and _is_plain(inner):
        return inner
    found = leaf(kind, inner)
    if found is not None:
        return found
    if not isinstance(inner, list) or kind not in ("d", "l", "u"):
        raise FormatError("damaged state dict: its nesting is malformed")
    if kind != "d":
        items = [one for one in (unflatten(item, leaf, depth + 1) for item in inner) if one is not MISSING]
        return items if kind == "l" else tuple(items)
    out = {}
    for item in inner:
        if not isinstance(item, list) or len(item) != 2 or type(item[0]) not in (str, int):
            raise FormatError("damaged state dict: its nesting is malformed")
        one = unflatten(item[1], leaf, depth + 1)
        if one is not MISSING:
            out[item[0]] = one
    return out
