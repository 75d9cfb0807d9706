# SPDX-License-Identifier: Apache-2.0
"""Arguments that call back: whatever they do to the object that asked for them, the interpreter lives."""
from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

import support

# Each runs in an interpreter of its own, since it may be the end of it.
PREAMBLE = """
import gc, os, signal
import penstock
from penstock import _core

class Calls:
    def __init__(self, action, value=0):
        self.action, self.value = action, value
    def __index__(self):
        self.action()
        return self.value
    def __float__(self):
        self.action()
        return float(self.value)
    def __bool__(self):
        self.action()
        return bool(self.value)
    def __fspath__(self):
        self.action()
        return "/nowhere"

class CallsList(list):
    action = None
    def __len__(self):
        self.action()
        return list.__len__(self)
    def __getitem__(self, i):
        self.action()
        return list.__getitem__(self, i)

class CallsAtEnd:
    def __init__(self, action):
        self.action = action
    def __del__(self):
        self.action()

def calls_list(action, *items):
    made = CallsList(items)
    made.action = action
    return made

store = penstock.open("mem:?dram=16M&page_size=64K&shards=1")
queue = store.queue()
PUT, GET = 1, 2
"""

ENDING = """
except (penstock.Error, TypeError, ValueError, MemoryError) as fault:
    print(type(fault).__name__, fault)
gc.collect()
store.close()
"""

CASES = {
    "a reservation's write commits it": """
        reservation = store.reserve("k", 4)
        reservation.write(b"data")
        reservation.write(b"data", Calls(reservation.commit))""",
    "a reservation's write aborts it": """
        reservation = store.reserve("k", 4)
        reservation.write(b"data", Calls(reservation.abort))""",
    "a slice aborts the reservation": """
        reservation = store.reserve("k", 4)
        reservation[Calls(reservation.abort):] = b"data" """,
    "pieces abort the reservation": """
        reservation = store.reserve("k", 4)
        reservation.write(calls_list(reservation.abort, b"da", b"ta"))""",
    "pieces end the stream": """
        stream = store.stream("k")
        stream.write(calls_list(stream.abort, b"da", b"ta"))""",
    "a reservation's write closes the store": """
        reservation = store.reserve("k", 4)
        reservation.write(b"data", Calls(store.close))
        reservation.commit()""",
    "adding adds": """
        calls = Calls(lambda: [queue.add(i, GET, "k", None, None, None, None) for i in range(100)])
        queue.add(1, GET, "k", None, calls, 5, None)""",
    "adding submits": """
        queue.add(0, PUT, "k", b"v", None, None, None)
        queue.add(1, GET, "k", None, Calls(queue.flush), 5, None)
        queue.flush()
        while queue.underway: queue.reap()""",
    "adding many submits": """
        queue.add_many(1, GET, [("k", None, 0, 1), ("k", None, Calls(queue.flush), 5), ("k", None, 0, "none")])""",
    "adding many ends and takes away what was there": """
        queue.add_many(1, GET, [("k", None, 0, 1), ("k", None, Calls(queue.flush), 5)])
        queue.flush()
        while queue.underway: queue.reap()""",
    "a list of many is emptied": """
        items = [(bytes([i]) * 64, None, 0, 1) for i in range(8)]
        items[1] = (b"k" * 64, None, Calls(items.clear), 5)
        queue.add_many(1, GET, items)""",
    "a token's end adds": """
        token = CallsAtEnd(lambda: [queue.add(i, PUT, "k", b"v", None, None, None) for i in range(64)])
        queue.add(token, PUT, "k", b"v", None, None, None)
        del token
        store.close()
        queue.flush()""",
    "pairs are emptied": """
        pairs = [(b"k" * 64, 4), (b"l" * 64, 4), (b"m" * 64, 4)]
        pairs[0] = (b"k" * 64, Calls(pairs.clear, 4))
        store.reserve_pairs(pairs, None, False)""",
    "keys are emptied by an offset": """
        keys, room = [b"k" * 64, b"l" * 64], [bytearray(4), bytearray(4)]
        store.put_many([(key, b"data") for key in keys])
        store.get_into_many(keys, room, [Calls(lambda: (keys.clear(), room.clear(), gc.collect())), 0])""",
    "a value takes its pair away": """
        pairs = {}
        pairs.update({b"k" * 64: calls_list(pairs.clear, b"v"), b"l" * 64: b"w"})
        store.put_many(pairs)""",
    "a commit of what is no tuple": "store.commit_ops([1], [])",
    "a commit of too few": "store.commit_ops([('k', b'v')], [('k',)])",
    "a commit's list is emptied": """
        changes = [(b"k" * 64, b"v", None), (b"l" * 64, b"w", None), (b"m" * 64, b"x", None)]
        changes[0] = (b"k" * 64, b"v", Calls(changes.clear))
        store.commit_ops(changes, [])""",
    "pieces to register": "store.register([bytearray(4096)])",
    "pieces whose length is absurd": """
        class Long(list):
            def __len__(self):
                return 2**31
        store.put("k", Long([b"v"]))""",
    "addresses longer than memory": "store.put('k', [(4096, 2**63 - 1)] * 3)",
    "a store that opens itself": """
        class Late(_core.Store):
            pass
        late = Late.__new__(Late)
        late.__init__("mem:", Calls(lambda: late.__init__("mem:")))""",
    "a signal closes the watch": """
        watch = store.watch("")
        signal.signal(signal.SIGALRM, lambda *_: watch.close())
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert list(watch) == []""",
    "a collection ends the node": """
        node = penstock.Node(dram="16M", page_size="64K", shards=1, unix="/tmp/penstock-reentrant-%d" % os.getpid())
        def cycle():
            one = CallsAtEnd(node.close)
            one.itself = one
        gc.collect(); gc.disable(); cycle(); gc.enable(); gc.set_threshold(1)
        for _ in range(9):
            node.urls""",
    "a reservation that is found before it is there": """
        class Finds:
            def __bool__(self):
                for one in gc.get_objects():
                    if type(one) is _core.Reservation:
                        for call in (one.abort, one.commit, lambda: one.write(b"v")):
                            try: call()
                            except ValueError: pass
                return False
        store.reserve("k", 4, replace=Finds())""",
}


@pytest.mark.parametrize("name", CASES)
def test_an_argument_that_calls_back(name: str) -> None:
    """A wrong argument raises, and a state that is there no more does; neither is the end of the interpreter."""
    program = PREAMBLE + "try:\n" + textwrap.indent(textwrap.dedent(CASES[name]).strip(), "    ") + ENDING
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=support.WAIT_S,
                          env=support.python_environment(PYTHONMALLOC="malloc" if support.sanitized() else "debug"))
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"


def test_results_outlive_a_reap_that_fails() -> None:
    """The library ends a batch of results, and says next that it is of no use any more: in a child, where a value's end forks."""
    script = PREAMBLE + """
class Forks(bytearray):
    child = None
    def __del__(self):
        Forks.child = os.fork()

for i in range(100):
    queue.add(i, PUT, f"k{i}", b"v" if i else Forks(b"v"), None, None, None)
queue.flush()
ended = queue.reap()
if Forks.child == 0:
    try:
        queue.reap()
    except penstock.Error:
        os._exit(0 if len(ended) > 0 else 3)
    os._exit(4)
assert len(ended) == 100 and os.waitstatus_to_exitcode(os.waitpid(Forks.child, 0)[1]) == 0
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=support.WAIT_S,
                          env=support.python_environment())
    assert done.returncode == 0, done.stderr
