# SPDX-License-Identifier: Apache-2.0
"""The quick-start notebook runs from its first cell to its last, and is kept without what it printed."""
from __future__ import annotations

import pathlib
import sys

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("zarr")

import support  # noqa: E402

NOTEBOOK = pathlib.Path(__file__).resolve().parents[2] / "examples/quickstart.ipynb"


def test_quickstart(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(support.BUILD / "python"))
    monkeypatch.setenv("JUPYTER_PATH", str(pathlib.Path(sys.prefix) / "share/jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output["data"] for cell in notebook.cells for output in cell.get("outputs", []) if "data" in output]
    assert len(shown) >= 6 and "True" in shown[2]["text/plain"]
    assert any("<table" in data.get("text/html", "") for data in shown)
