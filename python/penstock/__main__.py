# SPDX-License-Identifier: Apache-2.0
"""``python -m penstock``: the command line."""
from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import sys

from . import files
from .errors import Corrupt, Error, Invalid, NoSpace, NotAllowed, NotFound, TimedOut, Unreachable
from .store import open as open_store

CODES: tuple[tuple[type[Error], int], ...] = (
    (NotFound, 1), (Invalid, 2), (NoSpace, 3), (NotAllowed, 4), (Unreachable, 5), (TimedOut, 5), (Corrupt, 6))
OTHER = 7
# What only the program does that the environment asks for.
PROGRAM_S = ("PENSTOCK_TLS", "PENSTOCK_TLS_CA", "PENSTOCK_TLS_CERTIFICATE", "PENSTOCK_TLS_KEY", "PENSTOCK_TLS_NAME", "TRACEPARENT")


def shows_progress(arguments: list[str]) -> bool:
    """Whether this is ``put KEY FILE`` or ``get KEY FILE``, with neither flags nor variables of the program's, where a bar of
    tqdm can be shown."""
    return (len(arguments) == 3 and arguments[0] in ("put", "get") and not any(one.startswith("-") for one in arguments)
            and "PENSTOCK_URL" in os.environ and not any(name in os.environ for name in PROGRAM_S)
            and sys.stderr.isatty() and importlib.util.find_spec("tqdm") is not None)


def move_file(what: str, key: str, path: str) -> int:
    """The same as the program's command. Its exit code."""
    try:
        with open_store(os.environ["PENSTOCK_URL"], secret_file=os.environ.get("PENSTOCK_SECRET_FILE")) as store:
            if what == "put":
                files.put_file(store, key, path)
            else:
                files.get_file(store, key, path)
    except Error as error:
        print(f"penstock: {error}", file=sys.stderr)
        return next((code for kind, code in CODES if isinstance(error, kind)), OTHER)
    except OSError as error:
        print(f"penstock: {path}: {error.strerror}", file=sys.stderr)
        return OTHER
    return 0


def main() -> None:
    """Become the program `penstock`: its flags, its output, its exit codes. A wheel carries it beside this file."""
    if shows_progress(sys.argv[1:]):
        sys.exit(move_file(*sys.argv[1:]))
    beside = pathlib.Path(__file__).with_name("penstock")
    program = str(beside) if beside.exists() else shutil.which("penstock")
    if not program:
        sys.exit("penstock: the command line is not installed")
    os.execv(program, ["penstock", *sys.argv[1:]])


if __name__ == "__main__":
    main()
