# SPDX-License-Identifier: Apache-2.0
"""docs/tutorial/python.md says what happens."""
from __future__ import annotations

import pathlib

import pytest
import support
import tutorial


@pytest.mark.skipif(support.sanitized(), reason="the page's interpreter does not preload a sanitizer")
def test_page(tmp_path: pathlib.Path) -> None:
    assert tutorial.run_page(tutorial.TUTORIALS / "python.md", tmp_path) >= 30
