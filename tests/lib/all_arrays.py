# SPDX-License-Identifier: Apache-2.0
"""Arrays of all kinds that can be shared: every dtype, and every way in which one may lie in memory."""
from __future__ import annotations

from typing import Any

import numpy as np

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None


def arrays() -> dict[str, Any]:
    base = np.arange(60, dtype=np.float32).reshape(6, 10)
    out: dict[str, Any] = {
        name: np.array([[0, 1, 1], [1, 0, 1]]).astype(name)
        for name in ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64",
                     "complex64", "complex128")}
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e3m4", "float8_e8m0fnu") if ml_dtypes else ():
        out[name] = np.array([1, 2, 0.5]).astype(getattr(ml_dtypes, name))
    out.update(number=np.array(7.5), none=np.zeros((3, 0, 2), np.int16), row=base[1:5, 2:7], turned=base.T, back=base[::-1, ::-2],
               fortran=np.asfortranarray(base), same=np.broadcast_to(np.float64(3), (4, 5)), column=base[:, 3], odd=np.frombuffer(
                   b"xabcdefgh", np.uint8)[1:].view(np.int32), long=np.arange(100_000), **{"a/b": np.ones(3), "%2F..": np.zeros(1),
                                                                                            "ünï": np.ones(2)})
    return out
