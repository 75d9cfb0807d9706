# SPDX-License-Identifier: Apache-2.0
"""Values under keys: which file below a key is its value, and how one takes another's place."""
from __future__ import annotations

import contextlib
import pathlib
import tempfile
import time
from typing import TYPE_CHECKING, Any

from .errors import DataStoreError, StoreRefused
from .key_utils import ParsedKey, parse_key
from .local_offers import Offer, offers
from .rsync_client import Fetch
from .spool import spool
from .types import BroadcastWindow, Lifespan
from .values import ValueName, newest, read_value, write_value

if TYPE_CHECKING:
    from .data_store_client import DataStoreClient

__all__ = ["get_value", "offer_value", "others_than_values", "put_value", "remove_others", "remove_values", "replaced_by",
           "values_if_any"]

TRIES = 10  # of a get whose value others replace while it is fetched
TOO_MANY_NAMES = 413  # HTTP's status


def values_of(client: DataStoreClient, key: str) -> list[ValueName]:
    """The values below a key: one, or for a moment two, or what others offer that has been replaced since."""
    items = client.metadata_client.list_keys(key)["items"]
    itself = key.rpartition("/")[2]  # a listing of a file names that
    files = [str(item["name"]) for item in items if not item["is_directory"] and item["name"] != itself]
    return [name for name in map(ValueName.of, files) if name]


def values_if_any(client: DataStoreClient, key: str) -> list[ValueName]:
    """The same; a folder of more names than a store lists is taken for one without values."""
    try:
        return values_of(client, key)
    except StoreRefused as error:
        if error.status == TOO_MANY_NAMES:
            return []
        raise


def others_than_values(client: DataStoreClient, key: str) -> bool:
    """Whether the store has other things below a key."""
    items = client.metadata_client.list_keys(key)["items"]
    return any(item["locale"] == "store" and (item["is_directory"] or not ValueName.of(str(item["name"]))) for item in items)


def value_key(key: str, name: ValueName) -> ParsedKey:
    return parse_key(f"{key}/{name}")


def put_value(client: DataStoreClient, key: str, kind: str, pieces: list[Any], lifespan: Lifespan, service: str | None,
              verbose: bool) -> None:
    """Put a value's file into the store."""
    there = values_of(client, key)
    name = following(key, there, kind)
    with tempfile.TemporaryDirectory(prefix="penstock-value-") as folder:
        path = pathlib.Path(folder) / str(name)
        write_value(path, pieces)
        client.place(parse_key(key), True, lambda place: client.send(value_key(place.full_key, name), [str(path)], verbose=verbose))
    client.register(value_key(key, name).full_key, lifespan, service)
    client.register(key, lifespan, service)  # a service that goes takes the folder with it, too
    remove_others(client, key, there)


def offer_value(client: DataStoreClient, key: str, kind: str, pieces: list[Any], lifespan: Lifespan, service: str | None) -> None:
    """Offer a value's file from this pod."""
    there = values_of(client, key)
    name = following(key, there, kind)
    folder = spool.new_folder()
    try:
        write_value(folder / str(name), pieces)
        offers.add(Offer(client.metadata_client, client.agent, value_key(key, name).full_key, str(folder / str(name)), False,
                         lifespan, service, folder))
    except BaseException:
        spool.remove(folder)
        raise
    remove_others(client, key, there)


def get_value(client: DataStoreClient, key: str, dest: Any, force: bool, verbose: bool, broadcast: BroadcastWindow | None = None,
              group: str | None = None) -> tuple[bool, Any]:
    """Whether the key has a value, and the value."""
    name = newest(values_if_any(client, key))
    for _ in range(TRIES):
        if name is None:
            return False, None
        # From a folder that is kept other pods fetch it.
        kept = spool.kept(f"{client.server.url} {client.namespace}/{key}") if broadcast else None
        try:
            with kept or tempfile.TemporaryDirectory(prefix="penstock-value-") as folder:
                client.fetch(value_key(key, name), Fetch(str(folder), force=force, verbose=verbose), broadcast, group)
                return True, read_value(pathlib.Path(folder) / str(name), name.kind, dest)
        except DataStoreError:
            tried, name = name, newest(values_of(client, key))
            if tried == name:
                raise
    raise DataStoreError(f"{key}: its value is replaced quicker than it can be fetched")


def remove_values(client: DataStoreClient, key: str) -> bool:
    """Delete the value under a key, and the folder in which it lay if that has nothing else. Whether there was one."""
    there = values_if_any(client, key)
    for name in there:
        client.remove_key(value_key(key, name).full_key)
    if there:
        with contextlib.suppress(StoreRefused):  # other keys are below it
            client.remove_key(key)
    return bool(there)


def following(key: str, there: list[ValueName], kind: str) -> ValueName:
    """A name that was never used: what a pod offered long ago, and offers again, is older than it."""
    last = newest(there)
    name = ValueName(max(last.number + 1 if last else 0, time.time_ns() // 1_000_000), kind)
    if ValueName.of(str(name)) != name:
        raise DataStoreError(f"{key}: there is a value {last}, behind which no other can come; remove it")
    return name


def replaced_by(there: list[ValueName], folders: list[str]) -> list[ValueName]:
    """Values that are gone when what these folders have is put in their place."""
    return [name for name in there if not any((pathlib.Path(folder) / str(name)).exists() for folder in folders)]


def remove_others(client: DataStoreClient, key: str, names: list[ValueName]) -> None:
    with contextlib.suppress(DataStoreError):  # they do not count, and the next put removes them
        for name in names:
            client.remove_key(value_key(key, name).full_key)
