# SPDX-License-Identifier: Apache-2.0
"""mypy --strict has nothing to say about the package; about what stands on torch, where torch is."""
from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("mypy")
pytest.importorskip("zarr")

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEEDS_TORCH = ("tensors.py", "weights.py", "checkpoint.py", "sharing.py")


def test_types(tmp_path: pathlib.Path) -> None:
    torch = importlib.util.find_spec("torch") is not None
    files = [path for path in sorted((ROOT / "python/penstock").rglob("*.py*"))
             if path.suffix in (".py", ".pyi") and (torch or path.name not in NEEDS_TORCH)]
    assert len(files) > 10
    done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path), *map(str, files)], cwd=ROOT,
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
