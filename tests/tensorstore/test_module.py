# SPDX-License-Identifier: Apache-2.0
"""`make tensorstore-wheel`: TensorStore's Python module with the remote_dram driver in it, beside TensorStore's own wheel."""
from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import support
from driver import BUILD, DRIVER, array_spec, setting
from ports import free_port
from support import start_node
from tsgrpc import CLIENT, LOOPBACK, address_of, python  # noqa: F401: a fixture

MODULE_CLIENT = pathlib.Path(__file__).with_name("module_client.py")
LIMIT_S = 120


@pytest.fixture(name="module", scope="module")
def installed(python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:  # noqa: F811
    """The environment in which Python's tensorstore is the wheel that was built, as pip installs it."""
    wheel, = BUILD.glob("tensorstore-*+penstock-*.whl")
    folder = tmp_path_factory.mktemp("module")
    subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps", "--target",
                    folder, wheel], check=True, stdin=subprocess.DEVNULL)
    return os.environ | {"PYTHONPATH": str(folder)}


def run(environment: dict[str, str], *command: object) -> str:
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=LIMIT_S, check=False, env=environment)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("name", ["zarr", "zarr3", "ocdbt"])
def test_module_and_wheel_read_each_other(python: str, module: dict[str, str], name: str) -> None:  # noqa: F811
    with start_node("--listen", "127.0.0.1:0", "--folder", str(support.SHM), "--tsgrpc", LOOPBACK) as node:
        driver = {"driver": "remote_dram", "remote_addr": node.tcp.removeprefix("node://")}
        sides = {"module": (driver, module), "wheel": ({"driver": "tsgrpc_kvstore", "address": address_of(node)}, dict(os.environ))}
        for writer, reader in (("module", "wheel"), ("wheel", "module"), ("module", "module")):
            for who, what in ((writer, "array_write"), (reader, "array_check")):
                store, environment = sides[who]
                spec = array_spec(name, store | {"path": f"{writer} to {reader}/"})
                run(environment, python, "-B", CLIENT, what, json.dumps(spec))
        node.stop()


def test_server_writer_and_reader(python: str, module: dict[str, str]) -> None:  # noqa: F811
    """Three processes of Python alone: what one has written another reads from a third's memory, when the first is gone."""
    address = f"127.0.0.1:{free_port()}"
    with subprocess.Popen([python, "-B", MODULE_CLIENT, "serve", address], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True, env=module) as server:
        try:
            assert server.stdout and server.stdout.readline() == "serving\n"
            run(module, python, "-B", MODULE_CLIENT, "write", address)
            run(module, python, "-B", MODULE_CLIENT, "read", address)
            stored = json.loads(server.communicate("end\n", timeout=LIMIT_S)[0].splitlines()[0])  # UCX may say something, too
        finally:
            server.kill()
    assert {"of the server", "test_key_1", "zarr/.zarray", "zarr/0.0.0", "zarr/1.0.0", "zarr3/zarr.json"} <= set(stored), stored
    assert server.returncode == 0


def test_keys(python: str, module: dict[str, str]) -> None:  # noqa: F811
    with start_node("--listen", "127.0.0.1:0", "--folder", str(support.SHM)) as node:
        run(module, python, "-B", MODULE_CLIENT, "keys", node.tcp.removeprefix("node://"))
        node.stop()


def test_reads_of_a_batch_share_requests(python: str, module: dict[str, str]) -> None:  # noqa: F811
    count = 2000
    with start_node("--listen", "127.0.0.1:0", "--folder", str(support.SHM)) as node:
        said = run(module | {"TENSORSTORE_VERBOSE_LOGGING": "remote_dram"}, python, "-B", MODULE_CLIENT, "batch",
                   node.tcp.removeprefix("node://"), count)
        node.stop()
    requests = re.findall(r"ReadRemote: .* found=yes request=([0-9a-f]{12})", said)
    assert len(requests) == count and len(set(requests)) < count, said[-2000:]
    print(f"{count} reads in {len(set(requests))} requests")


def test_tensorstore_s_own_tests(python: str, module: dict[str, str]) -> None:  # noqa: F811
    """Those of its source distribution, but for what the module leaves out and what needs further packages."""
    tests = setting(DRIVER, "LIBRARIES") / "tensorstore" / "python" / "tensorstore" / "tests"
    packages = pathlib.Path(python).parents[1] / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    left_out = [f"--ignore={tests / name}" for name in ("experimental_test.py", "virtual_chunked_test.py")]
    said = run(module | {"PYTHONPATH": f"{module['PYTHONPATH']}:{packages}"}, sys.executable, "-B", "-m", "pytest", "-q",
               "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", tests, "-o", "python_files=*_test.py", *left_out, tests)
    assert int(re.search(r"(\d+) passed", said)[1]) > 300, said
