# SPDX-License-Identifier: Apache-2.0
"""A GPU's memory on a machine without one: tests/unit/gpu/fake_cuda.c, and the library of NCCL that goes with it."""
from __future__ import annotations

import ctypes
import os
import struct
from typing import Any

from support import BUILD

LIBRARIES = BUILD / "tests" / "unit"


def environment(**more: str) -> dict[str, str]:
    """With which a process finds the libraries."""
    path = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": f"{LIBRARIES}{f':{path}' if path else ''}", **more}


class Driver:
    """The driver's calls in this process."""

    def __init__(self) -> None:
        self.calls = ctypes.CDLL(str(LIBRARIES / "libcuda.so.1"))
        context = ctypes.c_void_p()
        self.ask("cuInit", 0)
        self.ask("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.ask("cuCtxPushCurrent_v2", context)

    def ask(self, name: str, *arguments: Any) -> None:
        result = getattr(self.calls, name)(*arguments)
        assert result == 0, f"{name}: {result}"


class Memory:
    """An allocation of this process, on the GPU 0."""

    def __init__(self, driver: Driver, size: int, data: bytes = b"") -> None:
        self.driver, self.size = driver, size
        at = ctypes.c_uint64()
        driver.ask("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
        self.at = at.value
        ctypes.memmove(self.at, data, len(data))

    def read(self) -> bytes:
        return ctypes.string_at(self.at, self.size)

    def close(self) -> None:
        if self.at:
            self.driver.ask("cuMemFree_v2", ctypes.c_uint64(self.at))
        self.at = 0

    def handle(self, offset: int = 0, strides: tuple[int, ...] = (1,)) -> str:
        """As frames say it."""
        ipc = (ctypes.c_char * 64)()
        self.driver.ask("cuIpcGetMemHandle", ipc, ctypes.c_uint64(self.at))
        return (b"pst1" + struct.pack(f"<BBHQQ{len(strides)}q", 2, len(strides), 0, self.size, offset, *strides) + bytes(ipc)).hex()

    def tensor(self, key: str, shape: tuple[int, ...] | None = None, dtype: str = "uint8", **where: Any) -> dict[str, Any]:
        return {"key": key, "ipc_handle": self.handle(**where), "shape": list((self.size,) if shape is None else shape), "dtype": dtype,
                "device": "cuda:0"}


class Array:
    """An array in an allocation of its own, as packages for GPUs show theirs."""

    def __init__(self, driver: Driver, data: Any) -> None:
        self.memory = Memory(driver, max(data.nbytes, 1), data.tobytes())
        self.shape, self.dtype = data.shape, data.dtype
        self.__cuda_array_interface__ = {"shape": data.shape, "typestr": data.dtype.str, "data": (self.memory.at, False), "version": 3,
                                         "strides": None}

    def read(self) -> Any:
        return self.seen(self).copy()

    def close(self) -> None:
        self.memory.close()

    def view(self, index: Any, dtype: str) -> Said:
        part = self.seen(self)[index]
        return Said(self, shape=part.shape, strides=part.strides, data=(part.__array_interface__["data"][0], False))

    @staticmethod
    def seen(array: Any) -> Any:
        """The same memory as NumPy's, which a GPU's is here."""
        import numpy

        class Interface:
            __array_interface__ = array.__cuda_array_interface__

        return numpy.asarray(Interface())


class Said:
    """What an array's interface says, with some of it said otherwise."""

    def __init__(self, array: Array, **more: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, **more}
