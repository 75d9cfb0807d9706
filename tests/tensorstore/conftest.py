# SPDX-License-Identifier: Apache-2.0
"""What all tests share lies in tests/lib."""
from __future__ import annotations

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
pytest.register_assert_rewrite("support", "tsgrpc", "tsgrpc_abuses")
