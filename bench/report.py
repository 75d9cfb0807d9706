# SPDX-License-Identifier: Apache-2.0
"""What the figures come to: a Markdown table, worst first, kept in a file between two marks."""

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from figures import Figure

BEGIN = "<!-- figures: begin, written by make bench -->"
END = "<!-- figures: end -->"
SCALES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class Result:
    """The medians of one figure, or the reason why there are none."""

    figure: Figure
    ours: float = 0.0
    peer: float = 0.0
    runs: int = 0
    error: str = ""

    @property
    def ratio(self) -> float:
        """How many times better ours is; 0 when it was not taken."""
        return 0.0 if self.error else self.figure.ratio(self.ours, self.peer)

    @property
    def good(self) -> bool:
        """Whether it reaches its bar."""
        return not self.error and self.ratio >= self.figure.bar

    def json(self) -> dict[str, object]:
        """The figure's last line, in the form that all figures share."""
        return {
            "name": self.figure.name, "ours": self.ours, "peer": self.peer,
            "unit": self.figure.unit, "ratio": round(self.ratio, 3), "runs": self.runs,
        }


def quantity(value: float, unit: str) -> str:
    """A value with its unit, scaled for reading: 1.23 GB/s."""
    if unit in ("ops/s", "B/s", "B"):
        for scale, prefix in SCALES:
            if value >= scale:
                return f"{value / scale:.2f} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def row(result: Result) -> str:
    """One line of the table."""
    figure = result.figure
    if result.error:
        cells = ["not taken", "", "", f"{figure.bar:g}", "no"]
    else:
        cells = [quantity(result.ours, figure.unit), quantity(result.peer, figure.unit),
                 f"{result.ratio:.2f}", f"{figure.bar:g}", "yes" if result.good else "no"]
    return f"| {figure.name} | {figure.against} | " + " | ".join(cells) + " |"


def machine(command: str) -> str:
    """The machine and the day, in one line."""
    cpus = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.+)$", cpus, re.MULTILINE)
    return (f"{os.cpu_count()} cores, {model[1] if model else platform.machine()}, "
            f"Linux {platform.release()}, {date.today().isoformat()}, `{command}`.")


def table(results: Sequence[Result], command: str) -> str:
    """The whole section; sorted by how far each ratio lies above its bar, the worst first, and last what has no bar."""
    ranked = sorted(results, key=lambda result: result.ratio / (result.figure.bar or 1e-9))
    head = ["| figure | against | ours | peer | ratio | at least | met |",
            "|---|---|---:|---:|---:|---:|---|"]
    return "\n".join([machine(command), "", *head, *map(row, ranked)]) + "\n"


def write(path: Path, section: str) -> None:
    """Replace what lies between the marks of `path`; a file without them gets both at its end."""
    text = path.read_text() if path.exists() else "# Performance\n"
    marked = f"{BEGIN}\n{section}{END}\n"
    begin, end = text.find(BEGIN), text.find(END)
    if 0 <= begin < end:
        text = text[:begin] + marked + text[end + len(END):].removeprefix("\n")
    else:
        text = text.rstrip("\n") + "\n\n" + marked
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
