"""What arrays, tensors and files share: views where there are any, and a word where a value may be evicted."""
from __future__ import annotations

import os
import threading
import warnings
import weakref
from typing import TYPE_CHECKING, Any

from .errors import LimitReached, Unsupported
from .records import key_bytes

if TYPE_CHECKING:
    from . import Store, View
    from ._core import Key

_PLACES_MAX = 1024
_checked: weakref.WeakKeyDictionary[Store, set[bytes]] = weakref.WeakKeyDictionary()
_handles: weakref.WeakValueDictionary[tuple[Any, ...], Store] = weakref.WeakValueDictionary()
_lock = threading.Lock()


class CacheWarning(UserWarning):
    """Something that cannot be made anew lies in a `cache` prefix, from which the store may evict it."""


def keep_or_warn(store: Store, key: Key) -> None:
    """Warn when `key`, which is there, belongs to a `cache` prefix. Asks once for each place (what is before the last slash)."""
    place = key_bytes(key).rpartition(b"/")[0]
    with _lock:
        places = _checked.setdefault(store, set())
        if place in places or len(places) >= _PLACES_MAX:
            return
        places.add(place)
    try:
        cache = store.head(key).cache
    except KeyError:  # deleted since
        return
    if cache:
        warnings.warn(f"{key!r} lies in a cache prefix: the store may evict it", CacheWarning, stacklevel=3)


def view_or_none(store: Store, key: Key, *, required: bool = False) -> View | None:
    """A view of the value; None where the store shares no memory or has granted all that it does, unless `required`."""
    try:
        return store.view(key)
    except (Unsupported, LimitReached):
        if required:
            raise
        return None


def shared_store(url: str, **options: Any) -> Store:
    """The one store of this process with that URL and those options; it is closed when nobody uses it any more."""
    from . import open as open_store

    name = (os.getpid(), url, *sorted(options.items()))
    with _lock:
        store = _handles.get(name)
        if store is None or store.closed:
            store = _handles[name] = open_store(url, **options)
        return store
