# SPDX-License-Identifier: Apache-2.0
"""Files, folders and values in a data store, by key."""
from __future__ import annotations

import contextlib
import os
import pathlib
import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, cast, get_args

from .broadcast import get_by_broadcast, take_part
from .errors import DataStoreError, KeyNotFound, RsyncError, Saturated, TreeError
from .exchange import get_by_exchange, gpu_places, put_by_exchange
from .key_utils import ParsedKey, parse_key
from .local_offers import Offer, offers
from .metadata_client import MetadataClient
from .pod_data_server import PodDataServerClient
from .rsync_client import Fetch, RsyncClient, peer_source
from .server import Server
from .sources import links_below, sources
from .stored_values import (get_value, offer_value, others_than_values, put_value, remove_others, remove_values, replaced_by,
                            values_if_any)
from .tensors import NoFiles, are_tensors, get_tensors, offer_tensors
from .tree_client import TreeClient
from .types import BroadcastWindow, Lifespan, Locale, Transport
from .values import encode, is_target
from .websocket_tunnel import Conversation, Tunnels

__all__ = ["DataStoreClient"]

PathLike = str | os.PathLike[str]
PEERS_MAX = 8  # that one get asks
SATURATED_TRIES = 5
PLACE_TRIES = 5  # of a put whose key others give now a file, now a folder
WAIT_S, AGAIN_S = 60.0, 0.2  # for a key that those who take part are to put, and how often it is looked for


class DataStoreClient:
    """A data store's keys, as files, folders and values. Threads may share one.

    It keeps tunnels open, and what it has found out about the store, until :meth:`close` or the end of a ``with`` block. What is
    put with `locale` "local" outlives it.

    Parameters
    ----------
    namespace : str or None
        Of the keys; ``POD_NAMESPACE`` or "default" if not set.
    server : Server or None
        As the environment says if not set.
    transport : "auto", "rsync" or "native" or None
        Between here and the store; ``PENSTOCK_DATA_TRANSPORT`` or "auto" if not set. "native" takes no `filter_options`.
    """

    def __init__(self, namespace: str | None = None, server: Server | None = None, transport: Transport | None = None) -> None:
        said = transport or os.environ.get("PENSTOCK_DATA_TRANSPORT") or "auto"
        if said not in get_args(Transport):
            raise ValueError(f"transport {said!r} is none of {', '.join(get_args(Transport))}")
        self.transport = cast(Transport, said)
        self.namespace = namespace or os.environ.get("POD_NAMESPACE") or "default"
        self.server = server or Server.from_environment(self.namespace)
        self.metadata_client = MetadataClient(self.namespace, self.server)
        self.tunnels = Tunnels(self.server)
        self._trees: TreeClient | None = None
        self._conversations: set[Conversation] = set()
        self._closed = False

    def close(self) -> None:
        """Release sockets and threads. Transfers underway fail, later calls raise ValueError. A second time does nothing."""
        self._closed = True
        self._trees = None
        for conversation in list(self._conversations):
            conversation.close()
        self.tunnels.close()

    def __enter__(self) -> DataStoreClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def agent(self) -> PodDataServerClient:
        """This pod's."""
        return PodDataServerClient(token=self.server.token)

    def put(self, key: str | Sequence[str], src: PathLike | Sequence[PathLike] | None = None, locale: Locale = "store",
            lifespan: Lifespan = "cluster", contents: bool = False, filter_options: str | None = None, force: bool = False,
            verbose: bool = False, broadcast: BroadcastWindow | None = None, *, data: Any = None) -> None:
        """Put files or folders, or a value, under a key.

        Parameters
        ----------
        key : str or list of str
            "service/path". A file gets this name; a folder, or each of several paths, goes below it under its own name. With
            `contents` a folder has none.
        src : path or list of paths
            Links are followed: what a path leads to has the name.
        locale : "store" or "local"
            "local": one file or folder stays where it is, and others fetch it from this pod as long as this process lives. The pod's
            agent serves it, and is started if there is none. A value becomes a file below ``TMPDIR`` for as long.
        lifespan : "cluster" or "resource"
            "resource": until the service is cleaned up that ``KT_SERVICE_NAME`` names.
        contents, filter_options, force, verbose
            As of :meth:`RsyncClient.upload`; a local put takes `contents` alone, a value none of the first two.
        broadcast : BroadcastWindow or None
            Join its quorum as one that puts; nobody waits for the others. With `locale` "local", tensors, arrays and state dicts
            whose dtypes :func:`penstock.sharing.share` takes become no file: other pods get them from this process's memory.
            Tensors of which all lie on GPUs go to those of the window's other pods, by NCCL if all have it, and nowhere else: all
            wait for each other, and put returns once all have them. `timeout` is the longest that they wait.
        data : bytes, str, array, tensor, or state dict
            In place of `src`. Arrays have any shape and dtype that holds no Python objects, those of ``ml_dtypes`` too; tensors
            any strided layout, and are copied from their device. A state dict is dicts, lists and tuples of tensors, numbers,
            texts and None, nested at will. Readers see the value before or this one, and nothing between.

        Raises
        ------
        TypeError
            `data` is of another type, or has something in it that would need pickling.
        """
        self._check_open()
        if locale not in ("store", "local"):
            raise ValueError(f"locale {locale!r} is neither 'store' nor 'local'")
        if (src is None) == (data is None):
            raise TypeError("put takes either src or data")
        service = os.environ.get("KT_SERVICE_NAME") if lifespan == "resource" else None
        if lifespan == "resource" and not service:
            raise ValueError("lifespan 'resource' needs KT_SERVICE_NAME in the environment")
        keys = parse_all(key)
        if src is None:
            if contents or filter_options:
                raise ValueError("a value has neither contents nor filters")
            places = gpu_places(data) if broadcast else {}
            if broadcast and places:
                for parsed in keys:
                    put_by_exchange(self, parsed.full_key, places, broadcast)
                return
            self._put_value(keys, data, locale, lifespan, service, verbose, broadcast)
        else:
            paths = [os.fspath(path) for path in ([src] if isinstance(src, (str, os.PathLike)) else src)]
            for parsed in keys:
                if locale == "local":
                    self._put_local(parsed, paths, contents, filter_options, lifespan, service)
                else:
                    there = values_if_any(self, parsed.full_key)
                    self.upload(parsed, paths, lifespan, service, contents, filter_options, force, verbose)
                    remove_others(self, parsed.full_key, replaced_by(there, paths if contents else []))
        if broadcast:
            take_part(self, [parsed.full_key for parsed in keys], "putter", broadcast)

    def get(self, key: str | Sequence[str], dest: Any = None, contents: bool = False, filter_options: str | None = None,
            force: bool = False, verbose: bool = False, broadcast: BroadcastWindow | None = None) -> Any:
        """Get what is under a key: from the pod that the store names, and from the store itself if no pod serves it.

        Parameters
        ----------
        key : str or list of str
        dest : path, array, tensor, state dict, or None
            A path: the folder into which it goes, a value as its file. An array, a tensor or a state dict of tensors: it is
            filled with the one value, whose names, dtypes and shapes are the same; tensors may be on any device. None: a value
            is returned, and files go into the current folder.
        contents, filter_options, force, verbose
            As of :meth:`RsyncClient.download`, which also says how it appears.
        broadcast : BroadcastWindow or None
            Fetch it together with the pods of the window's group. What the store has flows through a row of them, if the store
            and this pod speak that (`penstock` is on the ``PATH``); `world_size` or `ips` say how many are expected. Else each
            fetches it from its parent in a tree, and then serves it to others; a parent that answers is waited for as long as
            `timeout` says, or a minute. As long is a key waited for that nobody has yet, if there is `world_size` or `ips`. Then
            join the window's quorum. A `dest` that lies on GPUs, with a key under which there is nothing, is filled by the pod of
            the group that puts such tensors.

        Returns
        -------
        The value, `dest` if that is filled, None for files; for a list of keys a list, in the same order, unless all are files.

        Raises
        ------
        KeyNotFound
        TypeError, ValueError
            `dest` is not as the value is; nothing was written to it. Or the value's file is damaged.
        """
        self._check_open()
        keys = parse_all(key)
        group = (broadcast.group_id or "_".join(sorted(parsed.full_key for parsed in keys))) if broadcast else None
        places = gpu_places(dest) if broadcast else {}
        fills = is_target(dest) or bool(places)
        if fills and not isinstance(key, str):
            raise ValueError("one dest cannot hold the values of several keys")
        if broadcast and places and self.metadata_client.key_info(keys[0].full_key) is None:
            get_by_exchange(self, keys[0].full_key, places, broadcast)
            return dest
        folder = os.getcwd() if dest is None or fills else os.fspath(dest)
        fetch = Fetch(folder, contents, filter_options, force, verbose)
        values = [self._get_one(parsed, fetch, dest, fills, broadcast, group) for parsed in keys]
        if broadcast:
            take_part(self, [parsed.full_key for parsed in keys], "getter", broadcast)
        return values[0] if isinstance(key, str) else values if any(value is not None for value in values) else None

    def ls(self, key: str = "") -> list[dict[str, Any]]:
        """What is under a key: dicts with ``name``, ``is_directory`` and ``locale`` ("store", or a pod's name)."""
        self._check_open()
        return list(self.metadata_client.list_keys(parse_key(key).full_key)["items"])

    def rm(self, key: str, recursive: bool = False, prefix: bool = False) -> None:
        """Delete a key with its file or value; with `recursive` a folder with all that it has, with `prefix` all names that begin so."""
        self._check_open()
        full_key = parse_all(key)[0].full_key
        if recursive or prefix or not remove_values(self, full_key):
            self.remove_key(full_key, recursive, prefix)

    def mkdir(self, key: str) -> bool:
        """Make a folder, and those in front of it. Returns True."""
        self._check_open()
        return self.metadata_client.mkdir(parse_all(key)[0].full_key).get("success") is True

    def rsync(self, parsed: ParsedKey) -> RsyncClient:
        """Of the store's folder of a key's service."""
        return RsyncClient(self.namespace, parsed.service_name, self.server, self.tunnels)

    # ---- steps of the above ----

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the client is closed")

    def trees(self) -> TreeClient | None:
        """What speaks the store's own protocol, if that is to be used; found once."""
        if self._trees is None:
            self._trees = TreeClient.find(self.metadata_client, self.transport, self.tunnels)
        return self._trees

    @contextlib.contextmanager
    def conversation(self, target: str) -> Iterator[Conversation]:
        """A WebSocket of the store, which ends with the client."""
        with Conversation(self.server, target) as store:
            self._conversations.add(store)
            try:
                self._check_open()  # it may have been closed meanwhile
                yield store
            finally:
                self._conversations.discard(store)

    @contextlib.contextmanager
    def noting_faults(self) -> Iterator[None]:
        """After a failure the next call asks the store anew: it may serve trees elsewhere now."""
        try:
            yield
        except TreeError:
            self._trees = None
            raise

    def upload(self, parsed: ParsedKey, paths: list[str], lifespan: Lifespan = "cluster", service: str | None = None,
               contents: bool = False, filter_options: str | None = None, force: bool = False, verbose: bool = False) -> None:
        """Put files or folders into the store, and tell it whose they are."""
        folder = any(one.name or one.is_folder for one in sources(paths, contents))
        self.place(parsed, folder, lambda place: self.send(place, paths, contents, filter_options, force, verbose))
        self.register(parsed.full_key, lifespan, service)

    def register(self, full_key: str, lifespan: Lifespan, service: str | None) -> None:
        """Tell the store how long it is to keep what it has under a key."""
        self.metadata_client.register_store_pod(full_key, store_name(self.server), lifespan, service)

    def fetch(self, parsed: ParsedKey, fetch: Fetch, broadcast: BroadcastWindow | None = None, group: str | None = None) -> None:
        """Get what is under a key from where it is best fetched."""
        if not (broadcast and group and get_by_broadcast(self, parsed, group, broadcast, fetch)):
            self._get_files(parsed, fetch)

    def remove_key(self, full_key: str, recursive: bool = False, prefix: bool = False) -> None:
        """Withdraw what this process offers under a key, and delete the key."""
        offers.remove(self.metadata_client, full_key, recursive, prefix)
        self.metadata_client.delete_key(full_key, recursive, prefix)

    def _put_value(self, keys: list[ParsedKey], data: Any, locale: Locale, lifespan: Lifespan, service: str | None,
                   verbose: bool, broadcast: BroadcastWindow | None) -> None:
        if locale == "local" and broadcast and all(self._put_tensors(parsed.full_key, data, lifespan, service) for parsed in keys):
            return
        kind, pieces = encode(data)
        for parsed in keys:
            if locale == "local":
                offer_value(self, parsed.full_key, kind, pieces, lifespan, service)
            else:
                put_value(self, parsed.full_key, kind, pieces, lifespan, service, verbose)

    def _put_tensors(self, full_key: str, data: Any, lifespan: Lifespan, service: str | None) -> bool:
        there = values_if_any(self, full_key)
        done = offer_tensors(self, full_key, data, lifespan, service)
        if done:
            remove_others(self, full_key, there)
        return done

    def _get_one(self, parsed: ParsedKey, fetch: Fetch, dest: Any, fills: bool, broadcast: BroadcastWindow | None,
                 group: str | None) -> Any:
        until = time.monotonic() + patience(broadcast)
        while True:
            try:
                return self._get_now(parsed, fetch, dest, fills, broadcast, group)
            except KeyNotFound:
                if time.monotonic() >= until:
                    raise
            time.sleep(AGAIN_S)

    def _get_now(self, parsed: ParsedKey, fetch: Fetch, dest: Any, fills: bool, broadcast: BroadcastWindow | None,
                 group: str | None) -> Any:
        if dest is None or fills:
            found, value = get_value(self, parsed.full_key, dest, fetch.force, fetch.verbose, broadcast, group)
            if not found:
                found, value = get_tensors(self, parsed.full_key, dest, broadcast, group)
            if found:
                return value
        if fills:
            raise KeyNotFound(f"{parsed.full_key}: nobody has a value under this key")
        try:
            self.fetch(parsed, fetch, broadcast, group)
        except NoFiles:  # they may just have been put
            found, value = get_tensors(self, parsed.full_key, dest, broadcast, group) if dest is None else (False, None)
            if found:
                return value
            raise
        return None

    def _put_local(self, parsed: ParsedKey, paths: list[str], contents: bool, filter_options: str | None, lifespan: Lifespan,
                   service: str | None) -> None:
        if len(paths) != 1 or filter_options:
            raise ValueError("a local put offers one file or folder as it is")
        [source] = sources(paths, contents)
        offers.add(Offer(self.metadata_client, self.agent, parsed.full_key, source.path, bool(source.name), lifespan, service))

    def _get_files(self, parsed: ParsedKey, fetch: Fetch) -> None:
        info = self.metadata_client.key_info(parsed.full_key)
        if info is None:
            raise KeyNotFound(f"{parsed.full_key}: nobody has this key")
        if are_tensors(info):
            raise NoFiles(f"{parsed.full_key}: tensors of a pod's memory lie there, which no path takes")
        store_ip = info.get("store_pod_ip")
        refusal = None
        if self.server.rsync:
            done, refusal = self._get_from_peers(parsed, store_ip, fetch)
            if done:
                return
        if store_ip is None:
            raise refusal or DataStoreError(
                f"{parsed.full_key}: the store does not have it, and no pod that does could be reached")
        self.fetch_stored(parsed, fetch)

    def fetch_stored(self, parsed: ParsedKey, fetch: Fetch) -> pathlib.Path:
        """Get what the store has under a key. Returns where it lies."""
        trees = None if fetch.filter_options else self.trees()
        if not trees:
            return fetch.run(self.rsync(parsed), parsed.storage_path)
        final = fetch.final(parsed.full_key)
        with self.noting_faults():
            trees.get(parsed.full_key, final, fetch.force, fetch.verbose)
        return final

    def place(self, parsed: ParsedKey, folder: bool, send: Callable[[ParsedKey], None]) -> None:
        """Have `send` put what a key is to have: below itself, or if it has a file and a `folder` is to come, or the other way round,
        under a hidden key, which takes its place then. Whatever others put there meanwhile, the key has one or the other."""
        for attempt in range(PLACE_TRIES):
            there = self._is_folder(parsed)
            fits = there in (None, folder)
            try:
                return send(parsed) if fits else self._send_aside(parsed, there is True, send)
            except DataStoreError as error:
                if (self._is_folder(parsed) in (None, folder)) == fits:
                    raise
                if attempt == PLACE_TRIES - 1:
                    raise DataStoreError(f"{parsed.full_key}: others put a file and a folder there in turn: {error}") from error

    def _is_folder(self, parsed: ParsedKey) -> bool | None:
        """Of what the store has under a key; None: nothing."""
        return (self.metadata_client.key_info(parsed.full_key) or {}).get("is_directory")

    def _send_aside(self, parsed: ParsedKey, there: bool, send: Callable[[ParsedKey], None]) -> None:
        if there and others_than_values(self, parsed.full_key):
            raise DataStoreError(f"{parsed.full_key} is a folder with other keys, where no file can lie; remove it first")
        aside = parse_key(f"{parsed.full_key}/../.penstock-put-{secrets.token_hex(8)}")
        try:
            send(aside)
            self.metadata_client.replace_key(parsed.full_key, aside.full_key)
        except BaseException:
            with contextlib.suppress(DataStoreError):
                self.metadata_client.delete_key(aside.full_key, recursive=True)
            raise

    def send(self, parsed: ParsedKey, paths: list[str], contents: bool = False, filter_options: str | None = None,
             force: bool = False, verbose: bool = False) -> None:
        """Put files or folders into the store."""
        found = sources(paths, contents)
        trees = None if filter_options else self.trees()
        # rsync follows links; a tree would keep them.
        follows = self.transport == "auto" and not filter_options and links_below(one.path for one in found)
        if not trees or follows:
            self.rsync(parsed).upload(paths, parsed.storage_path, contents, filter_options, force, verbose)
            return
        for one in found:
            with self.noting_faults():
                trees.put(one.path, one.key(parsed.full_key), force, verbose)

    def _choose(self, key: str) -> tuple[str | dict[str, Any] | None, bool]:
        """A source, and whether the store counts the request; of those that serve enough one at random, after some time."""
        for attempt in range(SATURATED_TRIES):
            try:
                return self.metadata_client.get_source_ip(key), True
            except Saturated as full:
                if attempt == SATURATED_TRIES - 1:
                    return (random.choice(full.ips) if full.ips else None), False
            time.sleep(random.uniform(0.5, 1.5) * 2 ** attempt / 10)
        return None, False

    def _get_from_peers(self, parsed: ParsedKey, store_ip: str | None, fetch: Fetch) -> tuple[bool, RsyncError | None]:
        """Whether a pod had it, and the last refusal of one. Those that could not be reached are told to the store."""
        key, refusals = parsed.full_key, dict[str, RsyncError]()
        with contextlib.ExitStack() as refused:  # their requests count until the end, so that the store names others
            for _ in range(PEERS_MAX):
                source, counted = self._choose(key)
                ip = source["ip"] if isinstance(source, dict) else source
                with contextlib.ExitStack() as stack:
                    if ip is not None and counted:
                        stack.callback(self._complete, key, ip)
                    if ip is None or ip == store_ip:
                        break
                    if ip not in refusals:
                        try:
                            self._get_from(ip, source, parsed, fetch)
                            return True, None
                        except RsyncError as error:
                            if error.is_local:
                                raise
                            if error.is_refusal:
                                refusals[ip] = error
                    if ip in refusals:
                        refused.push(stack.pop_all())
                        continue
                    with contextlib.suppress(DataStoreError):  # the next source may be reached all the same
                        self.metadata_client.remove_source(key, ip)
        return False, next(reversed(refusals.values()), None)

    def _get_from(self, ip: str, source: str | dict[str, Any] | None, parsed: ParsedKey, fetch: Fetch) -> None:
        leaf = pathlib.PurePosixPath(parsed.full_key).name
        path = source["src_path"] if isinstance(source, dict) else leaf
        fetch.run(self.rsync(parsed), peer_source(ip, path), leaf)

    def _complete(self, key: str, ip: str) -> None:
        with contextlib.suppress(DataStoreError):  # the store forgets the request after ten minutes
            self.metadata_client.complete_request(key, ip)


def patience(window: BroadcastWindow | None) -> float:
    """For how many seconds a key is waited for that nobody has yet: only a window that says who takes part promises one."""
    if window is None or (window.world_size is None and window.ips is None):
        return 0.0
    return WAIT_S if window.timeout is None else window.timeout


def parse_all(key: str | Sequence[str]) -> list[ParsedKey]:
    """The keys, none of them empty."""
    keys = [parse_key(one) for one in ([key] if isinstance(key, str) else key)]
    if not keys or not all(parsed.full_key for parsed in keys):
        raise ValueError("a key is empty")
    return keys


def store_name(server: Server) -> str:
    """What other pods call the store."""
    return server.url.partition("://")[2].rpartition(":")[0] or server.url.partition("://")[2]
