# SPDX-License-Identifier: Apache-2.0
"""vLLM's own tiers of KV offloading on CPU, with penstock as the secondary one."""
from __future__ import annotations

import importlib.util
import itertools
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import penstock
import pytest
import support
from members import master, member

pytest.importorskip("torch", reason="torch is not installed")
if importlib.util.find_spec("vllm") is None:
    pytest.skip("vllm is not installed", allow_module_level=True)

ROOT = pathlib.Path(__file__).resolve().parents[2]
OURS = ROOT / "integrations" / "engines"
sys.path.insert(0, str(OURS))

from penstock_engines import pages  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.events import OffloadingEventsTracker  # noqa: E402
from vllm.v1.kv_offload.base import LookupResult, Medium, ReqContext, ScheduleEndContext, make_offload_key  # noqa: E402
from vllm.v1.kv_offload.config import (OffloadingCacheConfig, OffloadingConfig, OffloadingGroupConfig,  # noqa: E402
                                       OffloadingModelConfig, OffloadingParallelConfig)
from vllm.v1.kv_offload.tiering.base import JobResult, TransferJob  # noqa: E402
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec  # noqa: E402

CHUNK = 16 * 1024
COUNT = 9
HELD = 32  # chunks of the tier in host memory

PATIENT = ("--member-ttl-ms=10000", "--lease-ms=3000", "--lease-margin-ms=1000", "--incomplete-ms=500")

numbers = itertools.count()


def key(number: int) -> Any:
    return make_offload_key(number.to_bytes(32, "big"), 0)


def chunk(number: int, seed: int = 0) -> bytes:
    return np.random.default_rng([number, seed]).bytes(CHUNK)


class Engine:
    """What a scheduler of vLLM has of offloading: the tier in host memory, and penstock below it."""

    def __init__(self, url: str, *, model: str = "a/model", dtype: str = "bfloat16", tp: int = 1, size: int = CHUNK, held: int = HELD,
                 **more: Any) -> None:
        tier = {"type": "PenstockTier", "module_path": "penstock_engines.vllm", "url": url} | more
        self.spec = TieringOffloadingSpec(OffloadingConfig(
            groups=(OffloadingGroupConfig(16, ("layer.0", "layer.1"), 0),), worker_kv_bytes_per_block=size // tp,
            enable_kv_cache_events=True, extra_config={"cpu_bytes_to_use": held * size, "secondary_tiers": [tier]},
            engine_id=f"penstock-{os.getpid()}-{next(numbers)}", model=OffloadingModelConfig(model, dtype),
            cache=OffloadingCacheConfig(16, 1), parallel=OffloadingParallelConfig(0, tp, tp, 1, 1, 1, 0, 1, None, False)))
        self.manager = self.spec.get_manager()
        self.tier, = self.manager.secondary_tiers
        self.memory = self.manager.primary_tier.get_kv_memoryview()

    def step(self) -> None:
        self.manager.on_schedule_end(ScheduleEndContext((), ()))

    def until_idle(self) -> None:
        def idle() -> bool:
            self.step()
            return not self.manager.has_pending_work()
        support.wait_until("no job is underway", idle)

    def request(self) -> ReqContext:
        request = ReqContext(f"request-{next(numbers)}")
        self.manager.on_new_request(request)
        return request

    def put(self, chunks: dict[int, bytes]) -> None:
        """As when a GPU has written chunks to host memory: they go on to the store."""
        request = self.request()
        out = self.manager.prepare_store([key(number) for number in chunks], request)
        flat = self.memory.cast("B")
        for number, place in zip(chunks, out.store_spec.chunk_ids, strict=True):
            flat[int(place) * CHUNK:(int(place) + 1) * CHUNK] = chunks[number]
        flat.release()
        self.manager.complete_store(out.keys_to_store, request)
        self.manager.on_request_finished(request)
        self.until_idle()

    def get(self, wanted: Sequence[int]) -> dict[int, bytes]:
        """The chunks that a request finds, by steps of the scheduler, as it reads them from host memory."""
        request, found, open_ = self.request(), {}, set(wanted)

        def resolved() -> bool:
            for number in sorted(open_):
                answer = self.manager.lookup(key(number), request)
                if answer in (LookupResult.HIT, LookupResult.MISS):
                    open_.discard(number)
                    if answer is LookupResult.HIT:
                        found[number] = self.read(number, request)
            self.step()
            return not open_
        support.wait_until("each chunk is there or missing", resolved)
        self.manager.on_request_finished(request)
        self.until_idle()
        return found

    def read(self, number: int, request: ReqContext) -> bytes:
        place, = self.manager.prepare_load([key(number)], request).chunk_ids
        flat = self.memory.cast("B")
        read = bytes(flat[int(place) * CHUNK:(int(place) + 1) * CHUNK])
        flat.release()
        self.manager.complete_load([key(number)], request)
        return read

    def close(self) -> None:
        self.manager.shutdown()


@pytest.fixture
def node() -> Iterator[support.Node]:
    with support.start_node("--dram", "64M", "--listen", "127.0.0.1:0", "--class", "vllm/=cache") as node:
        yield node


def url_of(node: support.Node) -> str:
    return node.tcp.replace("node://", "penstock://") + "?lane=tcp"


def test_another_engine_finds_chunks(node: support.Node) -> None:
    engine, other = Engine(url_of(node)), Engine(url_of(node), enable_kv_events=True)
    chunks = {number: chunk(number) for number in range(COUNT)}
    assert engine.get([0]) == {}
    engine.put(chunks)
    assert other.get([*chunks, 99]) == chunks
    assert engine.get(list(chunks)) == chunks  # from host memory
    other.put({50: chunk(50)})
    told = [event for event in other.manager.take_events() if event.medium is not Medium.CPU]
    assert [event.keys for event in told] == [[key(50)]] and not told[0].removed
    sent, = OffloadingEventsTracker(other.spec.kv_events_config).take_events(told)  # what vLLM makes of them
    assert (sent.medium, sent.block_hashes) == ("STORAGE", [50])
    for one in (engine, other):
        one.close()


def test_more_chunks_than_host_memory_has(node: support.Node) -> None:
    engine = Engine(url_of(node), held=4)
    chunks = {number: chunk(number) for number in range(40)}
    for number, value in chunks.items():
        engine.put({number: value})
    for number in chunks:
        assert engine.get([number]) == {number: chunks[number]}
    engine.close()


def test_other_settings_share_nothing(node: support.Node) -> None:
    engines = [Engine(url_of(node)), Engine(url_of(node), model="another/model"), Engine(url_of(node), dtype="float16"),
               Engine(url_of(node), tp=2)]
    for seed, engine in enumerate(engines):
        assert engine.get([0]) == {}
        engine.put({0: chunk(0, seed)})
    for seed, engine in enumerate(engines):
        engine.manager.reset_cache()
        engine.manager.on_reset_flushed()
        assert engine.get([0]) == {0: chunk(0, seed)}
        engine.close()


def test_chunks_that_are_none(node: support.Node) -> None:
    engine = Engine(url_of(node))
    chunks = {number: chunk(number) for number in range(3)}
    engine.put(chunks)
    with penstock.open(node.tcp) as store:
        names = sorted(store.keys("vllm/"))
        assert len(names) == 3 and names[1].startswith("vllm/a_model_") and names[1].endswith(f"/{1:064x}.bin")
        for bad in (b"", b"x", chunks[1][:-1], chunks[1] + b"x"):
            store[names[1]] = bad
            other = Engine(url_of(node))
            assert other.get([0, 1, 2]) == {0: chunks[0], 2: chunks[2]}  # those that arrived are used
            other.close()
    engine.close()


def test_chunks_of_others_are_not_sent_again(node: support.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, other = Engine(url_of(node)), Engine(url_of(node))
    engine.put({0: chunk(0), 2: chunk(2)})
    sent, put = [], other.tier._pages.put
    monkeypatch.setattr(other.tier._pages, "put", lambda names, values: [sent.extend(names), put(names, values)][1])
    other.put({number: chunk(number) for number in range(4)})
    assert [name.rpartition("/")[2] for name in sent] == [f"{number:064x}.bin" for number in (1, 3)]
    assert engine.get([0, 1, 2, 3]) == {number: chunk(number) for number in range(4)}
    for one in (engine, other):
        one.close()


OTHER = """
import sys
sys.path[:0] = {paths!r}
from test_integration_vllm import COUNT, Engine, chunk
engine = Engine({url!r})
engine.put({{number: chunk(number) for number in range(COUNT)}})
engine.close()
"""


def test_two_processes_and_a_killed_node_of_a_pool(tmp_path: pathlib.Path) -> None:
    with master(tmp_path, *PATIENT) as m, member(m, "--class", "vllm/=cache") as one, member(m, "--class", "vllm/=cache") as two:
        m.has(2)
        paths = [str(ROOT / "tests/python"), str(ROOT / "tests/lib"), str(support.BUILD / "python")]
        subprocess.run([sys.executable, "-c", OTHER.format(paths=paths, url=f"pool://{m.address}")], check=True, timeout=120,
                       stdin=subprocess.DEVNULL, env=dict(os.environ))
        engine = Engine(f"pool://{m.address}")
        chunks = {number: chunk(number) for number in range(COUNT)}
        assert engine.get(list(chunks)) == chunks
        engine.put({100 + number: chunk(number) for number in range(COUNT)})
        one.kill()
        other = Engine(f"pool://{m.address}")
        wanted = chunks | {100 + number: chunk(number) for number in range(COUNT)}
        found = other.get(list(wanted))
        assert len(found) < len(wanted)  # the node had some of them
        assert found.items() <= wanted.items()
        for each in (engine, other):
            each.close()
        two.stop()


def test_killed_node(node: support.Node, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "CALL_S", 1.0)
    engine, other = Engine(url_of(node)), Engine(url_of(node))
    chunks = {number: chunk(number) for number in range(COUNT)}
    engine.put(chunks)
    node.kill()
    assert other.get(list(chunks)) == {}
    engine.put({50: chunk(50)})  # stays in host memory
    assert engine.get([50]) == {50: chunk(50)}
    assert len([record for record in caplog.records if record.name == "penstock.engines"]) == 2  # one of each engine
    for one in (engine, other):
        one.close()


def test_a_node_that_ends_between_look_up_and_load(node: support.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "CALL_S", 1.0)
    engine, other = Engine(url_of(node)), Engine(url_of(node))
    engine.put({0: chunk(0)})
    request = other.request()

    def is_found() -> bool:
        other.tier.on_schedule_end(ScheduleEndContext((), ()))
        return other.tier.lookup(key(0), request) is LookupResult.HIT
    support.wait_until("the chunk is found", is_found)
    node.kill()
    assert other.manager.lookup(key(0), request) is LookupResult.HIT_PENDING
    other.until_idle()
    assert other.manager.lookup(key(0), request) is LookupResult.MISS  # so vLLM computes it and does not ask again
    other.manager.on_request_finished(request)
    for one in (engine, other):
        one.close()


class Stuck:
    """A tier, all of whose threads for stores are busy until told otherwise, with as many stores behind them."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tier, self.go, self.puts = engine.tier, threading.Event(), 0
        monkeypatch.setattr(self.tier._pages, "put", self.put)
        self.jobs = [self.job(number, promotes=False) for number in range(8)]
        for job in self.jobs:
            self.tier.submit_store(job)
        support.wait_until("all threads are busy", lambda: self.puts == 4)

    def job(self, number: int, *, promotes: bool) -> TransferJob:
        return TransferJob(number, [key(number)], np.array([number], np.int32), promotes, ReqContext("stuck"))

    def put(self, names: list[str], places: list[Any]) -> list[bool]:
        self.puts += 1
        assert self.go.wait(60)
        if self.puts == 8:
            raise RuntimeError("out of luck")
        return [True] * len(names)


def test_loads_do_not_wait_for_stores(node: support.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(url_of(node))
    engine.put({20: chunk(20)})
    stuck = Stuck(engine, monkeypatch)
    results: list[JobResult] = []
    try:
        engine.tier.submit_load(stuck.job(20, promotes=True))
        support.wait_until("the load has ended", lambda: results.extend(engine.tier.get_finished_jobs()) or bool(results))
        assert [(result.job_id, result.success) for result in results] == [(20, True)]
    finally:
        stuck.go.set()
    engine.tier.drain_jobs()
    results = list(engine.tier.get_finished_jobs())
    assert {result.job_id for result in results} == set(range(8)) and not all(result.success for result in results)
    engine.close()


def test_ends_without_the_stores_that_have_not_begun(node: support.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(url_of(node))
    stuck = Stuck(engine, monkeypatch)
    threading.Timer(1, stuck.go.set).start()
    engine.close()
    assert stuck.puts == 4
    engine.tier.drain_jobs()
    engine.tier.shutdown()


def test_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    with pytest.raises(ValueError, match="no url, and PENSTOCK_URL is not set"):
        Engine("")
    with pytest.raises(penstock.Error):
        Engine("node+unix:///nothing/there")


@pytest.mark.parametrize("wrong, said", [({"url": 7000}, "address is a text, not 7000"), ({"threads": 0}, "threads are a number from 1 on, not 0"),
                                         ({"threads": "4"}, "threads are a number from 1 on, not '4'"), ({"threads": True}, "not True")])
def test_settings_of_a_wrong_type(node: support.Node, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Engine(**{"url": url_of(node)} | wrong)
