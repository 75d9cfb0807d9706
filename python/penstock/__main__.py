"""``python -m penstock``: the command line."""
from __future__ import annotations

import os
import pathlib
import shutil
import sys


def main() -> None:
    """Become the program `penstock`: its flags, its output, its exit codes. A wheel carries it beside this file."""
    beside = pathlib.Path(__file__).with_name("penstock")
    program = str(beside) if beside.exists() else shutil.which("penstock")
    if not program:
        sys.exit("penstock: the command line is not installed")
    os.execv(program, ["penstock", *sys.argv[1:]])


if __name__ == "__main__":
    main()
