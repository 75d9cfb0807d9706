# SPDX-License-Identifier: Apache-2.0
"""To which trace calls belong: by context, so that tasks and threads keep theirs apart."""
from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextvars import ContextVar

from . import _core

__all__ = ["current", "traced"]

_used = False
_given: ContextVar[str | None] = ContextVar("penstock_traceparent", default=None)


@contextlib.contextmanager
def traced(traceparent: str | None) -> Iterator[None]:
    """Have calls within belong to a trace.

    Parameters
    ----------
    traceparent
        Of the span that asks, as in W3C's Trace Context (``"00-TRACE-SPAN-FLAGS"``). None: what OpenTelemetry has
        as its current span, if anything.

    Raises
    ------
    Invalid
        It is no traceparent.
    """
    global _used
    before = current()
    _core._trace(traceparent)  # which also has every call ask for the current one from now on
    _used = True
    token = _given.set(traceparent)
    try:
        yield
    finally:
        _given.reset(token)
        _core._trace(before)


def used() -> bool:
    """Whether the program has traces at all."""
    return _used or "opentelemetry.trace" in sys.modules


def current() -> str | None:
    """The traceparent that a call would have now: of `traced`, else of OpenTelemetry's current span, if the program uses it."""
    given = _given.get()
    api = sys.modules.get("opentelemetry.trace") if given is None else None
    if api is None:
        return given
    span = api.get_current_span().get_span_context()
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags & 0xff:02x}" if span.is_valid else None
