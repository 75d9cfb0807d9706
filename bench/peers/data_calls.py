# SPDX-License-Identifier: Apache-2.0
"""Arrays and state dicts through Python: ours and another package's in one process, a line at a time.

data_calls.py FIGURE URL FOLDER REDIS: gets ready, prints "ready", and for each line "ours" or "peer" that it reads prints what
that side takes, in seconds, as one JSON number. FOLDER is in a tmpfs, REDIS a redis server's socket.
"""

import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy

import penstock

Side = Callable[[], Any]
ARRAY_SHAPE = (64, 1024, 1024)  # 256 MiB of float32
CHUNKS = (1, 512, 512)  # 1 MiB
TENSORS = 300
STATE_BYTES = 1 << 30
WEIGHTS_BYTES = 512 << 20
VIEW_BYTES = 100_000_000
PAGE_BYTES = 4096


def timed(side: Side, times: int) -> float:
    """The median of some runs; what they return is dropped outside of the time."""
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        result = side()
        seconds.append(time.perf_counter() - begin)
        del result
    return statistics.median(seconds)


# ---- zarr


def redis_store(socket: str) -> Any:
    """A zarr store in redis, as one would write it: a key for each chunk, redis's own asyncio client."""
    import redis.asyncio
    from zarr.abc.store import ByteRequest, Store
    from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

    class RedisStore(Store):
        supports_writes = supports_deletes = supports_listing = True

        def __init__(self, read_only: bool = False) -> None:
            super().__init__(read_only=read_only)
            self.client = redis.asyncio.Redis(unix_socket_path=socket)

        def with_read_only(self, read_only: bool = False) -> Store:
            return RedisStore(read_only)

        def __eq__(self, other: object) -> bool:
            return self is other

        async def get(self, key: str, prototype: BufferPrototype | None = None,
                      byte_range: ByteRequest | None = None) -> Buffer | None:
            assert byte_range is None
            value = await self.client.get(key)
            return None if value is None else (prototype or default_buffer_prototype()).buffer.from_bytes(value)

        async def get_partial_values(self, prototype: BufferPrototype, key_ranges: Any) -> list[Buffer | None]:
            return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

        async def exists(self, key: str) -> bool:
            return bool(await self.client.exists(key))

        async def set(self, key: str, value: Buffer) -> None:
            await self.client.set(key, bytes(value.as_buffer_like()))

        async def delete(self, key: str) -> None:
            await self.client.delete(key)

        async def list(self) -> AsyncIterator[str]:
            async for key in self.client.scan_iter():
                yield key.decode()

        async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
            async for key in self.list():
                if key.startswith(prefix):
                    yield key

        async def list_dir(self, prefix: str) -> AsyncIterator[str]:
            names = {key[len(prefix):].strip("/").partition("/")[0] async for key in self.list_prefix(prefix)}
            for name in names:
                yield name

    return RedisStore()


def write_array(store: Any, data: Any) -> None:
    import zarr
    array = zarr.create_array(store, name="a", shape=data.shape, chunks=CHUNKS, dtype=data.dtype, compressors=None, overwrite=True)
    array[:] = data


def read_array(store: Any) -> Any:
    import zarr
    return zarr.open_array(store, path="a", mode="r")[:]


def zarr_sides(figure: str, url: str, folder: Path, socket: str) -> tuple[Side, Side]:
    import zarr.storage

    from penstock.zarr import PenstockStore
    data = numpy.random.default_rng(1).random(ARRAY_SHAPE, dtype=numpy.float32)
    ours: Any = PenstockStore(url, "z")
    peer: Any = redis_store(socket) if figure.endswith("fsspec") else zarr.storage.LocalStore(folder / "z")
    for store in (ours, peer):
        write_array(store, data)
    if figure.endswith("write"):
        return lambda: write_array(ours, data), lambda: write_array(peer, data)
    if figure.endswith("fsspec"):
        import penstock.fs  # which registers the protocol
        ours = zarr.storage.FsspecStore.from_url("penstock:///z", storage_options={"store_url": url}, read_only=True)
    for store in (ours, peer):
        assert (read_array(store) == data).all()
    return lambda: read_array(ours), lambda: read_array(peer)


# ---- one large array in place


def view_sides(url: str) -> tuple[Side, Side]:
    import ray
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=3 * VIEW_BYTES)
    data = numpy.arange(VIEW_BYTES // 8)
    store, reference = penstock.open(url), ray.put(data)
    store.put_array("a", data)
    assert (store.get_array("a", copy=False) == data).all() and (ray.get(reference) == data).all()
    return lambda: store.get_array("a", copy=False)[-1], lambda: ray.get(reference)[-1]


# ---- state dicts


def read_pages(state: Any) -> float:
    """Reads something of every page."""
    return sum(float(tensor[::PAGE_BYTES // 4].sum()) for tensor in state.values())


def state_sides(figure: str, url: str, folder: Path) -> tuple[Side, Side]:
    import torch
    from safetensors.torch import load_file, save_file

    from penstock.tensors import load_state_dict, save_state_dict
    state = {f"layers.{i}.weight": torch.randn(STATE_BYTES // 4 // TENSORS) for i in range(TENSORS)}
    store = penstock.open(url)
    save_state_dict(store, "m", state)
    path = folder / "m.safetensors"
    save_file(state, path)
    if figure.endswith("view"):
        return (lambda: read_pages(load_state_dict(store, "m", copy=None))), (lambda: read_pages(load_file(path)))
    room = {name: torch.zeros_like(tensor) for name, tensor in state.items()}

    def copy_file() -> None:
        for name, tensor in load_file(path).items():
            room[name].copy_(tensor)

    return lambda: load_state_dict(store, "m", into=room), copy_file


# ---- weights


def weights_sides(url: str) -> tuple[Side, Side]:
    """A version in which a twentieth of the tensors is new, and one in which all are: from one memory into another."""
    from penstock.weights import Publisher, Subscriber
    state = {f"layers.{i}.weight": numpy.full(WEIGHTS_BYTES // 4 // TENSORS, i, numpy.float32) for i in range(TENSORS)}
    room = {name: numpy.zeros_like(array) for name, array in state.items()}
    store = penstock.open(url)
    publisher, subscriber = Publisher(store, "w", keep=1), Subscriber(store, "w", room)

    def bring(share: int) -> None:
        changed = list(state)[::share]
        for name in changed:
            state[name][0] += 1
        assert publisher.publish(state, changed=changed) == subscriber.update()
        assert all(room[name][0] == array[0] for name, array in state.items())

    bring(1)
    return lambda: bring(20), lambda: bring(1)


# ---- a state dict from one process to another


def receive() -> None:
    """The other process: for each line, a key that is shared or a file, it prints the sum of the tensors' first elements."""
    import torch

    from penstock import sharing
    for line in sys.stdin:
        what, where = line.split()
        state = sharing.attach(where) if what == "share" else torch.load(where, mmap=True, weights_only=True)
        print(sum(float(tensor[0]) for tensor in state.values()), flush=True)
        del state


def handoff_sides(folder: Path, stack: contextlib.ExitStack) -> tuple[Side, Side]:
    """Both begin with the tensors in one process, and end when the other has read something of each."""
    import torch

    from penstock import sharing
    state = sharing.shared_like({f"layers.{i}.weight": torch.empty(STATE_BYTES // 4 // TENSORS, device="meta") for i in range(TENSORS)})
    for number, tensor in enumerate(state.values()):
        tensor.fill_(number)
    other = stack.enter_context(subprocess.Popen([sys.executable, "-W", "ignore", __file__, "receive"], stdin=subprocess.PIPE,
                                                 stdout=subprocess.PIPE, text=True))
    assert other.stdin and other.stdout
    stack.callback(other.stdin.close)
    told, answers, path = other.stdin, other.stdout, folder / "state.pt"

    def hand_over(line: str) -> None:
        print(line, file=told, flush=True)
        assert float(answers.readline()) == sum(range(TENSORS))

    def shared() -> None:
        sharing.share("state", state)
        hand_over("share state")

    def saved() -> None:
        torch.save(state, path)
        hand_over(f"load {path}")

    shared()  # the other has loaded its modules
    return shared, saved


def main() -> None:
    if sys.argv[1:] == ["receive"]:
        receive()
        return
    with contextlib.ExitStack() as stack:
        serve(stack)


def serve(stack: contextlib.ExitStack) -> None:
    figure, url, folder, socket = sys.argv[1:]
    if figure == "tensor_handoff":
        sides, times = handoff_sides(Path(folder), stack), 1
    elif figure.startswith("zarr"):
        sides, times = zarr_sides(figure, url, Path(folder), socket), 3
    elif figure.startswith("view"):
        sides, times = view_sides(url), 1000
    elif figure.startswith("weights"):
        sides, times = weights_sides(url), 3
    else:
        sides, times = state_sides(figure, url, Path(folder)), 3
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(timed(sides[line.strip() == "peer"], times)), flush=True)


if __name__ == "__main__":
    main()
