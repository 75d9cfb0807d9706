# SPDX-License-Identifier: Apache-2.0
"""Stores with an SSD below their memory: what is durable, and what comes back from there."""
from __future__ import annotations

import asyncio
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

import penstock
import support

SSD = {"dram": "16M", "page_size": "64K", "ssd_bytes": "256M", "ssd_segment": "2M"}
VALUES = {f"v/{i:02}": bytes([i]) * 700_000 for i in range(40)}  # 28 MB

WRITER = """
import asyncio, os, signal, sys, penstock
value = bytes(range(256)) * 400
store = penstock.open(sys.argv[1])
store.put("put", value, durable=True)
store.put_many({"many/1": value, "many/2": value[:5]}, durable=True)
with store.reserve("reservation", len(value)) as reservation:
    reservation.write(value)
    reservation.commit(durable=True)
reservations = store.reserve_many({"reservations/1": 3, "reservations/2": 4})
reservations[0].write(b"abc")
reservations[1].write(b"defg")
store.commit_many(reservations, durable=True)
with store.stream("stream", durable=True) as stream:
    stream.write(value)
    stream.commit()

async def main():
    await store.aio.put("aio/put", value, durable=True)
    await store.aio.put_many({"aio/many": value}, durable=True)
    store.put("flushed", value)
    store.delete("put")
    await store.aio.flush()

asyncio.run(main())
store.put("flushed too", value)
store.flush()
print("written", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def mem_url(folder: pathlib.Path) -> str:
    return "mem:?" + "&".join(f"{name}={value}" for name, value in {**SSD, "ssd": folder}.items())


def node_settings(folder: pathlib.Path) -> list[str]:
    pairs = {**SSD, "ssd": folder, "unix": folder.with_suffix(".sock"), "shards": 2}
    return [f"--{name.replace('_', '-')}={value}" for name, value in pairs.items()]


def written_and_killed(url: str) -> None:
    ended = subprocess.run([sys.executable, "-c", WRITER, url], env={**os.environ, "PYTHONPATH": str(support.BUILD / "python")},
                           capture_output=True, text=True, timeout=support.WAIT_S)
    assert ended.stdout == "written\n", ended.stderr


def check_written(store: penstock.Store) -> None:
    value = bytes(range(256)) * 400
    assert store.get_many(["many/1", "many/2", "reservation", "reservations/1", "reservations/2"]) == [value, value[:5], value, b"abc", b"defg"]
    assert store.get_many(["stream", "aio/put", "aio/many", "flushed", "flushed too", "put"]) == [value] * 5 + [None]


def test_what_is_durable_survives(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "ssd"
    written_and_killed(mem_url(folder))
    with penstock.open(mem_url(folder)) as store:
        check_written(store)


def test_what_is_durable_survives_the_node(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "ssd"
    settings = node_settings(folder)
    with support.start_node(*settings) as node:
        written_and_killed(f"node+unix://{folder.with_suffix('.sock')}")
        node.kill()
    with support.start_node(*settings), penstock.open(f"node+unix://{folder.with_suffix('.sock')}") as store:
        check_written(store)


def test_values_come_back_from_the_ssd(tmp_path: pathlib.Path) -> None:
    def check(store: penstock.Store) -> None:
        for key, value in VALUES.items():  # what is written at once has to fit into memory
            store.put(key, value)
        there = store.stat()
        assert there.keys == len(VALUES) and there.ssd_keys > 0 and there.demotions > 0
        assert store.get_many(VALUES) == list(VALUES.values())
        assert store.get("v/03", offset=-5) == bytes([3]) * 5
        there = store.stat()
        assert 0 < there.ssd_hits <= len(VALUES) + 1 and there.fetches >= there.ssd_hits
        assert 1 <= there.write_amplification < 1.5 and there.ssd_live_bytes < there.ssd_capacity_bytes < 256 << 20
        assert "<td>SSD</td>" in there._repr_html_()

        async def read() -> None:  # over a queue, in whose loop the disk has to go on
            for _ in range(2):
                assert await asyncio.gather(*map(store.aio.get, VALUES)) == list(VALUES.values())
                rooms = [bytearray(100_000) for _ in VALUES]
                assert await store.aio.get_into_many(VALUES, rooms, offsets=[5] * len(rooms)) == [100_000] * len(rooms)
                assert all(room == value[:100_000] for room, value in zip(rooms, VALUES.values()))

        asyncio.run(asyncio.wait_for(read(), support.WAIT_S))
        store.delete_prefix("")

    with penstock.open(mem_url(tmp_path / "mem")) as store:
        check(store)
    with penstock.Node(**SSD, ssd=str(tmp_path / "node"), unix=str(tmp_path / "socket"), shards=2) as node:
        with penstock.open(node.urls[0]) as store:
            check(store)


def test_without_an_ssd_nothing_is_durable(store: penstock.Store) -> None:
    async def main() -> None:
        for call in (lambda: store.aio.put("k", b"", durable=True), lambda: store.aio.put_many({"k": b""}, durable=True),
                     store.aio.flush):
            with pytest.raises(penstock.Unsupported):
                await call()

    reservation = store.reserve("reservation", 1)
    reservation.write(b"s")
    calls: list[Callable[[], object]] = [
        lambda: store.put("k", b"", durable=True), lambda: store.put_many({"k": b""}, durable=True), store.flush,
        lambda: reservation.commit(durable=True)]
    for call in calls:
        with pytest.raises(penstock.Unsupported):
            call()
    asyncio.run(main())
    with pytest.raises(penstock.Unsupported), store.stream("k", durable=True) as stream:
        stream.commit()
    assert not store.exists("k") and not store.exists("reservation")
    assert store.stat().reservations == 1
    reservation.commit()
    assert store["reservation"] == b"s"


def test_a_value_that_ends_is_not_durable(tmp_path: pathlib.Path) -> None:
    with penstock.open(mem_url(tmp_path / "ssd") + "&ttl=ends/=60000") as store:
        refused: list[Callable[[], object]] = [
            lambda: store.put("k", b"v", ttl=60, durable=True), lambda: store.stream("k", ttl=60, durable=True),
            lambda: store.put("ends/k", b"v", durable=True), lambda: store.put("ends/k", bytes(100_000), durable=True)]
        for put in refused:
            with pytest.raises(penstock.Invalid):
                put()
        with pytest.raises(penstock.Invalid), store.reserve("ends/k", 1) as reservation:
            reservation.write(b"v")
            reservation.commit(durable=True)
        assert not store.exists("k") and not store.exists("ends/k")
        store.flush()


def test_a_value_that_is_too_large_to_be_durable(tmp_path: pathlib.Path) -> None:
    large = bytes(3_000_000)  # a segment has 2 MiB
    with penstock.open(mem_url(tmp_path / "ssd")) as store:
        for call in (lambda: store.put("k", large, durable=True), lambda: store.put_many({"k": large}, durable=True)):
            with pytest.raises(penstock.Invalid, match="larger than (the store takes|what can be durable here, 2011136)"):
                call()
        assert not store.exists("k")
        store["k"] = large
        with pytest.raises(penstock.Invalid, match="all others are durable"):
            store.flush()
        assert store["k"] == large


def test_a_folder_that_cannot_be_had(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(penstock.Error, match="file"):
        penstock.open(mem_url(tmp_path / "file"))
    os.fstat(0)  # a store that did not open closes nothing of others
