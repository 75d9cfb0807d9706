# SPDX-License-Identifier: Apache-2.0
"""Weights from a trainer into the processes that use them, while both run.

A :class:`Publisher` puts a state dict as one version after the other. A :class:`Subscriber` brings its own tensors to
the newest version, in place. Only tensors that have changed travel. Several writers may each hold a part of a tensor,
and a subscriber may want another part of it. NumPy arrays and torch tensors go in and out, also across.

Below ``NAME/`` a store has

- ``version``: the newest version that all writers have put, as JSON
- ``VERSION/WRITER``: the tensors that a writer put of a version, with dtypes, shapes, parts and digests, as JSON; and of
  which run, if that has a name
- ``data/WRITER/DIGEST``: a part's bytes, in row-major order, under their digest

The digest is XXH3 of 128 bits if there is the package ``xxhash``, else SHA-256, which takes several times as long.
"""
from __future__ import annotations

import functools
import json
import math
import operator
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ._places import is_torch, unfillable, without_memory
from .errors import Exists, NoSpace, NotFound, Stale

try:
    from xxhash import xxh3_128 as _digest
except ImportError:
    from hashlib import sha256 as _digest  # type: ignore[assignment, unused-ignore]

if TYPE_CHECKING:
    from collections.abc import Iterable

    from . import Store

CHUNK_BYTES = 16 << 20  # of memory beside the tensors
SMALL_BYTES = 64 << 10  # parts up to this are fetched in batches
BATCH = 128
WRITERS_MAX = 1 << 16
VERSION_MAX = 1 << 63
WASTE_MAX = 4  # bytes fetched for one that is wanted, in pieces above PIECE_BYTES_MIN
PIECE_BYTES_MIN = 256 << 10
POLL_S = 5.0  # a lost word of a new version is made good after so long

_BITS: dict[int, np.dtype[Any]] = {1: np.dtype(np.uint8), 2: np.dtype(np.int16), 4: np.dtype(np.int32),
                                   8: np.dtype(np.int64), 16: np.dtype(np.complex128)}
Tensor = Any  # numpy.ndarray or torch.Tensor
Array = np.ndarray[Any, np.dtype[Any]]
Ints = tuple[int, ...]


class Part(NamedTuple):
    """Where a process's tensor lies in the whole one: the place of its first element, and the whole one's shape."""

    start: Ints
    shape: Ints


class _Stored(NamedTuple):
    """A part of a tensor in the store."""

    key: str
    start: Ints
    extent: Ints
    digest: str

    @property
    def place(self) -> tuple[Ints, Ints]:
        return self.start, self.extent


class _Whole(NamedTuple):
    """A tensor of a version."""

    dtype: str
    shape: Ints
    parts: dict[tuple[Ints, Ints], _Stored]


class _Box(NamedTuple):
    """A range of a tensor: [low, high) in each dimension."""

    low: Ints
    high: Ints

    @property
    def shape(self) -> Ints:
        return tuple(high - low for low, high in zip(self.low, self.high))

    def within(self, start: Ints) -> tuple[slice, ...]:
        """The index of the box in an array that begins at `start`."""
        return tuple(slice(low - at, high - at) for low, high, at in zip(self.low, self.high, start))

    def halves(self) -> tuple[_Box, _Box]:
        axis = next(axis for axis, extent in enumerate(self.shape) if extent > 1)
        middle = (self.low[axis] + self.high[axis]) // 2
        return (_Box(self.low, (*self.high[:axis], middle, *self.high[axis + 1:])),
                _Box((*self.low[:axis], middle, *self.low[axis + 1:]), self.high))


def _overlap(boxes: Iterable[_Box]) -> bool:
    """Whether two ranges have an element in common. None is empty."""
    near: list[_Box] = []  # those that reach as far as the next one in the first dimension
    for box in sorted(boxes):
        near = [other for other in near if not box.low or other.high[0] > box.low[0]]
        if any(all(map(int.__lt__, map(max, box.low, other.low), map(min, box.high, other.high))) for other in near):
            return True
        near.append(box)
    return False


# ---- tensors of NumPy and torch


def _on_cpu(tensor: Tensor) -> bool:
    return not is_torch(tensor) or tensor.device.type == "cpu"


@functools.lru_cache
def _array_dtype_name(dtype: np.dtype[Any]) -> str:
    return str(dtype.name)  # which NumPy puts together each time


def _dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.") if is_torch(tensor) else _array_dtype_name(tensor.dtype)


def _check(name: str, tensor: Tensor) -> None:
    if isinstance(tensor, np.ma.MaskedArray):
        raise TypeError(f"weights: {name!r} is a masked array, which would lose its mask: publish .data and .mask")
    if isinstance(tensor, np.ndarray):
        dtype = tensor.dtype
        if dtype.kind in "OSUVMm" and dtype.isbuiltin != 2 or dtype.itemsize not in _BITS or not dtype.isnative:
            raise TypeError(f"weights: {name!r} is an array of dtype {dtype}, which cannot be published")
    elif not is_torch(tensor):
        raise TypeError(f"weights: {name!r} is a {type(tensor).__name__}, neither an array nor a tensor")
    elif str(tensor.layout) != "torch.strided" or tensor.is_quantized or tensor.is_meta:
        raise TypeError(f"weights: {name!r} is no dense tensor ({tensor.layout}, {tensor.dtype}, {tensor.device})")
    elif fault := without_memory(tensor):
        raise TypeError(f"weights: {name!r} {fault}")


def _bits(tensor: Tensor) -> Array:
    """The memory of a tensor on the CPU, as an array of numbers as wide as its elements."""
    if isinstance(tensor, np.ndarray):
        return tensor.view(_BITS[tensor.dtype.itemsize])
    import torch

    wide = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
    out: Array = tensor.detach().view(wide[tensor.element_size()]).numpy()
    return out


def _row_major(tensor: Tensor) -> Array:
    """The bytes to publish."""
    if is_torch(tensor):
        tensor = tensor.detach().resolve_conj().resolve_neg().cpu()
    return np.ascontiguousarray(_bits(tensor)).reshape(-1)


def _flat(state_dict: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Tensor]]:
    for key, value in state_dict.items():
        if not isinstance(key, str):
            raise TypeError(f"weights: the key {key!r} of {path or 'the state dict'!r} is no text")
        name = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            yield from _flat(value, name)
        else:
            _check(name, value)
            yield name, value


def _by_path(state_dict: Mapping[str, Any]) -> dict[str, Tensor]:
    """Tensors by their path, joined by dots."""
    out: dict[str, Tensor] = {}
    for name, tensor in _flat(state_dict):
        if name in out:
            raise ValueError(f"weights: two tensors are called {name!r}")
        out[name] = tensor
    return out


def _fits(start: Ints, extent: Ints, shape: Ints) -> bool:
    return len(start) == len(extent) == len(shape) and all(
        at >= 0 and at + length <= whole for at, length, whole in zip(start, extent, shape))


def _places(tensors: Mapping[str, Tensor], parts: Mapping[str, Part] | None) -> dict[str, Part]:
    """Each tensor's part; one without is whole."""
    given = dict(parts or {})
    unknown = sorted(given.keys() - tensors.keys())
    if unknown:
        raise ValueError(f"weights: parts of {unknown[:10]}, which are not in the state dict")
    out = {}
    for name, tensor in tensors.items():
        extent = tuple(tensor.shape)
        start, shape = given.get(name, ((0,) * len(extent), extent))
        out[name] = Part(tuple(map(operator.index, start)), tuple(map(operator.index, shape)))  # NumPy's are no JSON
        if not _fits(out[name].start, extent, out[name].shape):
            raise ValueError(f"weights: {name!r} of shape {extent} at {start} is no part of a tensor of shape {shape}")
    return out


def _tied(tensors: Mapping[str, Tensor]) -> Iterator[list[str]]:
    """Names of tensors that are one in memory."""
    names: dict[tuple[Any, ...], list[str]] = {}
    for name, tensor in tensors.items():
        if 0 in tensor.shape:
            continue
        place: tuple[Any, ...]
        if is_torch(tensor):
            place = str(tensor.device), tensor.data_ptr(), tuple(tensor.shape), tensor.stride()
        else:
            place = "cpu", tensor.__array_interface__["data"][0], tensor.shape, tensor.strides
        names.setdefault(place, []).append(name)
    return (group for group in names.values() if len(group) > 1)


# ---- what lies in the store


class _Keys:
    """Keys of published weights."""

    def __init__(self, name: str) -> None:
        if not name or name.endswith("/"):
            raise ValueError(f"weights: {name!r} is no name")
        self.name = name
        self.prefix = f"{name}/"
        self.head = f"{name}/version"

    def manifest(self, version: int, writer: int) -> str:
        return f"{self.prefix}{version}/{writer}"

    def data(self, writer: int, digest: str = "") -> str:
        return f"{self.prefix}data/{writer}/{digest}"


class _Head(NamedTuple):
    """The newest version; zeros before the first."""

    version: int = 0
    writers: int = 0
    generation: int = 0


def _count(key: str, value: Any, most: int = VERSION_MAX) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{key!r} is damaged: {value!r} is no count up to {most}")
    return value


def _object(key: str, text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{key!r} is damaged: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{key!r} is damaged: it is no object")
    return found


def _read_head(store: Store, keys: _Keys) -> _Head:
    while True:
        try:
            generation = store.head(keys.head).generation
            found = _object(keys.head, store.get(keys.head, if_generation=generation))
        except NotFound:
            return _Head()
        except Stale:
            continue  # replaced between the two
        return _Head(_count(keys.head, found.get("version")), _count(keys.head, found.get("writers"), WRITERS_MAX), generation)


def _read_manifest(keys: _Keys, version: int, writer: int, text: bytes) -> Iterator[tuple[str, str, Ints, _Stored]]:
    """Names, dtypes and shapes of whole tensors, and the writer's parts of them."""
    key = keys.manifest(version, writer)
    rows = _object(key, text).get("tensors")
    if not isinstance(rows, list):
        raise ValueError(f"{key!r} is damaged: it has no list of tensors")
    for row in rows:
        if not isinstance(row, list) or [type(one) for one in row] != [str, str, list, list, list, str]:
            raise ValueError(f"{key!r} is damaged: {row!r} is no tensor")
        name, dtype, *places, digest = row
        shape, start, extent = (tuple(_count(key, one) for one in place) for place in places)
        if not _fits(start, extent, shape):
            raise ValueError(f"{key!r} is damaged: a part of {name!r} is not inside of it")
        yield name, dtype, shape, _Stored(keys.data(writer, digest), start, extent, digest)


class Publisher:
    """Puts a state dict, version by version.

    Parameters
    ----------
    store : Store
        A store that keeps values below `name`: their class is to be `keep`.
    name : str
        In front of all keys.
    writer, writers : int
        This process among those that hold the state dict together, from 0 on. A version counts when all have put it.
    keep : int
        Versions that stay, so that slow subscribers can read one to its end.
    run : str, optional
        A name that the writers of a run have in common, and no earlier run had: what a killed one left of a version
        does not count with what this one puts of it.
    """

    def __init__(self, store: Store, name: str, *, writer: int = 0, writers: int = 1, keep: int = 2, run: str = "") -> None:
        if not 0 <= writer < writers <= WRITERS_MAX or keep < 1:
            raise ValueError(f"weights: writer {writer} of {writers}, {keep} versions kept")
        if not isinstance(run, str):
            raise TypeError(f"weights: the run {run!r} is no text")
        self._store, self._keys = store, _Keys(name)
        self._writer, self._writers, self._keep, self._run = writer, writers, keep, run
        self._last: dict[tuple[Any, ...], str] = {}  # digests, by what the manifest says before them
        self._newest = 0  # version, of this object's

    def __repr__(self) -> str:
        return f"<penstock.weights.Publisher of {self._keys.name!r} in {self._store.url}>"

    def publish(self, state_dict: Mapping[str, Any], *, version: int | None = None,
                parts: Mapping[str, Part] | None = None, changed: Iterable[str] | None = None) -> int:
        """Put a version.

        Parameters
        ----------
        state_dict : mapping of str to tensor or mapping
            Dense tensors and arrays of numbers. Those of devices are copied one by one.
        version : int, optional
            Above the last one, and the same of all writers. Without it the next one, if there is but one writer.
        parts : mapping of str to Part, optional
            By path, where this writer's tensor lies in the whole one.
        changed : iterable of str, optional
            Paths of all tensors that differ from what this object published last. The others are not even looked at.

        Returns
        -------
        int
            The version.

        Raises
        ------
        NoSpace
            The store has no room for this version beside those that are kept. Nothing is left of it.
        Stale
            Another publisher put the version meanwhile, as the same writer. There is to be but one at a time.
        """
        tensors = _by_path(state_dict)
        places = _places(tensors, parts)
        newest = _read_head(self._store, self._keys).version
        version = None if version is None else operator.index(version)
        if version is None and self._writers > 1:
            raise ValueError("weights: with several writers the version is to be named")
        if version is None:
            version = max(newest, self._newest) + 1  # a store that lost its values knows none any more
        elif version <= newest:
            raise ValueError(f"weights: version {version} is not above {newest}, which is there")
        elif version > VERSION_MAX:
            raise ValueError(f"weights: version {version} is above {VERSION_MAX}")
        before = self._generation(version)
        try:
            rows = self._put_tensors(tensors, places, changed)
            about = {"run": self._run} if self._run else {}
            manifest = json.dumps({**about, "tensors": rows}, separators=(",", ":")).encode()
            self._store.put(self._keys.manifest(version, self._writer), manifest, if_generation=before, checksum=True)
        except NoSpace:
            self._clean(newest)  # what was put before would fill the store for good
            raise
        except (Exists, Stale):
            raise Stale(f"weights: another publisher has put version {version} as writer {self._writer} meanwhile") from None
        self._last, self._newest = {tuple(row[:-1]): row[-1] for row in rows}, version
        self._clean(self._advance(version))
        return version

    def _generation(self, version: int) -> int:
        """Of what this writer has put of a version: one that was killed may have begun it."""
        try:
            return self._store.head(self._keys.manifest(version, self._writer)).generation
        except NotFound:
            return 0

    def _put_tensors(self, tensors: Mapping[str, Tensor], places: Mapping[str, Part],
                     changed: Iterable[str] | None) -> list[list[Any]]:
        """Put what is not there. Return what the manifest says of each tensor."""
        dirty = None if changed is None else set(changed)
        unknown = sorted(dirty - tensors.keys()) if dirty else []
        if unknown:
            raise ValueError(f"weights: {unknown[:10]} have changed, and are not in the state dict")
        rows: list[list[Any]] = [[name, _dtype_name(tensor), places[name].shape, places[name].start, tuple(tensor.shape)]
                                 for name, tensor in tensors.items()]
        known = self._kept(row for row in rows if dirty is not None and row[0] not in dirty)
        return [[*row, known.get(row[0]) or self._put_data(_row_major(tensors[row[0]]))] for row in rows]

    def _kept(self, rows: Iterable[list[Any]]) -> dict[str, str]:
        """Digests, by name, of what this object published last and the store still has."""
        found = {row[0]: self._last[tuple(row)] for row in rows if tuple(row) in self._last}
        there = self._store.exists_many([self._keys.data(self._writer, digest) for digest in found.values()])
        return {name: digest for (name, digest), is_there in zip(found.items(), there) if is_there}

    def _put_data(self, data: Array) -> str:
        digest = _digest(data.view(np.uint8)).hexdigest()
        key = self._keys.data(self._writer, digest)
        if data.nbytes and not self._store.exists(key):
            self._store.put(key, data, checksum=True)
        return digest

    def _is_whole(self, version: int) -> bool:
        """Whether all writers of this run have put the version. Who comes last reads what the others have put."""
        keys = [self._keys.manifest(version, writer) for writer in range(self._writers)]
        if not all(self._store.exists_many(keys)):
            return False
        texts = self._store.get_many(keys) if self._writers > 1 else []
        return all(text is not None and _object(key, text).get("run", "") == self._run for key, text in zip(keys, texts))

    def _advance(self, version: int) -> int:
        """Make the version the newest one if all writers have put it. Return the newest one."""
        whole = self._is_whole(version)
        while True:
            head = _read_head(self._store, self._keys)
            if not whole or head.version >= version:
                return head.version
            text = json.dumps({"version": version, "writers": self._writers}).encode()
            try:
                self._store.put(self._keys.head, text, if_generation=head.generation)
                return version
            except (Exists, Stale):
                continue  # another writer was faster

    def _clean(self, newest: int) -> None:
        """Delete what this writer put of versions before the last `keep` ones, unless later ones have it too. The first writer
        does so for those of a run that had more of them."""
        found = self._manifests()
        kept = sorted(version for version in found.get(self._writer, {}) if version <= newest)[-self._keep:]
        oldest = kept[0] if kept else 0
        gone = [writer for writer in found if writer >= self._writers] if self._writer == 0 else []
        for writer in (self._writer, *gone):
            self._clean_of(writer, found.get(writer, {}), oldest)

    def _clean_of(self, writer: int, manifests: Mapping[int, str], oldest: int) -> None:
        wanted = {data for version, key in manifests.items() if version >= oldest for data in self._data_of(writer, version, key)}
        old = [key for version, key in manifests.items() if version < oldest]
        data = (entry.key.decode() for entry in self._store.list(self._keys.data(writer)))
        self._store.delete_many([key for key in data if key not in wanted])
        self._store.delete_many(old)  # last: they tell that the writer was there

    def _data_of(self, writer: int, version: int, key: str) -> Iterator[str]:
        """Keys of what a manifest names; of this object's last one they are known."""
        if (writer, version) == (self._writer, self._newest):
            return (self._keys.data(writer, digest) for digest in self._last.values())
        return (part.key for *_, part in _read_manifest(self._keys, version, writer, self._store.get(key)))

    def _manifests(self) -> dict[int, dict[int, str]]:
        """Keys of all, by writer and version."""
        found: dict[int, dict[int, str]] = {}
        for entry in self._store.list(self._keys.prefix, end=self._keys.prefix + ":"):  # behind all digits
            key = entry.key.decode(errors="replace")
            version, _, writer = key.removeprefix(self._keys.prefix).partition("/")
            if version.isdecimal() and writer.isdecimal():
                found.setdefault(int(writer), {})[int(version)] = key
        return found


class Subscriber:
    """Brings tensors to the newest version, in place.

    Parameters
    ----------
    store : Store
    name : str
        As of the publisher.
    into : mapping of str to tensor or mapping
        The tensors to fill, on any device. What else a version has is not fetched. Those that are one in memory are
        to be equal in each version.
    parts : mapping of str to Part, optional
        By path, where the tensor to fill lies in the whole one.

    One thread at a time uses a subscriber. Beside the tensors it takes about 16 MiB of memory.
    """

    def __init__(self, store: Store, name: str, into: Mapping[str, Any], *, parts: Mapping[str, Part] | None = None) -> None:
        self._store, self._keys = store, _Keys(name)
        self._tensors = _by_path(into)
        for tensor_name, tensor in self._tensors.items():
            if fault := unfillable(tensor):
                raise ValueError(f"weights: {tensor_name!r} {fault}")
        self._places = _places(self._tensors, parts)
        self._tied = list(_tied(self._tensors))
        self._held: dict[str, dict[tuple[Ints, Ints], str]] = {name: {} for name in self._tensors}  # digests, by place
        self._watch = store.watch(self._keys.head)
        self._generation = 0  # of the head that told of the version
        #: The version that the tensors hold; None: none, or several.
        self.version: int | None = None

    def __repr__(self) -> str:
        return f"<penstock.weights.Subscriber to {self._keys.name!r} in {self._store.url}, version {self.version}>"

    def close(self) -> None:
        """Wait for no version any more."""
        self._watch.close()

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, timeout: float | None = 0) -> int | None:
        """Fill the tensors with the newest version.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for a version newer than the one that is there; None: for ever. Calls of a store that does not
            answer take its own `timeout` besides.

        Returns
        -------
        int or None
            The version, also :attr:`version`; None if there was no newer one. A store that lost its values may count from 1
            again: what was published since is newer, too.

        Raises
        ------
        ValueError, TypeError
            The version lacks a tensor or a part of one, or has another dtype or shape. Nothing was written.
        NotFound
            Data of the newest version is not there: it was evicted or deleted.

        After `NotFound` and errors of the store :attr:`version` is None: tensors may be of several versions, until a
        later call returns one.
        """
        until = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            head = _read_head(self._store, self._keys)
            # A store that lost its values counts from 1 again; generations do not come again.
            if head.version and (self.version is None or head.generation != self._generation):
                is_news = self._bring(head)
                if is_news:
                    return self.version
                if is_news is None and _read_head(self._store, self._keys) == head:
                    raise NotFound(f"weights: data of version {head.version} is not there")
                continue
            left = until - time.monotonic()
            if left <= 0:
                return None
            self._watch.poll(min(left, POLL_S))

    def _bring(self, head: _Head) -> bool | None:
        """Fill the tensors with a version. Return whether that is another one than is there; None if it is not all there."""
        wholes = self._read_version(head)
        if wholes is None:
            return None
        wanted = [(name, part, box) for name in self._tensors for part, box in self._wanted(name, wholes)]
        for one, *others in self._tied:
            for other in others:
                if self._places[one] != self._places[other] or self._digests(one, wholes) != self._digests(other, wholes):
                    raise ValueError(f"weights: {one!r} and {other!r} share memory, and differ in version {head.version}")
        is_news = bool(wanted) or self.version != head.version
        if wanted:
            self.version = None
        for name in {name for name, *_ in wanted}:  # what is written now may lie across parts of other places
            self._held[name] = {place: digest for place, digest in self._held[name].items()
                                if place in wholes[name].parts and wholes[name].parts[place].digest == digest}
        try:
            self._fetch_all(wanted)
        except NotFound:
            return None
        for name in self._tensors:
            self._held[name] = self._digests(name, wholes)
        self.version, self._generation = head.version, head.generation
        return is_news

    def _read_version(self, head: _Head) -> dict[str, _Whole] | None:
        keys = [self._keys.manifest(head.version, writer) for writer in range(head.writers)]
        wholes: dict[str, _Whole] = {}
        for writer, text in enumerate(self._store.get_many(keys)):
            if text is None:
                return None
            for name, dtype, shape, part in _read_manifest(self._keys, head.version, writer, text):
                whole = wholes.setdefault(name, _Whole(dtype, shape, {}))
                if (dtype, shape) != whole[:2]:
                    raise ValueError(f"weights: writers disagree on {name!r}: {dtype} {shape}, {whole.dtype} {whole.shape}")
                whole.parts.setdefault(part.place, part)  # some writers hold the same
        return wholes

    def _wanted(self, name: str, wholes: Mapping[str, _Whole]) -> Iterator[tuple[_Stored, _Box]]:
        """Parts with something new for a tensor, and the range of each."""
        tensor, own, whole = self._tensors[name], self._places[name], wholes.get(name)
        if whole is None:
            raise ValueError(f"weights: {name!r} is not published")
        if whole.dtype != _dtype_name(tensor):
            raise TypeError(f"weights: {name!r} is {whole.dtype}, the tensor to fill {_dtype_name(tensor)}")
        if whole.shape != own.shape:
            raise ValueError(f"weights: {name!r} has shape {whole.shape}, the tensor to fill is of one of {own.shape}")
        if self.version is not None and self._held[name] == self._digests(name, wholes):
            return  # the same parts were there for a whole version
        end = tuple(at + length for at, length in zip(own.start, tensor.shape))
        boxes = []
        for part in whole.parts.values():
            box = _Box(tuple(map(max, part.start, own.start)),
                       tuple(min(at + length, last) for at, length, last in zip(part.start, part.extent, end)))
            if any(extent <= 0 for extent in box.shape):
                continue
            boxes.append(box)
            if self._held[name].get(part.place) != part.digest:
                yield part, box
        # As many elements, and none of them twice: so none is left out.
        if sum(math.prod(box.shape) for box in boxes) != math.prod(tensor.shape) or _overlap(boxes):
            raise ValueError(f"weights: the published parts of {name!r} leave out or overlap what is to be filled")

    @staticmethod
    def _digests(name: str, wholes: Mapping[str, _Whole]) -> dict[tuple[Ints, Ints], str]:
        return {place: part.digest for place, part in wholes[name].parts.items()}

    def _itemsize(self, name: str) -> int:
        tensor = self._tensors[name]
        return int(tensor.element_size()) if is_torch(tensor) else int(tensor.itemsize)

    # ---- fetching

    def _fetch_all(self, wanted: list[tuple[str, _Stored, _Box]]) -> None:
        small = []
        for name, part, box in wanted:
            if math.prod(part.extent) * self._itemsize(name) <= SMALL_BYTES:
                small.append((name, part, box))
            else:
                self._fetch(name, part, box)
                self._held[name][part.place] = part.digest
        for first in range(0, len(small), BATCH):
            self._fetch_small(small[first:first + BATCH])

    def _fetch_small(self, wanted: list[tuple[str, _Stored, _Box]]) -> None:
        for (name, part, box), data in zip(wanted, self._store.get_many([part.key for _, part, _ in wanted])):
            if data is None:
                raise NotFound(f"no key {part.key!r}")
            elements = np.frombuffer(data, dtype=_BITS[self._itemsize(name)]).reshape(part.extent)
            self._write(name, box, elements[box.within(part.start)])
            self._held[name][part.place] = part.digest

    def _fetch(self, name: str, part: _Stored, box: _Box) -> None:
        """Read a range of a part into the tensor: at once if both are dense, else by way of a chunk, or by halves."""
        strides = [math.prod(part.extent[axis + 1:]) for axis in range(len(part.extent))]
        first = sum((low - at) * stride for low, at, stride in zip(box.low, part.start, strides))
        span = 1 + sum((extent - 1) * stride for extent, stride in zip(box.shape, strides))
        count, size = math.prod(box.shape), self._itemsize(name)
        room = self._room(name, box) if span == count else None
        if room is not None:
            self._store.get_into(part.key, room, offset=first * size)
        elif span * size <= PIECE_BYTES_MIN or span * size <= min(CHUNK_BYTES, count * size * WASTE_MAX):
            chunk = np.empty(span, dtype=_BITS[size])
            self._store.get_into(part.key, chunk, offset=first * size)
            self._write(name, box, np.lib.stride_tricks.as_strided(chunk, box.shape, [stride * size for stride in strides]))
        else:
            for half in box.halves():
                self._fetch(name, part, half)

    def _room(self, name: str, box: _Box) -> Array | None:
        """The tensor's own memory for a range, if that is one piece on the CPU."""
        tensor = self._tensors[name]
        if not _on_cpu(tensor):
            return None
        room = _bits(tensor)[box.within(self._places[name].start)]
        return room.reshape(-1) if room.flags.c_contiguous else None

    def _write(self, name: str, box: _Box, elements: Array) -> None:
        tensor, index = self._tensors[name], box.within(self._places[name].start)
        if _on_cpu(tensor):
            _bits(tensor)[index] = elements
            return
        import torch

        own = np.array(elements, order="C")  # may be written, as torch wants it; without a dimension if it had none
        tensor.detach()[index].copy_(torch.from_numpy(own).view(tensor.dtype))
