#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the Bazel overlay against TensorStore's and abseil's own BUILD files, without Bazel.

Every source that a target of ours names is there; every label that it depends on exists and may be
seen; every header that its sources include belongs to the target itself or to one of its direct
dependencies; no dependency is without use. What this cannot see: whether Bazel downloads, compiles
and links it.

    check.py TENSORSTORE_TREE ABSEIL_TREE     (after `overlay TENSORSTORE_TREE`)
"""

from __future__ import annotations

import builtins
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INCLUDE = re.compile(r'^#include [<"]([^>"]+)[>"]', re.MULTILINE)
# What lies outside of the two trees: label, and the headers that it exports.
OUTSIDE = {
    "@penstock//:penstock": ("penstock/penstock.h",),
    "@nlohmann_json//:json": ("nlohmann/json.hpp", "nlohmann/json_fwd.hpp"),
    "@googletest//:gtest": ("gtest/gtest.h", "gmock/gmock.h"),
    "@googletest//:gtest_main": ("gtest/gtest.h", "gmock/gmock.h"),
}
DRIVER = "tensorstore/kvstore/remote_dram"
COMMON = "remote_dram_common"  # what all examples stand on
# Registers a driver, or is the transport beneath @penstock: nothing includes it.
NEVER_INCLUDED = {"//tensorstore/driver/zarr", "//tensorstore/driver/zarr3", f"//{DRIVER}", "@ucx//:ucx"}
RULES_WITH_SOURCES = ("cc_library", "cc_binary", "cc_test")


@dataclass
class Target:
    """A target of a BUILD file."""

    label: str
    rule: str
    sources: list[str]
    headers: list[str]
    deps: list[str]


class Nothing(list[Any]):
    """What is only recorded, wherever its value is used."""

    def __add__(self, other: Any) -> Any:
        return other

    __radd__ = __add__

    def __call__(self, *_: Any, **__: Any) -> Nothing:
        return self

    def __getattr__(self, name: str) -> Nothing:
        return self


class Rule(Nothing):
    """A name that a BUILD file does not define itself. A call with a name makes a target."""

    def __init__(self, rule: str, names: Names) -> None:
        super().__init__()
        self._rule, self._names = rule, names

    def __call__(self, *_: Any, **given: Any) -> Nothing:
        if isinstance(given.get("name"), str):
            self._names.targets.append(Target(
                f"//{self._names.package}:{given['name']}", self._rule, strings(given.get("srcs")),
                strings(given.get("hdrs")) + strings(given.get("textual_hdrs")),
                strings(given.get("deps"))))
        return Nothing()


class Names(dict[str, Any]):
    """The globals of a BUILD file, and the targets that it made."""

    def __init__(self, package: str, folder: Path) -> None:
        super().__init__()
        self.package, self.targets = package, list[Target]()
        self["glob"] = lambda include, **_: sorted(
            str(path.relative_to(folder)) for pattern in include for path in folder.glob(pattern))
        self["select"] = lambda branches, **_: next(iter(branches.values()))

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            return getattr(builtins, name)
        return Rule(name, self)


def strings(value: Any) -> list[str]:
    """The strings of an attribute, which may be none at all."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def full(label: str, package: str) -> str:
    """A label in its long form."""
    if label.startswith(":"):
        label = f"//{package}{label}"
    repository, _, path = label.rpartition("//")
    return label if ":" in path else f"{repository}//{path}:{path.rsplit('/', 1)[-1]}"


def read_build(path: Path, package: str) -> list[Target]:
    """The targets of a BUILD file. Starlark is close enough to Python for these."""
    names = Names(package, path.parent)
    exec(compile(path.read_text(), str(path), "exec"), names)  # a dialect of Python
    return names.targets


def read_tree(tree: Path, repository: str, under: str) -> dict[str, Target]:
    """Every target below a folder of a tree, by label."""
    found = dict[str, Target]()
    for path in sorted((tree / under).rglob("BUILD*")):
        if path.name not in ("BUILD", "BUILD.bazel"):
            continue
        package = str(path.parent.relative_to(tree))
        for target in read_build(path, package):
            target.label = repository + target.label
            target.headers = [f"{package}/{header}" for header in target.headers]
            found[target.label] = target
    return found


def exports(label: str, known: dict[str, Target]) -> list[str]:
    """The headers that a dependency gives to who names it."""
    if label in OUTSIDE:
        return list(OUTSIDE[label])
    return known[label].headers


def check_target(target: Target, tree: Path, known: dict[str, Target]) -> list[str]:
    """What is wrong with a target of ours."""
    faults = []
    package = target.label[2:].split(":")[0]
    deps = [full(dep, package) for dep in target.deps]
    never = {full(label, "") for label in NEVER_INCLUDED}
    for dep in deps:
        if dep not in known and dep not in OUTSIDE and dep not in never:
            faults.append(f"{target.label}: no such target: {dep}")
    deps = [dep for dep in deps if dep in known or dep in OUTSIDE]
    own = {f"{package}/{name}" for name in target.sources} | set(target.headers)
    used = set()
    for name in sorted(own):
        path = tree / name
        if not path.is_file():
            faults.append(f"{target.label}: no such file: {name}")
            continue
        for header in INCLUDE.findall(path.read_text()):
            givers = {dep for dep in deps if header in exports(dep, known)}
            used |= givers
            wanted = header.startswith(("tensorstore/", "absl/", "examples/")) or any(
                header in headers for headers in OUTSIDE.values())
            if wanted and not givers and header not in own:
                faults.append(f"{target.label}: {name} includes {header}, which no direct dependency exports")
    faults += [f"{target.label}: {dep} is not used" for dep in deps
               if dep not in used and dep not in never and exports(dep, known)]
    return faults


def of_overlay(target: Target) -> bool:
    """Whether a target came with the overlay; //examples has others."""
    return target.rule.endswith(RULES_WITH_SOURCES) and (
        target.label.startswith(f"//{DRIVER}:") or target.label == f"//examples:{COMMON}"
        or f":{COMMON}" in target.deps)


def main() -> int:
    """Check both packages that the overlay has changed."""
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    tree = Path(sys.argv[1])
    known = read_tree(tree, "", "tensorstore") | read_tree(tree, "", "examples")
    ours = [target for target in known.values() if of_overlay(target)]
    known |= read_tree(Path(sys.argv[2]), "@abseil-cpp", "absl")
    faults = [fault for target in ours for fault in check_target(target, tree, known)]
    for fault in faults:
        print(fault)
    print(f"{len(ours)} targets, {len(known)} labels known, {len(faults)} faults")
    return 1 if faults or not ours else 0


if __name__ == "__main__":
    sys.exit(main())
