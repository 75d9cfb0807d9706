# SPDX-License-Identifier: Apache-2.0
"""Storage for ``torch.distributed.checkpoint`` in penstock.

>>> import torch.distributed.checkpoint as dcp
>>> from penstock.checkpoint import PenstockReader, PenstockWriter
>>> dcp.save(state, storage_writer=PenstockWriter("node://127.0.0.1:7000", "run7/step1000"))
>>> dcp.load(state, storage_reader=PenstockReader("node://127.0.0.1:7000", "run7/step1000"))

Each rank puts its tensors, one value each, as the bytes that they are. The metadata, as JSON, comes last and makes the
checkpoint visible; saving over one that is there replaces it at that moment, and then deletes the old values, with those of
saves that were killed. Of several saves to one id at once the first to end counts; the others raise Stale. Nothing of tensors
or metadata is pickled; for other objects the planner of torch decides (its own pickles them).
"""
from __future__ import annotations

import io
import json
import os
import re
import secrets
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint.metadata import (BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex,
                                                   StorageMeta, TensorProperties, TensorStorageMetadata)
from torch.distributed.checkpoint.planner import (LoadItemType, LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner,
                                                  WriteItem, WriteItemType)
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from ._places import keep_or_warn, shared_store, view_or_none
from .errors import Exists, NotFound, Stale, Unsupported
from .tensors import _bytes_of, _read_only

if TYPE_CHECKING:
    from . import Store

METADATA = "metadata.json"
BATCH_BYTES = 64 << 20
FORMAT = 1

_VALUE = re.compile(rb"[0-9a-f]{16}/[0-9]+\.[0-9]+")  # below a checkpoint's id; no key of another checkpoint there is like it


# ---- metadata as JSON


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dtype(name: Any) -> torch.dtype:
    dtype = getattr(torch, str(name), None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"the checkpoint has the dtype {name!r}, which this torch has not")
    return dtype


def _describe(item: Any) -> dict[str, Any] | None:
    if isinstance(item, BytesStorageMetadata):
        return None
    return {"dtype": _dtype_name(item.properties.dtype), "size": list(item.size),
            "chunks": [[list(chunk.offsets), list(chunk.sizes)] for chunk in item.chunks]}


def _item(described: Any) -> TensorStorageMetadata | BytesStorageMetadata:
    if described is None:
        return BytesStorageMetadata()
    chunks = [ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)) for offsets, sizes in described["chunks"]]
    return TensorStorageMetadata(TensorProperties(dtype=_dtype(described["dtype"])), torch.Size(described["size"]), chunks)


def _to_json(metadata: Metadata, values: dict[MetadataIndex, tuple[str, list[int]]]) -> bytes:
    planner = metadata.planner_data
    if planner is not None and not isinstance(planner, dict):
        raise TypeError(f"planner data of type {type(planner).__name__} would need pickling")
    text = {
        "format": FORMAT,
        "items": {name: _describe(item) for name, item in metadata.state_dict_metadata.items()},
        "paths": None if planner is None else {name: list(path) for name, path in planner.items()},
        "values": [[index.fqn, None if index.offset is None else list(index.offset), key, shape]
                   for index, (key, shape) in values.items()],
    }
    return json.dumps(text, separators=(",", ":")).encode()


def _from_json(text: bytes) -> Metadata:
    try:
        found = json.loads(text)
        if found["format"] != FORMAT:
            raise ValueError(f"its format is {found['format']!r}")
        items = {name: _item(described) for name, described in found["items"].items()}
        paths = None if found["paths"] is None else {name: tuple(path) for name, path in found["paths"].items()}
        values = {MetadataIndex(name, None if offset is None else torch.Size(offset)): (str(key), tuple(shape))
                  for name, offset, key, shape in found["values"]}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"the checkpoint's metadata is malformed: {error}") from None
    return Metadata(items, planner_data=paths, storage_data=values)


class _Place:
    """A checkpoint's keys in a store."""

    def __init__(self, url: str, checkpoint_id: str | os.PathLike[str] | None = None, **options: Any) -> None:
        self.url, self._options = url, options
        self._id = "" if checkpoint_id is None else os.fspath(checkpoint_id).strip("/")

    @property
    def store(self) -> Store:
        self._held = shared_store(self.url, **self._options)  # else it ends with the call, if nobody else uses it
        return self._held

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id:
            self._id = os.fspath(checkpoint_id).strip("/")

    @property
    def checkpoint_id(self) -> str:
        """In front of the checkpoint's keys."""
        return self._id

    def _key(self, name: str) -> str:
        return f"{self._id}/{name}" if self._id else name

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return "://" not in os.fspath(checkpoint_id)


class PenstockWriter(_Place, StorageWriter):
    """Writes checkpoints.

    Parameters
    ----------
    url : str
        As of :func:`penstock.open`. Every rank connects. With ``mem:`` there is but this process, and what it stores ends with
        the last writer or reader of that URL.
    checkpoint_id : str, optional
        In front of the checkpoint's keys; should be of class `keep`. ``dcp.save(checkpoint_id=)`` sets it as well.
    **options
        `secret_file`, `timeout`, `connect_timeout`, as of :func:`penstock.open`.
    """

    def __init__(self, url: str, checkpoint_id: str | os.PathLike[str] | None = None, **options: Any) -> None:
        super().__init__(url, checkpoint_id, **options)
        self._before: dict[int, int] = {}  # generation of the metadata as a save began, by the save's thread

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        super().reset(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **options: Any) -> None:
        pass

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        self._before[threading.get_ident()] = self._generation()
        return [replace(plan, storage_data=str(rank)) for rank, plan in enumerate(plans)]

    def _generation(self) -> int:
        """Of the metadata that are there; 0 if there are none."""
        try:
            return self.store.head(self._key(METADATA)).generation
        except NotFound:
            return 0

    def _put(self, items: list[tuple[WriteItem, str, Any, list[int]]]) -> list[WriteResult]:
        self.store.put_many([(self._key(name), data) for _, name, data, _ in items])
        return [WriteResult(item.index, memoryview(data).nbytes, (name, shape)) for item, name, data, shape in items]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        results: list[WriteResult] = []
        batch: list[tuple[WriteItem, str, Any, list[int]]] = []
        batch_bytes = 0
        save = secrets.token_hex(8)  # apart from what is there, which stays whole until the end; torch may use a plan again
        for number, item in enumerate(plan.items):
            data, shape = _resolve(planner, item)
            batch.append((item, f"{save}/{plan.storage_data}.{number}", data, shape))
            batch_bytes += memoryview(data).nbytes
            if batch_bytes >= BATCH_BYTES:
                results += self._put(batch)
                batch, batch_bytes = [], 0
        results += self._put(batch)
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        values = {result.index: result.storage_data for rank in results for result in rank}
        mine = {self._key(name).encode() for name, _ in values.values()}
        old = self._values() - mine  # of saves that have ended, or find below that they are too late
        before = self._before.pop(threading.get_ident(), None)
        try:
            self.store.put(self._key(METADATA), _to_json(metadata, values), checksum=True,
                           if_absent=before == 0, if_generation=before or None)
        except (Exists, Stale):
            self.store.delete_many(mine)
            raise Stale(f"checkpoint: another save to {self._id!r} has ended since this one began") from None
        except Unsupported:
            self.store.delete_many(mine)
            raise Unsupported(f"checkpoint: {self._id!r} is there, and lies anywhere in its pool: no value replaces it") from None
        keep_or_warn(self.store, self._key(METADATA))
        self.store.delete_many(old)

    def _values(self) -> set[bytes]:
        """Keys of all values that saves to this id have put."""
        root = self._key("").encode()
        return {entry.key for entry in self.store.list(root) if _VALUE.fullmatch(entry.key[len(root):])}

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta(checkpoint_id=self.checkpoint_id)


def _resolve(planner: SavePlanner, item: WriteItem) -> tuple[Any, list[int]]:
    """What of the state dict is to be written, as a buffer, and its shape."""
    data = planner.resolve_data(item)
    if item.type == WriteItemType.BYTE_IO:
        assert isinstance(data, io.BytesIO)
        return data.getbuffer(), []
    assert isinstance(data, torch.Tensor)
    data = data.detach()
    if data.layout != torch.strided or data.is_quantized:
        raise TypeError(f"checkpoint: {item.index.fqn!r} is no dense tensor ({data.layout}, {data.dtype})")
    data = data.resolve_conj().resolve_neg()  # of a view that says so the bytes are others
    return _bytes_of(data.cpu().contiguous()), list(data.shape)


class PenstockReader(_Place, StorageReader):
    """Reads checkpoints; parameters as of `PenstockWriter`."""

    _values: dict[MetadataIndex, tuple[str, tuple[int, ...]]]

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        super().reset(checkpoint_id)

    def read_metadata(self, *args: Any, **options: Any) -> Metadata:
        try:
            return _from_json(self.store.get(self._key(METADATA)))
        except NotFound:
            raise FileNotFoundError(f"no checkpoint {self._id!r} in {self.url}") from None

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **options: Any) -> None:
        self._dtypes = {name: item.properties.dtype for name, item in metadata.state_dict_metadata.items()
                        if isinstance(item, TensorStorageMetadata)}
        self._values = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def _tensor(self, item: ReadItem) -> torch.Tensor:
        """The stored piece that an item reads from, in place where that is possible."""
        name, shape = self._values[item.storage_index]
        dtype = self._dtypes[item.storage_index.fqn]
        key = self._key(name)
        view = view_or_none(self.store, key)
        memory = memoryview(self.store.get(key)) if view is None else memoryview(view)
        if memory.nbytes != torch.Size(shape).numel() * dtype.itemsize:
            raise ValueError(f"checkpoint: {key!r} has {memory.nbytes} bytes, not those of {dtype} {tuple(shape)}")
        if not memory.nbytes:
            return torch.empty(shape, dtype=dtype)
        flat = _read_only(memory)
        return (flat.clone() if flat.data_ptr() % dtype.itemsize else flat).view(dtype).view(shape)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(self.store.get(self._key(self._values[item.storage_index][0]))))
                continue
            stored = self._tensor(item)
            for dim, (offset, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
                stored = stored.narrow(dim, offset, length)
            target = planner.resolve_tensor(item).detach()
            if target.shape != stored.shape:
                raise ValueError(f"checkpoint: {item.storage_index.fqn!r} is to be read into {tuple(target.shape)},"
                                 f" stored is {tuple(stored.shape)}")
            target.copy_(stored)
            planner.commit_tensor(item, target)
        future: Future[None] = Future()
        future.set_result(None)
        return future
