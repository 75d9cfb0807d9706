# SPDX-License-Identifier: Apache-2.0
"""The build of TensorStore's driver, and arrays to try it with."""
from __future__ import annotations

import pathlib
import re

BUILD = pathlib.Path(__file__).resolve().parents[2] / "build-tensorstore"
DRIVER = BUILD / "driver"
GRID = {"name": "regular", "configuration": {"chunk_shape": [64, 64]}}
SHARDED = {"name": "sharding_indexed", "configuration": {"chunk_shape": [16, 16]}}


def array_spec(name: str, base: dict) -> dict:
    if name == "zarr":
        return {"driver": "zarr", "kvstore": base, "metadata": {"shape": [300, 200], "chunks": [64, 64], "dtype": "<f4"}}
    store, codecs = ({"driver": "ocdbt", "base": base}, ["bytes"]) if name == "ocdbt" else (base, [SHARDED])
    return {"driver": "zarr3", "kvstore": store,
            "metadata": {"shape": [300, 200], "data_type": "float32", "codecs": codecs, "chunk_grid": GRID}}


def setting(build: pathlib.Path, name: str) -> pathlib.Path:
    """A folder that a build folder of cmake's was configured with."""
    return pathlib.Path(re.search(rf"^{name}:\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE)[1])
