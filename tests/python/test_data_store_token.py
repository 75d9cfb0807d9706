# SPDX-License-Identifier: Apache-2.0
"""penstock.data_store and penstock data between pods whose agents, like the store, ask for a token."""
from __future__ import annotations

import os
import pathlib
import subprocess

from data_store import DataStore, files_of
from pods import Pod
from support import BUILD, clean_environment, secret_file

from penstock import data_store as ds


def test_pods_with_a_token_serve_each_other(tmp_path: pathlib.Path) -> None:
    secret, tree = secret_file(tmp_path / "token", "token-of-the-tests"), tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "a").write_bytes(os.urandom(100_000))
    (tree / "sub/b").write_text("B")
    with DataStore(tmp_path / "data", "--store-address", "127.0.0.1", "--token-file", str(secret)) as store:
        first = 100 + 20 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
        owner, other = (Pod(first + number, tmp_path, store) for number in range(2))
        for pod in (owner, other):
            pod.environment["PENSTOCK_DATA_TOKEN_FILE"] = str(secret)
        held = owner.hold(f"ds.put('svc/m', {str(tree)!r}, locale='local', contents=True)\n")
        try:
            other.run("ds.get('svc/m', 'python')\n")
            assert files_of(other.folder / "python/m") == files_of(tree)
            done = subprocess.run([BUILD / "penstock", "data", "get", "--store", f"http://127.0.0.1:{store.http_port}",
                                   "--rsync", f"127.0.0.1:{store.rsync_port}", "--token-file", str(secret), "svc/m",
                                   str(tmp_path / "command")], capture_output=True, text=True, timeout=60,
                                  env=clean_environment())
            assert done.returncode == 0 and files_of(tmp_path / "command/m") == files_of(tree), done
            key = ds.MetadataClient("default", ds.Server(f"http://127.0.0.1:{store.http_port}", None, secret.read_text().strip()))
            assert key.get_source_ip("svc/m")["ip"] == owner.ip
        finally:
            held.communicate(timeout=60)
            for pod in (owner, other):
                pod.signal_agent(15)


def test_a_pod_with_another_token_is_passed_over(tmp_path: pathlib.Path) -> None:
    secret, others = secret_file(tmp_path / "token", "token-of-the-tests"), secret_file(tmp_path / "other", "another-token")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a").write_text("A")
    with DataStore(tmp_path / "data", "--store-address", "127.0.0.1", "--token-file", str(secret)) as store:
        first = 102 + 20 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
        stranger, friend, getter = (Pod(first + number, tmp_path, store) for number in range(3))
        for pod in (stranger, friend, getter):
            pod.environment["PENSTOCK_DATA_TOKEN_FILE"] = str(secret)
        stranger.environment["PENSTOCK_TOKEN_FILE"] = str(others)
        offer = f"ds.put('svc/m', {str(tmp_path / 'tree')!r}, locale='local', contents=True)\n"
        key = ds.MetadataClient("default", ds.Server(f"http://127.0.0.1:{store.http_port}", None, secret.read_text().strip()))
        held = [stranger.hold(offer)]
        try:
            assert "RsyncError" in getter.run("try:\n    ds.get('svc/m', 'x')\nexcept ds.RsyncError as error:\n    print(repr(error))")
            getter.run(f"ds.put('svc/stored', {str(tmp_path / 'tree')!r}, contents=True)")
            key.publish_key("svc/stored", stranger.ip, src_path=key.get_source_ip("svc/m")["src_path"])  # type: ignore[index, call-overload]
            getter.run("ds.get('svc/stored', 'x')")
            held.append(friend.hold(offer))
            getter.run("ds.get('svc/m', 'x')")
            assert files_of(getter.folder / "x/m") == files_of(getter.folder / "x/stored") == {"a": b"A"}
            told = key.key_info("svc/m")
            assert told and {source["ip"] for source in told["sources"]} == {stranger.ip, friend.ip}
        finally:
            for process in held:
                process.communicate(timeout=60)
            for pod in (stranger, friend, getter):
                pod.signal_agent(15)
