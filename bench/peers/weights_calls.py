# SPDX-License-Identifier: Apache-2.0
"""One process of a broadcast of weights: weights_calls.py trainer BYTES, receiver, or gloo RANK RANKS BYTES.

It says "ready", and then answers each line that it reads with what it has by then: a sum over all bytes, as JSON.
"""

import json
import sys
from collections.abc import Callable

KEY, RECEIVERS, TENSORS = "run/weights", 4, 64


def sides(role: str, *more: str) -> tuple[Callable[[], object], Callable[[object], int], Callable[[], None]]:
    """What takes part in one broadcast, what sums up what has come, and what comes before the next."""
    if role == "gloo":
        return gloo(*map(int, more))
    import numpy as np

    from penstock import data_store, sharing

    window = data_store.BroadcastWindow(world_size=RECEIVERS, timeout=60)

    def total(state: dict[str, "np.ndarray"]) -> int:
        return sum(int(np.add.reduce(tensor.view(np.uint64))) for tensor in state.values()) % 2**64

    if role == "receiver":
        return lambda: data_store.get(KEY, broadcast=window), total, lambda: sharing.unshare(f"default/{KEY}") and None
    state = sharing.shared_like({f"layer.{number}": np.empty(int(more[0]) // TENSORS // 4, np.float32) for number in range(TENSORS)})
    for tensor in state.values():
        tensor.view(np.uint64)[:] = np.random.default_rng().integers(0, 2**64, tensor.nbytes // 8, np.uint64)

    def put() -> object:
        data_store.put(KEY, data=state, locale="local", broadcast=window)
        return state

    return put, total, lambda: None


def gloo(rank: int, ranks: int, size: int) -> tuple[Callable[[], object], Callable[[object], int], Callable[[], None]]:
    """torch.distributed's broadcast of one tensor, which sends no headers for others."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", rank=rank, world_size=ranks)  # where: MASTER_ADDR, MASTER_PORT
    tensor = torch.randint(0, 2**62, (size // 8,), dtype=torch.int64) if rank == 0 else torch.zeros(size // 8, dtype=torch.int64)

    def broadcast() -> object:
        dist.broadcast(tensor, 0)
        return tensor

    return broadcast, lambda tensor: int(tensor.sum()), lambda: None


def main() -> None:
    """Answer lines: "go" takes part, "sum" sums up, "next" clears up."""
    take, total, clear = sides(*sys.argv[1:])
    print("ready", flush=True)
    have: object = None
    for line in sys.stdin:
        told = 0
        if line == "go\n":
            have = take()
        elif line == "sum\n":
            told, have = total(have), None
        else:
            clear()
        print(json.dumps(told), flush=True)


main()
