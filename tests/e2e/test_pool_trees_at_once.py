# SPDX-License-Identifier: Apache-2.0
"""Trees in a node, of which many commands put, get, remove and prune some at once."""
from __future__ import annotations

import hashlib
import pathlib
import random
import shutil
import threading

from support import penstock, start_node
from trees import start_tree

WORKERS, ACTIONS, NAMES = 4, 30, 3
DONE, NOT_FOUND, BUSY = 0, 1, 7
KIB = 1 << 10


def sum_of(root: pathlib.Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.name != "sum":
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def change(root: pathlib.Path, rng: random.Random) -> None:
    """Another version, whose file `sum` tells whether it is whole."""
    files = [path for path in root.rglob("*") if path.is_file()]
    for path in rng.sample(files, len(files) // 3):
        path.unlink()
    for _ in range(12):
        path = root / rng.choice(("", "a", "a/b", "c")) / f"{rng.randrange(20)}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random(rng.randrange(40)).randbytes(rng.choice((0, 10, 5 * KIB, 80 * KIB, 700 * KIB))))
    (root / "sum").write_text(sum_of(root))


class Worker(threading.Thread):
    """Does one thing after the other, each with a tree of its own."""

    def __init__(self, url: str, folder: pathlib.Path, seed: int) -> None:
        super().__init__()
        self.url, self.folder, self.random = url, folder / f"{seed}", random.Random(seed)
        self.wrong: list[str] = []
        self.done: dict[str, int] = {}

    def command(self, action: str, *arguments: object, allowed: tuple[int, ...] = (DONE,)) -> bool:
        process = start_tree(action, *arguments)
        out, error = process.communicate(timeout=120)
        if process.returncode not in allowed:
            self.wrong.append(f"{action} {arguments}: {process.returncode} {out} {error}")
        self.done[action] = self.done.get(action, 0) + (process.returncode == DONE)
        return process.returncode == DONE

    def act(self) -> None:
        name = f"{self.url}/{self.random.randrange(NAMES)}"
        action = self.random.choice(("put", "put", "get", "get", "rm", "prune", "prune"))
        if action == "put":
            change(self.folder / "tree", self.random)
            self.command("put", self.folder / "tree", name)
        elif action == "get":
            shutil.rmtree(self.folder / "out", ignore_errors=True)
            if self.command("get", name, self.folder / "out", allowed=(DONE, NOT_FOUND)):
                if sum_of(self.folder / "out") != (self.folder / "out/sum").read_text():
                    self.wrong.append(f"{name}: not what was put")
            elif (self.folder / "out").exists():
                self.wrong.append(f"{name}: a part of it is there")
        elif action == "rm":
            self.command("rm", name, allowed=(DONE, NOT_FOUND))
        else:
            self.command("prune", self.url, "--timeout", "2000", allowed=(DONE, BUSY))

    def run(self) -> None:
        (self.folder / "tree").mkdir(parents=True)
        for _ in range(ACTIONS):
            self.act()


def test_all_of_it_at_once(tmp_path: pathlib.Path) -> None:
    url = f"node+unix://{tmp_path}/socket"
    with start_node(f"--unix={tmp_path}/socket", "--dram=256M"):
        workers = [Worker(url, tmp_path, seed) for seed in range(WORKERS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert [text for worker in workers for text in worker.wrong] == []
        done = {action: sum(worker.done.get(action, 0) for worker in workers) for action in ("put", "get", "prune")}
        assert min(done.values()) > 0, done
        last = workers[0]
        for number in range(NAMES):
            last.command("rm", f"{url}/{number}", allowed=(DONE, NOT_FOUND))
        last.command("prune", url)
        assert last.wrong == []
        assert penstock("--url", url, "ls").stdout == b""
