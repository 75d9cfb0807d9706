# SPDX-License-Identifier: Apache-2.0
"""What a node or a master tells over HTTP, and Prometheus' text format, read strictly."""
from __future__ import annotations

import dataclasses
import http.client
import json
import re
from typing import Any

from support import Node, daemon_says

ASK_S_MAX = 30
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? ([0-9.]+(?:e[+-]?[0-9]+)?)$")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')

Labels = tuple[tuple[str, str], ...]


@dataclasses.dataclass
class Family:
    """A metric: its series by their labels. A histogram's: `series` has the counts, by `le` and all other labels."""

    kind: str
    text: str
    series: dict[Labels, float] = dataclasses.field(default_factory=dict)
    sums: dict[Labels, float] = dataclasses.field(default_factory=dict)
    counts: dict[Labels, float] = dataclasses.field(default_factory=dict)

    def buckets(self, **labels: str) -> list[tuple[float, float]]:
        """Bound and count of each bucket, in the order in which they came."""
        found = [(float(dict(of)["le"]), count) for of, count in self.series.items()
                 if {name: value for name, value in of if name != "le"} == labels]
        assert found, (labels, self.series)
        return found

    def value(self, **labels: str) -> float:
        return self.series[tuple(labels.items())]


def labels_of(text: str) -> Labels:
    found, at = [], 0
    while at < len(text):
        match = LABEL.match(text, at)
        assert match, f"no label at {at} of {text!r}"
        found.append((match[1], re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), match[2])))
        at = match.end()
    assert len({name for name, _ in found}) == len(found), text
    return tuple(found)


def check_histogram(name: str, family: Family) -> None:
    assert family.sums.keys() == family.counts.keys(), name
    assert {tuple(label for label in of if label[0] != "le") for of in family.series} == family.counts.keys(), name
    for of, count in family.counts.items():
        buckets = family.buckets(**dict(of))
        bounds, counts = [bound for bound, _ in buckets], [count for _, count in buckets]
        assert bounds == sorted(set(bounds)) and bounds[-1] == float("inf"), (name, of, bounds)
        assert counts == sorted(counts) and counts[-1] == count, (name, of, counts)


def parse(page: str) -> dict[str, Family]:
    """The families of a page; AssertionError for whatever the format forbids, or is not usual in it."""
    families: dict[str, Family] = {}
    name = ""
    assert page.endswith("\n")
    lines = page.split("\n")[:-1]
    for number, line in enumerate(lines):
        if line.startswith("# HELP "):
            name, _, text = line.removeprefix("# HELP ").partition(" ")
            assert re.fullmatch(NAME, name) and name not in families and text, line
            assert lines[number + 1].startswith(f"# TYPE {name} "), line
            continue
        if line.startswith("# TYPE "):
            assert lines[number - 1].startswith(f"# HELP {name} "), line
            kind = line.removeprefix(f"# TYPE {name} ")
            assert kind in ("counter", "gauge", "histogram"), line
            families[name] = Family(kind, lines[number - 1].removeprefix(f"# HELP {name} "))
            continue
        match = SAMPLE.match(line)
        assert match, line
        family, labels, value = families[name], labels_of(match[2] or ""), float(match[3])
        part = match[1].removeprefix(name)
        if family.kind == "histogram":
            to = {"_bucket": family.series, "_sum": family.sums, "_count": family.counts}[part]
        else:
            to = {"": family.series}[part]
        assert labels not in to, line
        to[labels] = value
    for name, family in families.items():
        assert family.series, f"{name} has no series"
        assert (family.kind == "counter") == name.endswith("_total"), name
        if family.kind == "histogram":
            check_histogram(name, family)
    return families


@dataclasses.dataclass
class Row:
    """A line of `penstockd --metrics`."""

    metric: str
    kind: str
    unit: str
    labels: str
    figure: str
    text: str


def rows() -> list[Row]:
    found = [Row(*line.split("\t")) for line in daemon_says("--metrics").splitlines()]
    assert len({row.metric for row in found}) == len(found)
    return found


class Port:
    """An HTTP port of loopback."""

    def __init__(self, port: int, token: str = "") -> None:
        self.port, self.token = port, token

    def ask(self, path: str, method: str = "GET", token: str | None = None) -> tuple[int, str, str]:
        """Status, content type and text."""
        token = self.token if token is None else token
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ASK_S_MAX)
        try:
            connection.request(method, path, headers={"Authorization": f"Bearer {token}"} if token else {})
            answer = connection.getresponse()
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
        finally:
            connection.close()

    def json(self, path: str) -> Any:
        status, kind, text = self.ask(path)
        assert status == 200 and kind == "application/json", (status, kind, text)
        return json.loads(text)


class Watched(Port):
    """That of a node, which says in its log where it listens."""

    def __init__(self, node: Node, token: str = "") -> None:
        node.wait_for("http: listening on ")
        found = re.search(r"http: listening on \S+:(\d+)", node.log())
        assert found, node.log()
        super().__init__(int(found[1]), token)

    def page(self) -> str:
        status, kind, text = self.ask("/metrics")
        assert status == 200 and kind == "text/plain; version=0.0.4; charset=utf-8", (status, kind, text)
        return text

    def metrics(self) -> dict[str, Family]:
        return parse(self.page())
