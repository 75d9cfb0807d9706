# SPDX-License-Identifier: Apache-2.0
"""vLLM's KV cache in a store: a secondary tier of its ``OffloadingConnector``, below the tier in host memory."""
from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

import numpy as np
from vllm.logger import init_logger
from vllm.v1.kv_offload.base import (Locality, LookupResult, Medium, OffloadingEvent, OffloadKey, ReqContext,
                                     RequestOffloadingContext, ScheduleEndContext)
from vllm.v1.kv_offload.file_mapper import FileMapper
from vllm.v1.kv_offload.tiering.async_lookup import AsyncLookupManager
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

from .pages import Pages, address_of

if TYPE_CHECKING:
    from vllm.v1.kv_offload.base import OffloadingSpec
    from vllm.v1.kv_offload.tiering.backpressure import BackpressureDetector

logger = init_logger(__name__)

THREADS = 4


class _Lookups(AsyncLookupManager):
    """Asks the store for the chunks of a scheduler's step at once, on a thread of its own."""

    def __init__(self, tier_type: str, there: Callable[[Sequence[OffloadKey]], list[bool]]) -> None:
        self._there = there
        super().__init__(tier_type)

    def batch_lookup(self, keys: list[OffloadKey], req_context: ReqContext) -> Iterable[bool]:
        return self._there(keys)


class PenstockTier(SecondaryTierManager):
    """Chunks of KV in a store, moved from and to vLLM's tier in host memory without a copy.

    A chunk's key is the name that vLLM's file tier would give its file, below ``vllm/``: it has model, dtype, layers, parallelism and
    the hash of all tokens up to there. So engines share what fits them, and nothing else. A chunk of another size is missing.

    Parameters
    ----------
    offloading_spec, primary_kv_view, tier_type, backpressure_detector
        vLLM's.
    url : str
        A store's; without it that of ``PENSTOCK_URL``.
    secret_file : str, optional
        By default what ``PENSTOCK_SECRET_FILE`` names.
    threads : int
        How many loads are underway at a time, and how many stores.
    enable_kv_events : bool
        Tell vLLM's KV events of chunks that were stored.
    locality : str, optional
        ``LOCAL`` or ``REMOTE``: what vLLM calls the store in events and filters of requests.

    Raises
    ------
    ValueError
        There is no URL, or a setting is of a wrong type.
    penstock.Error
        The store cannot be opened.
    """

    medium = Medium.STORAGE  # vLLM has no word in its KV events for a tier that names none

    def __init__(self, offloading_spec: OffloadingSpec, primary_kv_view: memoryview, tier_type: str, url: str = "",
                 secret_file: str | None = None, threads: int = THREADS, enable_kv_events: bool = False, locality: str | None = None,
                 backpressure_detector: BackpressureDetector | None = None) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        address = address_of(url, "the tier has no url")
        if type(threads) is not int or threads < 1:
            raise ValueError(f"the tier's threads are a number from 1 on, not {threads!r}")
        self.locality = Locality(locality) if locality is not None else None
        self._names = FileMapper.from_offloading_spec("vllm", offloading_spec, offloading_spec.blocks_per_chunk, parallel_agnostic=True)
        self._base = np.frombuffer(primary_kv_view, np.uint8).ctypes.data
        self._pages = Pages(address, "", secret_file=secret_file)
        self._pages.register(self._base, primary_kv_view.nbytes)
        self._tells = enable_kv_events and offloading_spec.kv_events_config.enable_kv_cache_events
        self._events: list[OffloadingEvent] = []
        self._running: set[Future[None]] = set()
        self._done: queue.SimpleQueue[tuple[TransferJob, list[bool], float]] = queue.SimpleQueue()
        # A request waits for its load, and nobody for a store: so none waits behind stores.
        self._loads, self._stores = (ThreadPoolExecutor(threads, f"penstock-vllm-{what}") for what in ("load", "store"))
        self._lookups = _Lookups(tier_type, lambda keys: self._pages.exists(self._named(keys)))

    # ---- what vLLM asks of a request ----

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        return RequestOffloadingContext()

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        there = self._lookups.lookup(key, req_context)
        return LookupResult.RETRY if there is None else LookupResult.HIT if there else LookupResult.MISS

    def on_request_finished(self, req_context: ReqContext) -> None:
        self._lookups.cleanup(req_context.req_id)

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        self._lookups.flush()

    # ---- jobs ----

    def submit_store(self, job_metadata: TransferJob) -> None:
        self._submit(self._stores, job_metadata, self._store)

    def submit_load(self, job_metadata: TransferJob) -> None:
        self._submit(self._loads, job_metadata, self._load)

    def _submit(self, threads: ThreadPoolExecutor, job: TransferJob,
                move: Callable[[list[str], list[tuple[int, int]]], list[bool]]) -> None:
        names, places = self._named(job.keys), self._places(job.chunk_ids)

        def run() -> None:
            began, moved = time.monotonic(), [False] * len(names)
            try:
                moved = move(names, places)
            except Exception:
                logger.exception("a job of %d chunks", len(names))
            finally:  # vLLM keeps the chunks of a job until it hears of its end
                self._done.put((job, moved, time.monotonic() - began))
        self._running = {one for one in self._running if not one.done()}
        self._running.add(threads.submit(run))

    def _store(self, names: list[str], places: list[tuple[int, int]]) -> list[bool]:
        """Put the chunks that the store has not got yet from another engine. Which are there now."""
        there = self._pages.exists(names)
        new = [i for i, one in enumerate(there) if not one]
        for i, put in zip(new, self._pages.put([names[i] for i in new], [places[i] for i in new])):
            there[i] = put
        return there

    def _load(self, names: list[str], places: list[tuple[int, int]]) -> list[bool]:
        return [count == size for count, (_, size) in zip(self._pages.get_into(names, places), places)]

    def get_finished_jobs(self) -> Iterable[JobResult]:
        results = []
        while not self._done.empty():
            job, moved, took_s = self._done.get()
            keys = [key for key, good in zip(job.keys, moved) if good]
            if job.is_promotion:  # a load that failed would otherwise be asked for again and again
                self._lookups.mark_miss([key for key, good in zip(job.keys, moved) if not good])
            elif self._tells and keys:
                self._events.append(OffloadingEvent(keys=keys, medium=self.medium, removed=False, locality=self.locality))
            results.append(JobResult(job.job_id, all(moved), successful_keys=keys, transfer_time=took_s,
                                     transfer_bytes=len(keys) * self.block_size_bytes))
        return results

    def take_events(self) -> Iterable[OffloadingEvent]:
        events, self._events = self._events, []
        return events

    # ---- ends ----

    def drain_jobs(self) -> None:
        wait(self._running)

    def shutdown(self) -> None:
        """End when no job uses the tier in host memory. Those that have not begun are given up."""
        self._lookups.shutdown()
        for threads in (self._loads, self._stores):
            threads.shutdown(cancel_futures=True)
        self._running.clear()
        self._pages.close()

    # ---- names and places ----

    def _named(self, keys: Iterable[OffloadKey]) -> list[str]:
        return [self._names.get_file_name(key) for key in keys]

    def _places(self, chunk_ids: Any) -> list[tuple[int, int]]:
        size = self.block_size_bytes
        return [(self._base + int(chunk) * size, size) for chunk in chunk_ids]
