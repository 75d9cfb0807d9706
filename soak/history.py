# SPDX-License-Identifier: Apache-2.0
"""What actors wrote down, and whether one store that does one thing at a time could have answered so.

The check is per key: a search for an order of the operations, each between its begin and its end,
in which every answer is right (Wing and Gong, with the sets of what has been done so far remembered
as Lowe does). It walks along the time; a configuration is the value that the key has and which of
the operations underway have taken effect. What ended as unknown may take effect later, or never.
"""

import struct
from bisect import bisect
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate
from pathlib import Path

# Of soak/actor/actor.h: the counts behind the number of records, the violations, the records.
COUNTS = ("checked", "violations", "checked_bytes", "puts", "gets", "hits", "deletes", "fillers",
          "views", "view_looks", "unknown", "busy", "no_space", "not_reached", "underway")
HEAD = struct.Struct(f"<{1 + len(COUNTS)}Q")
TOLD, TOLD_BYTES = 8, 200
RECORD = struct.Struct("<5QiHBB")
RECORDS_AT = 4096
FOCUSES = ("idle", "small", "large", "get", "batch", "view")

PUT, GET, DELETE, RESET = 1, 2, 4, 0
IF_ABSENT, IF_GENERATION = 1, 2
OK, MISS, EXISTS, STALE, UNKNOWN = 0, 1, 2, 3, 5

NOTHING = 0  # a key's state: the number of the write that it has, or this
LATER_NS = 3_000_000_000  # a write that ended as unknown happens within this, or never,
POOL_LATER_NS = 10_000_000_000  # in a pool, whose nodes stop, and whose links are cut
CONFIGURATIONS_MAX = 50_000


@dataclass(slots=True, eq=False)
class Op:
    """One operation on one key; times in ns."""

    begun: int
    ended: int
    write: int
    generation: int
    if_generation: int
    result: int
    code: int
    flags: int

    @property
    def told(self) -> bool:
        """Whether its answer is known, so that it took effect when it said so."""
        return self.result != UNKNOWN


@dataclass
class History:
    """What one actor left behind."""

    counts: dict[str, int]
    told: list[str]
    underway: str
    ops: dict[int, list[Op]] = field(default_factory=lambda: defaultdict(list))


def read(path: Path, died_ns: int) -> History:
    """The history in a file; what had no end when the actor died, at `died_ns`, is unknown."""
    with path.open("rb") as file:
        data = file.read(RECORDS_AT)
        record_count, *values = HEAD.unpack_from(data)
        records = file.read(record_count * RECORD.size)
    counts = dict(zip(COUNTS, values, strict=True))
    lines = (data[HEAD.size + i * TOLD_BYTES:][:TOLD_BYTES] for i in range(TOLD))
    told = [line.split(b"\0")[0].decode(errors="replace") for line in lines if line[0]]
    history = History(counts, told, FOCUSES[counts.pop("underway")])
    for begun, ended, write, generation, if_generation, result, key, code, flags in (
            RECORD.iter_unpack(records)):
        if not code or (code == GET and not ended):
            continue
        if not ended:
            ended, result = died_ns, UNKNOWN
        history.ops[key].append(
            Op(begun, ended, write, generation, if_generation, result, code, flags))
    return history


def counts_for(op: Op) -> bool:
    """Whether an operation says or changes anything: errors and 'busy' mean that it did not happen."""
    if op.result == UNKNOWN:
        return op.code != GET
    return 0 <= op.result <= STALE


# The key's state, the told operations underway that have taken effect, and the unknown ones.
Configuration = tuple[int, frozenset[Op], frozenset[Op]]


class Fewest:
    """Configurations, without those that need more unknown writes than another to be where it is.

    Nothing requires an unknown write to have happened, so the other one can do all that they can.
    """

    def __init__(self) -> None:
        self._unknown: dict[tuple[int, frozenset[Op]], list[frozenset[Op]]] = {}
        self.count = 0

    def add(self, at: Configuration) -> bool:
        """Whether it tells something new."""
        sets = self._unknown.setdefault(at[:2], [])
        if any(fewer <= at[2] for fewer in sets):
            return False
        sets[:] = [more for more in sets if not at[2] <= more] + [at[2]]
        self.count += 1
        return True

    def all(self) -> list[Configuration]:
        """Those that are left."""
        return [(*at, unknown) for at, sets in self._unknown.items() for unknown in sets]


class KeyCheck:
    """The search over one key's operations.

    Parameters
    ----------
    ops : list of Op
        Of all actors, in any order.
    evictable : bool
        Whether the value may vanish at any time.
    resets : list of (int, int)
        Times between which the store lost everything.
    later_ns : int
        A write that ended as unknown happens within this, or never.
    """

    def __init__(self, ops: list[Op], evictable: bool, resets: Iterable[tuple[int, int]], later_ns: int) -> None:
        self.faults: list[str] = []
        self.evictable = evictable
        self.later_ns = later_ns
        self.generations: dict[int, int] = {}
        self.writes: dict[int, int] = {}
        ops = [op for op in ops if counts_for(op)]
        for op in ops:
            if op.result == OK and op.code in (PUT, GET) and op.write and op.generation:
                self._name(op.write, op.generation)
        self.ops = self._needed(ops)
        self.ops += [Op(begun, ended, 0, 0, 0, OK, RESET, 0) for begun, ended in resets]

    def _name(self, write: int, generation: int) -> None:
        if self.generations.setdefault(write, generation) != generation:
            self.faults.append(f"write {write:x} has generations {self.generations[write]} "
                               f"and {generation}")
        if self.writes.setdefault(generation, write) != write:
            self.faults.append(f"generation {generation} names writes {self.writes[generation]:x} "
                               f"and {write:x}")

    def _needed(self, ops: list[Op]) -> list[Op]:
        """All but unknown puts that nobody saw: they explain nothing but a generation of no known write.

        Such a generation was given after all lower ones and before it was named.
        """
        named: dict[int, int] = {}
        for op in ops:
            if op.told and op.generation and op.generation not in self.writes:
                named[op.generation] = min(op.ended, named.get(op.generation, op.ended))
        known = sorted((op.generation, op.begun) for op in ops
                       if op.told and op.result == OK and op.code == PUT and op.generation)
        begun = list(accumulate((begun for _, begun in known), max, initial=0))
        times = [(begun[bisect(known, (generation, 0))], ended)
                 for generation, ended in named.items()]
        return [op for op in ops if op.told or op.code != PUT or op.write in self.generations
                or any(first < op.ended + self.later_ns and op.begun < last for first, last in times)]

    def _is(self, state: int, generation: int) -> bool:
        """Whether the value there can have this generation."""
        if state == NOTHING:
            return False
        known = self.generations.get(state)
        return known == generation if known else generation not in self.writes

    def _holds(self, op: Op, state: int) -> bool:
        """The condition that a write names."""
        if op.flags & IF_ABSENT:
            return state == NOTHING
        if op.flags & IF_GENERATION:
            absent = op.code == PUT and op.if_generation == 0
            return state == NOTHING if absent else self._is(state, op.if_generation)
        return True

    def _after(self, op: Op, state: int) -> int | None:
        """The state behind an operation; None where its answer would be wrong."""
        if op.code == RESET:
            return NOTHING
        if op.result in (OK, UNKNOWN):
            if op.code == GET:
                return state if state == op.write and self._is(state, op.generation) else None
            if not self._holds(op, state):
                return None
            if op.code == PUT:
                return op.write
            named = op.told and op.generation
            right = self._is(state, op.generation) if named else state != NOTHING
            return NOTHING if right or not op.told else None
        if op.result == MISS or (op.result == STALE and op.generation == 0):
            return state if state == NOTHING else None
        other = op.flags & IF_ABSENT or op.generation != op.if_generation
        return state if other and self._is(state, op.generation) else None

    def _steps(self, op: Op, state: int) -> set[int]:
        """All states behind an operation; an evictable value may be gone just before it."""
        befores = {state, NOTHING} if self.evictable else {state}
        return {after for before in befores if (after := self._after(op, before)) is not None}

    def _take(self, configurations: Iterable[Configuration], underway: list[Op],
              op: Op) -> list[Configuration]:
        """The configurations in which `op` has taken effect, whatever did before it."""
        taken, seen = Fewest(), Fewest()
        queue: deque[Configuration] = deque()
        for state, told, unknown in configurations:
            if op in told:
                taken.add((state, told - {op}, unknown))
            elif op in unknown:
                taken.add((state, told, unknown - {op}))
            else:
                queue.append((state, told, unknown))
        while queue:
            at = queue.popleft()
            if not seen.add(at):
                continue
            state, told, unknown = at
            for after in self._steps(op, state):
                taken.add((after, told, unknown))
            for other in underway:
                if other is op or other in told or other in unknown:
                    continue
                known = (told | {other}, unknown) if other.told else (told, unknown | {other})
                queue.extend((after, *known) for after in self._steps(other, state))
            if seen.count > CONFIGURATIONS_MAX:
                raise OverflowError
        return taken.all()

    def _events(self) -> list[tuple[int, int, int, Op]]:
        """Begins and ends of the operations, in order of time."""
        events = []
        for number, op in enumerate(self.ops):
            events.append((op.begun, 0, number, op))
            events.append((op.ended + (0 if op.told else self.later_ns), 1, number, op))
        events.sort(key=lambda event: event[:3])
        return events

    def _tell(self, op: Op, before: list[Configuration]) -> str:
        states = ", ".join(f"{state:x}" for state in sorted({state for state, *_ in before})[:5])
        return (f"no order explains code {op.code} flags {op.flags} of write {op.write:x}, "
                f"if_generation {op.if_generation}: result {op.result}, generation "
                f"{op.generation}, {op.begun} to {op.ended}; the key may have had {states}")

    def _search(self) -> None:
        configurations: list[Configuration] = [(NOTHING, frozenset(), frozenset())]
        underway: list[Op] = []
        for _, ends, _, op in self._events():
            if not ends:
                underway.append(op)
                continue
            taken = self._take(configurations, underway, op)
            if not op.told:  # it may as well never have happened
                taken += [at for at in configurations if op not in at[2]]
            underway.remove(op)
            if not taken:
                self.faults.append(self._tell(op, configurations))
                return
            configurations = taken

    def _ascend(self) -> None:
        """Generations only grow: none is given or read that is older than one told before."""
        newest, ended = 0, []
        for op in sorted(self.ops, key=lambda op: op.begun):
            if op.result != OK or op.code not in (PUT, GET) or not op.generation:
                continue
            while ended and ended[0][0] < op.begun:
                newest = max(newest, heappop(ended)[1])
            if op.generation < newest or (op.code == PUT and op.generation == newest):
                self.faults.append(f"generation {op.generation} of write {op.write:x} comes after "
                                   f"{newest}")
                return
            heappush(ended, (op.ended, op.generation))

    def run(self) -> list[str]:
        """The faults found, in words."""
        self._ascend()
        try:
            self._search()
        except OverflowError:
            self.faults.append("too many operations at once to be judged")
        return self.faults


def unwritten(ops: list[Op]) -> list[str]:
    """Reads of what nobody had begun to write, of a key whose writes have no order."""
    begun = {op.write: op.begun for op in ops if op.code == PUT}
    return [f"write {op.write:x} was read, which " + ("came later" if op.write in begun else "nobody made")
            for op in ops if op.code == GET and op.result == OK and op.ended < begun.get(op.write, op.ended + 1)]


def check(histories: Iterable[History], resets: Iterable[tuple[int, int]] = (), pool: bool = False) -> tuple[int, list[str]]:
    """The number of operations judged, and the violations in words.

    Odd keys are of the class that is evicted; in a pool they lie anywhere, where each node has its own order.
    """
    ops: dict[int, list[Op]] = defaultdict(list)
    for history in histories:
        for key, some in history.ops.items():
            ops[key] += some
    faults, checked, resets = [], 0, list(resets)
    for key, some in sorted(ops.items()):
        if pool and key % 2 == 1:
            checked += len(some)
            faults += [f"key {key}: {fault}" for fault in unwritten(some)]
            continue
        judge = KeyCheck(some, key % 2 == 1, resets, POOL_LATER_NS if pool else LATER_NS)
        checked += len(judge.ops)
        faults += [f"key {key}: {fault}" for fault in judge.run()]
    return checked, faults
