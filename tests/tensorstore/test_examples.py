# SPDX-License-Identifier: Apache-2.0
"""examples/: the scripts that a newcomer runs."""
from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest
from ports import free_port

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
BUILD_S = 1500  # the first time makes TensorStore's arrays


def run(script: str, **environment: str) -> str:
    done = subprocess.run([EXAMPLES / script, str(free_port())], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=BUILD_S, check=False, env=os.environ | environment)
    assert done.returncode == 0 and done.stdout.endswith("PASSED\n"), done
    return done.stdout


def test_server_and_client() -> None:
    said = run("test_remote_dram.sh")
    for line in ("zarr array 'small' (4x4x3) verified", "zarr3 array 'small' (4x4x3) verified",
                 "Value: Hello from TensorStore remote DRAM!", "Server stored key-value pair: key 'test_key_1', 35 bytes",
                 "11 keys stored", "Client operations completed successfully!", "Server completed successfully!"):
        assert line in said, said


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="network namespaces need root and iproute2")
def test_two_nodes() -> None:
    said = run("run_2node_test.sh", MEBIBYTES="64")
    for line in ("zarr array 'two_node' (8x6x4) verified", "zarr3 array 'two_node' (8x6x4) verified",
                 "zarr array 'large' (64x512x512) verified"):
        assert line in said, said
    sent = int(said.rsplit("node 2 sent ", 1)[1].split()[0])
    assert sent > 64 << 20
