# SPDX-License-Identifier: Apache-2.0
"""docs.py STUB OUT: the docstrings and signatures of _core.pyi as a C header, so that help() and type checkers read one text.

A class gives CORE_DOC_Class, its method or property CORE_DOC_Class_name.
"""
from __future__ import annotations

import ast
import inspect
import pathlib
import sys
from collections.abc import Iterator


def c_string(text: str) -> str:
    """A C literal, one piece for each line."""
    pieces = []
    for line in text.splitlines(keepends=True):
        escaped = line.encode().decode("latin-1").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        pieces.append('"' + "".join(one if one.isascii() else f'\\{ord(one):03o}""' for one in escaped) + '"')
    return " \\\n    ".join(pieces) or '""'


def signature(function: ast.FunctionDef) -> str:
    """As Python reads it from the first line of a builtin's docstring."""
    arguments = function.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    text = ast.unparse(arguments)
    return f"{function.name}({text.replace('self', '$self', 1)})\n--\n\n"


def is_bare_overload(function: ast.FunctionDef) -> bool:
    """One that has its documentation with another one of its name."""
    overloads = any(isinstance(one, ast.Name) and one.id == "overload" for one in function.decorator_list)
    return overloads and ast.get_docstring(function) is None


def texts(stub: str) -> Iterator[tuple[str, str]]:
    """Names of macros and what they stand for."""
    for kind in ast.parse(stub).body:
        if not isinstance(kind, ast.ClassDef):
            continue
        yield kind.name, ast.get_docstring(kind) or ""
        for function in kind.body:
            if not isinstance(function, ast.FunctionDef) or function.name.startswith("_") or is_bare_overload(function):
                continue
            is_property = any(isinstance(one, ast.Name) and one.id == "property" for one in function.decorator_list)
            text = inspect.cleandoc(ast.get_docstring(function) or "")
            yield f"{kind.name}_{function.name}", text if is_property else signature(function) + text


def main() -> None:
    stub, out = map(pathlib.Path, sys.argv[1:])
    lines = ["/* Made from _core.pyi. */"]
    lines += [f"#define CORE_DOC_{name} \\\n    {c_string(text)}" for name, text in texts(stub.read_text("utf-8"))]
    out.write_text("\n\n".join(lines) + "\n", "ascii")


if __name__ == "__main__":
    main()
