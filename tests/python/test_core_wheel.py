# SPDX-License-Identifier: Apache-2.0
"""The wheel as pip builds it: in a clean environment, away from the source tree, with and without UCX."""
from __future__ import annotations

import os
import pathlib
import subprocess
import textwrap

import pytest

import support

pytestmark = pytest.mark.skipif(support.sanitized(), reason="a wheel is built as it is released")

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD_S = 400


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Python of an environment that has the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(["/usr/bin/python3", "-m", "venv", folder / "venv"], check=True, timeout=BUILD_S)
    pip = subprocess.run(
        [folder / "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", ROOT],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BUILD_S, env=support.clean_environment())
    assert pip.returncode == 0, pip.stdout + pip.stderr
    return folder / "venv/bin/python"


def run(python: pathlib.Path, program: str, *arguments: str, **environment: str) -> str:
    """What the program prints, run away from the source tree."""
    done = subprocess.run([python, "-c", textwrap.dedent(program), *arguments], capture_output=True, text=True,
                          timeout=support.WAIT_S, cwd="/", env=support.clean_environment(**environment))
    assert done.returncode == 0, done.stderr
    return done.stdout


PUT_AND_GET = """
    import sys, penstock
    with penstock.open(sys.argv[1]) as store:
        store["k"] = b"value"
        print(store["k"], penstock.__file__)
"""


@pytest.mark.parametrize("kind", ["mem", "unix", "tcp"])
def test_the_wheel_works_alone(python: pathlib.Path, urls: dict[str, str], kind: str) -> None:
    said = run(python, PUT_AND_GET, urls[kind])
    assert said.startswith("b'value'") and str(python.parent.parent) in said


def test_the_wheel_has_the_data_store(python: pathlib.Path) -> None:
    """Without the extra: what needs it says so."""
    said = run(python, """
        from penstock import data_store
        server = data_store.Server("http://127.0.0.1:1")
        for call in (data_store.MetadataClient(server=server).stats, lambda: data_store.RsyncClient(server=server).upload("/etc/hosts", "h")):
            try:
                call()
            except data_store.StoreUnreachable as error:
                print(error)
    """)
    assert "127.0.0.1:1" in said and "penstock[data]" in said, said


def test_without_ucx_it_uses_the_stream(python: pathlib.Path, urls: dict[str, str], tmp_path: pathlib.Path) -> None:
    (tmp_path / "libucp.so.0").touch()  # found first, and no library
    hidden = {"LD_LIBRARY_PATH": str(tmp_path)}
    for url in ("mem:", urls["unix"], urls["tcp"]):
        assert run(python, PUT_AND_GET, url, **hidden).startswith("b'value'")
    said = run(python, """
        import sys, penstock
        try:
            penstock.open(sys.argv[1], transport="ucx")
        except penstock.Unsupported as error:
            print(error)
    """, urls["unix"], **hidden)
    assert "UCX (libucp.so.0) is not installed" in said and urls["unix"] in said


def test_importing_loads_no_ucx(python: pathlib.Path) -> None:
    said = run(python, """
        import penstock
        store = penstock.open()
        store["k"] = b""
        print([line for line in open("/proc/self/maps") if "libuc" in line])
    """)
    assert said == "[]\n"


def test_what_few_machines_have_comes_along(python: pathlib.Path) -> None:
    said = run(python, """
        import pathlib, penstock, subprocess
        folder = pathlib.Path(penstock.__file__).parent
        print([line.split()[-1] for line in open("/proc/self/maps") if "libisal" in line and str(folder) not in line])
        print((folder / "libisal.so.2").is_file(), str(folder / "libisal.so.2") in open("/proc/self/maps").read())
        print(str(folder / "libisal.so.2") in subprocess.run(["ldd", folder / "penstock"], capture_output=True, text=True).stdout)
    """)
    assert said == "[]\nTrue True\nTrue\n"


def test_the_command_line_comes_along(python: pathlib.Path, urls: dict[str, str], tmp_path: pathlib.Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(range(256)) * 5000)

    def command(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        environment = support.clean_environment(PENSTOCK_URL=urls["unix"])
        return subprocess.run([python, "-m", "penstock", *arguments], capture_output=True, timeout=support.WAIT_S,
                              cwd="/", env=environment)

    assert command("put", "wheel/file", str(file)).returncode == 0
    got = command("get", "wheel/file")
    assert (got.returncode, got.stdout) == (0, file.read_bytes())
    assert command("ls", "wheel/").stdout == b"wheel/file\n"
    missing = command("get", "wheel/none")
    assert (missing.returncode, missing.stderr) == (1, b"penstock: key 'wheel/none': not found\n")
    assert command("get").returncode == 2
    assert os.access(python.parent / "penstock", os.X_OK)


def test_fsspec_finds_the_filesystem(python: pathlib.Path) -> None:
    said = run(python, """
        import importlib.metadata
        print([entry.value for entry in importlib.metadata.entry_points(group="fsspec.specs") if entry.name == "penstock"])
    """)
    assert said.strip() == "['penstock.fs:PenstockFileSystem']"
