# SPDX-License-Identifier: Apache-2.0
"""State dicts of torch as single values, in the safetensors format; nothing is pickled.

A state dict is one value, so that it becomes visible whole or not at all, and is a safetensors file for everybody else.
What that format cannot say lies as JSON in its metadata, under ``penstock``: the nesting of dicts, lists and tuples
with their numbers and texts, and which tensors are views of the same storage. A flat dict of plain tensors needs none.

Tensors are called by their path in the state dict, joined by dots: ``optimizer.state.0.exp_avg``.
"""
from __future__ import annotations

import fnmatch
import json
import warnings
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, NamedTuple, Sequence, Union

import numpy as np
import torch

from . import safetensors
from ._nesting import MISSING, Path, flatten, leaves, partners, unflatten, unused
from ._places import keep_or_warn, unfillable, view_or_none, without_memory
from .safetensors import FormatError, Layout

if TYPE_CHECKING:
    from . import Store
    from ._core import Key

NOTE = "penstock"
PIECES_MAX = 1000  # of one put or get; the library takes 1,024
SMALL_BYTES = 1 << 16
STORAGE = "~storage"
ELEMENT_BYTES_MAX = 16

Filter = Union[str, Iterable[str], Callable[[str], bool], None]
Index = Union[slice, tuple[slice, ...]]
Tree = Any  # dicts, lists and tuples of tensors, numbers and texts

# The format's names of what torch has; the other dtypes are stored as bytes, and named in the note.
_NAMES: dict[torch.dtype, str] = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.int32: "I32", torch.int64: "I64",
    torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64", torch.complex64: "C64",
    **{getattr(torch, ours): theirs
       for ours, theirs in (("float8_e4m3fn", "F8_E4M3"), ("float8_e5m2", "F8_E5M2"), ("float8_e8m0fnu", "F8_E8M0"),
                            ("float8_e4m3fnuz", "F8_E4M3FNUZ"), ("float8_e5m2fnuz", "F8_E5M2FNUZ"),
                            ("uint16", "U16"), ("uint32", "U32"), ("uint64", "U64")) if hasattr(torch, ours)},
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}


class _Stored(NamedTuple):
    """A tensor of the file: its name, dtype and shape there, and the bytes that go in."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: torch.Tensor


# ---- the nesting


def _flatten(value: Any, tensors: dict[str, torch.Tensor], copied: set[str]) -> Any:
    """The JSON form of a tree; its tensors go to `tensors` by name, and to `copied` which have not the leaf's memory."""

    def leaf(value: Any, path: str) -> Any:
        if isinstance(value, torch.Tensor):
            name = unused(path or "tensor", tensors)
            tensors[name] = value.detach()
            return {"t": name}
        if isinstance(value, torch.Size):
            return {"s": list(value)}
        if isinstance(value, np.ndarray):
            name = leaf(_tensor_of(value, path), path)["t"]
            if not _is_tensor(value):
                copied.add(name)
            return {"n": name}
        if isinstance(value, bytes):
            data = torch.frombuffer(bytearray(value), dtype=torch.uint8) if value else torch.empty(0, dtype=torch.uint8)
            name = leaf(data, path)["t"]
            copied.add(name)
            return {"y": name}
        return None

    return flatten(value, leaf)


def _is_tensor(array: np.ndarray[Any, np.dtype[Any]]) -> bool:
    """Whether a tensor can have the array's memory: one is never read-only, nor runs backwards."""
    return bool(array.flags.writeable) and all(stride >= 0 for stride in array.strides)


def _tensor_of(array: np.ndarray[Any, np.dtype[Any]], path: str) -> torch.Tensor:
    """The array's memory as a tensor, or a copy if no tensor can have it."""
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"state dict: {path!r} is a masked array, which would lose its mask: take .data and .mask")
    try:
        return torch.from_numpy(array if _is_tensor(array) else array.copy())
    except (TypeError, ValueError) as error:
        raise TypeError(f"state dict: {path!r} is an array of dtype {array.dtype}: {error}") from None


_FROM_TENSOR: dict[str, Callable[[torch.Tensor], Any]] = {
    "t": lambda tensor: tensor, "n": lambda tensor: tensor.numpy(), "y": lambda tensor: tensor.numpy().tobytes()}


def _unflatten(node: Any, tensors: Mapping[str, torch.Tensor]) -> Tree:
    """The tree of a note, without the tensors that were not wanted."""

    def leaf(kind: str, inner: Any) -> Any:
        if kind in _FROM_TENSOR and isinstance(inner, str):
            try:
                return _FROM_TENSOR[kind](tensors[inner]) if inner in tensors else MISSING
            except TypeError as error:  # NumPy has no such elements
                raise FormatError(f"damaged state dict: {inner!r} is no array: {error}") from None
        if kind == "s" and isinstance(inner, list) and all(type(one) is int and abs(one) < 1 << 63 for one in inner):
            return torch.Size(inner)
        return None

    return unflatten(node, leaf)


# ---- tensors that share memory


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses that a tensor can touch: [begin, end)."""
    begin = tensor.data_ptr()
    last = sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride()))
    return int(begin), int(begin + (last + 1) * tensor.element_size())


def _raw(tensor: torch.Tensor, skip: int) -> torch.Tensor:
    """The bytes of memory that a tensor can touch, without the first ones. Each array has a storage of its own."""
    begin, end = _span(tensor)
    offset = tensor.storage_offset() * tensor.element_size() + skip
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage(), offset, (end - begin - skip,), (1,))


def _check_kind(name: str, tensor: torch.Tensor) -> None:
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise TypeError(f"state dict: {name!r} is no dense tensor ({tensor.layout}, {tensor.dtype})")
    if tensor.is_meta:
        raise TypeError(f"state dict: {name!r} is on the meta device and has no data")
    if fault := without_memory(tensor):
        raise TypeError(f"state dict: {name!r} {fault}")


def _lead(names: Sequence[str], tensors: Mapping[str, torch.Tensor]) -> int | None:
    """How many bytes to put in front of a group's, so that each begins at a multiple of its element; None: no number does."""
    begin = min(_span(tensors[name])[0] for name in names)
    return next((lead for lead in range(ELEMENT_BYTES_MAX) if all(
        (_span(tensors[name])[0] - begin + lead) % tensors[name].element_size() == 0 for name in names)), None)


def _sharing(tensors: Mapping[str, torch.Tensor]) -> list[list[str]]:
    """Names of tensors that touch the same bytes, in groups; each name comes once."""
    place = {name: index for index, name in enumerate(tensors)}
    here = [name for name in tensors if tensors[name].device.type == "cpu" and tensors[name].numel()]
    groups, end = [[name] for name in place.keys() - here], -1
    for name in sorted(here, key=lambda one: _span(tensors[one])):
        begin, last = _span(tensors[name])
        if begin >= end:
            groups.append([])
        groups[-1].append(name)
        end = max(end, last)
    groups = [part for group in groups for part in ([group] if _lead(group, tensors) is not None else [[one] for one in group])]
    return sorted(groups, key=lambda names: min(place[name] for name in names))


def _plain(name: str, tensor: torch.Tensor) -> _Stored:
    return _Stored(name, _NAMES[tensor.dtype], tuple(tensor.shape), tensor.cpu().contiguous())


def _as_views(names: Sequence[str], tensors: Mapping[str, torch.Tensor], notes: dict[str, Any]) -> _Stored:
    """One stored tensor under several: a member that covers the others, or the bytes that they touch."""
    spans = {name: _span(tensors[name]) for name in names}
    begin, end = min(span[0] for span in spans.values()), max(span[1] for span in spans.values())
    lead = _lead(names, tensors)
    assert lead is not None
    base = next((name for name in names if lead == 0 and spans[name] == (begin, end) and tensors[name].is_contiguous()
                 and tensors[name].dtype in _NAMES), None)
    if base is None:
        done, begin = begin, begin - lead
        # As long as the widest element's multiple, so that what comes behind lies aligned as well.
        data = torch.zeros((end - begin + ELEMENT_BYTES_MAX - 1) // ELEMENT_BYTES_MAX * ELEMENT_BYTES_MAX, dtype=torch.uint8)
        for name, (first, last) in sorted(spans.items(), key=lambda one: one[1]):
            if last > done:
                data[done - begin:last - begin].copy_(_raw(tensors[name], done - first))
                done = last
        stored = _Stored(f"{names[0]}{STORAGE}", "U8", (data.numel(),), data)
    else:
        stored = _plain(base, tensors[base])
    for name in names:
        tensor = tensors[name]
        if name != base:
            notes[name] = {"of": stored.name, "dtype": str(tensor.dtype).removeprefix("torch."),
                           "offset": spans[name][0] - begin, "shape": list(tensor.shape), "stride": list(tensor.stride())}
    return stored


def _arrange(tensors: Mapping[str, torch.Tensor]) -> tuple[list[_Stored], dict[str, Any]]:
    """What is stored, the widest elements first so that all lie aligned, and the notes on views."""
    stored: list[_Stored] = []
    notes: dict[str, Any] = {}
    for names in _sharing(tensors):
        only = tensors[names[0]]
        if len(names) == 1 and only.dtype in _NAMES:
            stored.append(_plain(names[0], only))
        elif len(names) == 1:
            stored.append(_as_views(names, {names[0]: only.cpu().contiguous()}, notes))
        else:
            stored.append(_as_views(names, tensors, notes))
    stored.sort(key=lambda one: -(ELEMENT_BYTES_MAX if one.name.endswith(STORAGE) else one.data.element_size()))
    return stored, notes


# ---- saving


def _bytes_of(tensor: torch.Tensor) -> Any:
    """A contiguous tensor's bytes as a buffer."""
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy()  # one element may have any stride


def _gather(stored: Iterable[_Stored], header: bytes) -> list[Any]:
    """The value's pieces in order; runs of small ones are put together."""
    pieces: list[Any] = [header]
    small = bytearray()
    for one in stored:
        data = one.data
        if data.nbytes == 0:
            continue
        if data.nbytes <= SMALL_BYTES:
            small += memoryview(_bytes_of(data))
            continue
        if small:
            pieces.append(small)
            small = bytearray()
        pieces.append(_bytes_of(data))
    return pieces + ([small] if small else [])


def file_pieces(tree: Tree) -> list[Any]:
    """The safetensors file of a state dict or a tensor, as buffers that follow each other. Raises as :func:`save_state_dict`."""
    tensors: dict[str, torch.Tensor] = {}
    nesting = _flatten(tree, tensors, set())
    for name, tensor in tensors.items():
        _check_kind(name, tensor)
        tensors[name] = tensor.resolve_conj().resolve_neg()  # of a view that says so the bytes are others
    stored, notes = _arrange(tensors)
    flat = {"d": [[name, {"t": name}] for name in tensors]}
    note = {} if nesting == flat and not notes else {"tree": nesting, "views": notes}
    metadata = {"format": "pt"} | ({NOTE: json.dumps(note, separators=(",", ":"))} if note else {})
    header = safetensors.build(((one.name, one.dtype, one.shape) for one in stored), metadata, tensors)
    return _gather(stored, header)


def save_state_dict(store: Store, key: Key, state_dict: Mapping[Any, Any], *, if_absent: bool = False,
                    if_generation: int | None = None, checksum: bool = False) -> int:
    """Store a state dict as one value, visible whole or not at all.

    Parameters
    ----------
    store : Store
    key : str or bytes
    state_dict : mapping
        Dicts (keys are text or whole numbers), lists and tuples, nested at will, of torch tensors, NumPy arrays, numbers, texts,
        bytes, torch.Size, None.
        Tensors of any strided dtype; those of other devices are copied to this one. Tensors that share memory are stored
        once and share it again when they are loaded.
    if_absent, if_generation, checksum
        As of :meth:`Store.put`.

    Returns
    -------
    int
        The value's generation.

    Raises
    ------
    TypeError
        Something in it would need pickling, or is a sparse or quantized tensor, or one that wraps others, such as a DTensor.
    """
    pieces = file_pieces(state_dict)
    conditions: dict[str, Any] = {"if_absent": if_absent, "if_generation": if_generation, "checksum": checksum}
    if len(pieces) <= PIECES_MAX:
        generation = store.put(key, pieces, **conditions)
    else:
        with store.stream(key, **conditions) as stream:
            for piece in pieces:
                stream.write(piece)
            generation = stream.commit()
    keep_or_warn(store, key)
    return generation


# ---- loading


class _Note(NamedTuple):
    tree: Any
    views: dict[str, Any]


def _note_of(layout: Layout) -> _Note:
    text = layout.metadata.get(NOTE)
    if text is None:
        return _Note(None, {})
    try:
        note = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"damaged state dict: {error}") from None
    if not isinstance(note, dict) or not isinstance(note.get("views", {}), dict):
        raise FormatError("damaged state dict: its note is malformed")
    return _Note(note.get("tree"), note.get("views", {}))


def _view_of(name: str, note: Any, bases: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The tensor that a note describes, as a view of the base's storage."""
    try:
        base, dtype = bases[note["of"]], getattr(torch, note["dtype"])
        offset, shape, stride = note["offset"], note["shape"], note["stride"]
        sizes = [offset, *shape, *stride]
        if not isinstance(dtype, torch.dtype) or note["dtype"].startswith("q"):
            raise ValueError("no dtype of dense tensors")
        if not all(type(n) is int and 0 <= n < 1 << 48 for n in sizes):
            raise ValueError("malformed")
        raw = base.reshape(-1).view(torch.uint8)
        last = sum((length - 1) * step for length, step in zip(shape, stride, strict=True)) if all(shape) else -1
        if offset + (last + 1) * dtype.itemsize > raw.numel() or offset % dtype.itemsize:
            raise ValueError("outside of its storage")
        whole = raw[offset:offset + (raw.numel() - offset) // dtype.itemsize * dtype.itemsize].view(dtype)
        return whole.as_strided(shape, stride)
    except (KeyError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise FormatError(f"damaged state dict: tensor {name!r}, a view: {error}") from None


def _wanted(names: Iterable[str], keys: Filter) -> set[str]:
    if keys is None:
        return set(names)
    if callable(keys):
        return {name for name in names if keys(name)}
    patterns = [keys] if isinstance(keys, str) else list(keys)
    return {name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)}


class _Source:
    """A state dict that can be read in parts: from memory, such as a store's view, or by ranges of a stored value."""

    store: Store
    key: Key
    generation: int

    def __init__(self, layout: Layout, flat: torch.Tensor | None = None) -> None:
        self.layout, self.flat = layout, flat  # flat: all of the file, where this process has it in memory
        self.note = _note_of(layout)
        self.shared = {str(note.get("of")) for note in self.note.views.values() if isinstance(note, dict)}

    @classmethod
    def in_memory(cls, memory: memoryview) -> _Source:
        """A whole file."""
        return cls(safetensors.check_memory(memory), _read_only(memory))

    @classmethod
    def in_store(cls, store: Store, key: Key, copy: bool | None) -> _Source:
        view = view_or_none(store, key, required=copy is False)
        if view is not None:
            return cls.in_memory(memoryview(view))
        generation, layout = safetensors.read_layout(store, key)
        source = cls(layout)
        source.store, source.key, source.generation = store, key, generation
        return source

    def base_of(self, name: str) -> str:
        """The stored tensor in which a tensor of the state dict lies."""
        note = self.note.views.get(name)
        if note is None:
            return name
        base = note.get("of") if isinstance(note, dict) else None
        if not isinstance(base, str) or base not in self.layout.tensors:
            raise FormatError(f"damaged state dict: tensor {name!r} is a view of {base!r}, which is not there")
        return base

    def names(self) -> list[str]:
        """The state dict's tensors."""
        hidden = {base for base in map(self.base_of, self.note.views) if base.endswith(STORAGE)}
        return [name for name in self.layout.tensors if name not in hidden] + list(self.note.views)

    def paths(self) -> dict[str, Path]:
        """The keys that lead to each of the state dict's tensors."""
        out: dict[str, Path] = {name: (name,) for name in self.names()}
        nested = leaves(self.note.tree) if self.note.tree is not None else ()
        return out | {name: path for name, path in nested if name in out}

    def dtype_of(self, base: str) -> torch.dtype:
        what = self.layout.tensors[base].dtype
        if what not in _DTYPES:
            raise FormatError(f"tensor {base!r} has the dtype {what}, which this torch has not")
        return _DTYPES[what]

    def in_place(self, base: str) -> torch.Tensor:
        """A stored tensor over the file's memory."""
        assert self.flat is not None
        stored, dtype = self.layout.tensors[base], self.dtype_of(base)
        flat = self.flat[stored.begin:stored.end]
        # Other writers of the format need not align, and stores align small values to 8 bytes. Views may have wider elements.
        # Torch wants the place in the storage aligned as well as the address.
        if (flat.data_ptr() | stored.begin) % (ELEMENT_BYTES_MAX if base in self.shared else dtype.itemsize):
            flat = flat.clone()
        return flat.view(dtype).view(stored.shape)

    def fill(self, targets: Mapping[str, torch.Tensor]) -> None:
        """Read stored tensors into contiguous tensors of the same dtype and shape on the CPU."""
        if self.flat is not None:
            for base, target in targets.items():
                target.copy_(self.in_place(base))
            return
        stored = self.layout.tensors
        bases = sorted((base for base in targets if targets[base].nbytes), key=lambda base: stored[base].begin)
        for run in safetensors.runs((stored[base].begin, stored[base].end) for base in bases):
            for part in safetensors.chunked(run, PIECES_MAX):
                buffers = [_bytes_of(targets[bases[index]]) for index in part]
                self.store.get_into(self.key, buffers, offset=stored[bases[part[0]]].begin,
                                    if_generation=self.generation)

    def read(self, base: str, copy: bool) -> torch.Tensor:
        """A stored tensor: in place unless it has to be a copy."""
        if self.flat is not None and not copy:
            return self.in_place(base)
        out = torch.empty(self.layout.tensors[base].shape, dtype=self.dtype_of(base))
        self.fill({base: out})
        return out

    def read_part(self, base: str, index: Index, copy: bool) -> torch.Tensor:
        """A slice of a stored tensor; by ranges, only the rows from its first to its last are fetched."""
        if self.flat is not None:
            part = self.in_place(base)[index]
            return part.clone(memory_format=torch.contiguous_format) if copy else part
        stored = self.layout.tensors[base]
        first, *rest = index if isinstance(index, tuple) else (index,)
        if not stored.shape or not isinstance(first, slice) or stored.begin == stored.end:
            return self.read(base, True)[index].contiguous()
        rows = range(*first.indices(stored.shape[0]))
        low, high = (min(rows), max(rows) + 1) if rows else (0, 0)
        row_bytes = (stored.end - stored.begin) // stored.shape[0]
        out = torch.empty((high - low, *stored.shape[1:]), dtype=self.dtype_of(base))
        if out.nbytes:
            self.store.get_into(self.key, _bytes_of(out), offset=stored.begin + low * row_bytes,
                                if_generation=self.generation)
        return out[(slice(0, high - low, first.step), *rest)].contiguous()


def _read_only(memory: memoryview) -> torch.Tensor:
    """Memory as a tensor of bytes. Torch knows none that are read-only, and says so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.frombuffer(memory, dtype=torch.uint8)


def _read_all(source: _Source, names: Iterable[str], slices: Mapping[str, Index], copy: bool) -> dict[str, torch.Tensor]:
    """These tensors by name, those that share memory over shared memory again."""
    names = list(names)
    bases: dict[str, torch.Tensor] = {}
    whole = {source.base_of(name) for name in names if name not in slices or name in source.note.views}
    if copy:
        bases = {base: torch.empty(source.layout.tensors[base].shape, dtype=source.dtype_of(base)) for base in whole}
        source.fill(bases)
    else:
        bases = {base: source.read(base, False) for base in whole}
    out = {}
    for name in names:
        if name in source.note.views:
            tensor = _view_of(name, source.note.views[name], bases)
            out[name] = tensor[slices[name]] if name in slices else tensor
        else:
            out[name] = source.read_part(name, slices[name], copy) if name in slices else bases[name]
    return out


def _is_direct(source: _Source, name: str, target: torch.Tensor) -> bool:
    """Whether the value's bytes can go straight into the target."""
    stored = source.layout.tensors.get(name)
    return (stored is not None and target.device.type == "cpu" and target.is_contiguous()
            and not target.is_conj() and not target.is_neg())


def _check_target(name: str, target: torch.Tensor, dtype: torch.dtype, shape: Sequence[int]) -> None:
    if target.dtype != dtype:
        raise TypeError(f"state dict: {name!r} is {dtype}, the tensor to load into {target.dtype}")
    if tuple(target.shape) != tuple(shape):
        raise ValueError(f"state dict: {name!r} has shape {tuple(shape)}, the tensor to load into {tuple(target.shape)}")


def _load_into(source: _Source, targets: Mapping[str, torch.Tensor], slices: Mapping[str, Index]) -> None:
    direct, others = {}, []
    for name, target in targets.items():
        if name not in slices and _is_direct(source, name, target):
            _check_target(name, target, source.dtype_of(name), source.layout.tensors[name].shape)
            direct[name] = target
        else:
            others.append(name)
    read = _read_all(source, others, slices, copy=False)
    for name, tensor in read.items():
        _check_target(name, targets[name], tensor.dtype, tensor.shape)
    source.fill(direct)
    for name, tensor in read.items():
        targets[name].copy_(tensor)


def _match(source: _Source, wanted: set[str], targets: Mapping[str, Path], strict: bool) -> dict[str, str]:
    """The names of targets, by those of the stored tensors that fill them."""
    found = {stored: target for target, stored in partners(targets, source.paths()).items() if stored in wanted}
    missing, unexpected = sorted(targets.keys() - found.values()), sorted(wanted - found.keys())
    if strict and (missing or unexpected):
        raise ValueError(f"state dict: not stored: {missing[:10]}; nowhere to load into: {unexpected[:10]}"
                         f" ({len(missing)} and {len(unexpected)} in all)")
    return found


def load_state_dict(store: Store, key: Key, *, into: Tree = None, keys: Filter = None,
                    slices: Mapping[str, Index] | None = None, strict: bool = True, copy: bool | None = True) -> Tree:
    """Load a state dict, or a part of one.

    Parameters
    ----------
    store : Store
    key : str or bytes
        A value of `save_state_dict`, or any safetensors file.
    into : nested dict of torch.Tensor or numpy.ndarray, optional
        Tensors that are filled, of the same dtypes and shapes (with `slices`: of the slices'), on any device.
    keys : str, iterable of str, or callable, optional
        Which tensors: patterns as of :mod:`fnmatch` over their paths (``"layers.0.*"``), or a predicate.
    slices : mapping of str to slice or tuple of slices, optional
        By path, the part of a tensor that is wanted. Where the store gives no views, only rows are fetched.
    strict : bool
        With `into`: every stored tensor that `keys` lets through has somewhere to go, and the other way round.
    copy : bool, optional
        Without `into`. True: tensors in memory of their own. None: tensors over the store's own memory where that is
        possible ("mem:", unix sockets). False: such, or `Unsupported`. **Torch knows no read-only tensors: a write
        to a tensor in place ends the process, or on "mem:" changes the stored value.**

    Returns
    -------
    nested dict of torch.Tensor
        `into` where it was given; else the state dict with its nesting, without what `keys` left out.

    Raises
    ------
    NotFound, FormatError
    TypeError, ValueError
        Dtypes or shapes differ, or names with `strict`, or a target is bytes or a read-only array; nothing was written
        then.
    Stale
        The value was replaced while it was read by ranges; what `into` holds is not defined then.
    """
    source = _Source.in_store(store, key, copy if into is None else None)
    return _load(source, into, keys, slices or {}, strict, copy is True)


def state_dict_in(memory: memoryview, into: Tree = None) -> Tree:
    """The state dict or tensor of a whole safetensors file in memory: tensors in that memory, or `into`, which is filled.

    Raises as :func:`load_state_dict` with `strict`.
    """
    return _load(_Source.in_memory(memory), into)


def _load(source: _Source, into: Tree, keys: Filter = None, slices: Mapping[str, Index] = MappingProxyType({}),
          strict: bool = True, copy: bool = False) -> Tree:
    names = set(source.names())
    unknown = sorted(slices.keys() - names)
    if unknown:
        raise ValueError(f"state dict: slices of {unknown[:10]}, which are not stored")
    names = _wanted(names, keys)
    if into is not None:
        targets: dict[str, torch.Tensor] = {}
        copied: set[str] = set()
        paths = dict(leaves(_flatten(into, targets, copied)))
        pairs = _match(source, names, paths, strict)
        matched = {stored: targets[name] for stored, name in pairs.items()}
        stuck = sorted(stored for stored, name in pairs.items() if name in copied)
        if stuck:
            raise ValueError(f"state dict: {stuck[:10]} cannot be filled: read-only arrays, arrays that run backwards, or bytes")
        for name, target in matched.items():
            if fault := unfillable(target):
                raise ValueError(f"state dict: {name!r} {fault}")
        with torch.no_grad():
            _load_into(source, matched, slices)
        return into
    found = _read_all(source, names, slices, copy)
    if source.note.tree is None:
        return {name: found[name] for name in source.names() if name in found}
    return _unflatten(source.note.tree, found)
