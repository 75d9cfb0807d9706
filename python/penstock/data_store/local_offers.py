# SPDX-License-Identifier: Apache-2.0
"""What this process offers from where it lies: registered at the pod's agent, published at the store, and again before that forgets."""
from __future__ import annotations

import atexit
import contextlib
import dataclasses
import logging
import os
import pathlib
import socket
import threading
import time
from urllib.parse import urlsplit

from .errors import DataStoreError, StoreRefused
from .metadata_client import MetadataClient
from .pod_data_server import PodDataServerClient, start_server_if_needed
from .spool import spool
from .types import Lifespan

__all__ = ["LocalOffers", "offers", "own_ip"]

_log = logging.getLogger("penstock.data_store")

AGAIN_S = 1200.0  # the store forgets a source after an hour
LEAVE_S = 5.0  # what the end of a process may take: it may be killed when it takes longer


def own_ip(store_url: str) -> str:
    """This pod's address: ``POD_IP``, or that from which the store is reached."""
    said = os.environ.get("POD_IP")
    if said:
        return said
    parts = urlsplit(store_url)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)  # sends nothing
            return str(probe.getsockname()[0])
    except OSError as error:
        raise DataStoreError(f"{store_url}: this pod has no address that reaches it: {error}") from error


@dataclasses.dataclass(frozen=True)
class Offer:
    """A path under a key."""

    metadata: MetadataClient
    agent: PodDataServerClient
    key: str
    path: str
    named: bool
    lifespan: Lifespan
    service: str | None
    made: pathlib.Path | None = None  # a folder of the spool's, which goes with the offer

    @property
    def agent_key(self) -> str:
        return f"{self.metadata.namespace}/{self.key}"

    def publish(self, again: bool = False) -> bool:
        """Tell the agent and the store. Returns False if this is done `again`, and the key was deleted meanwhile."""
        start_server_if_needed(self.agent.socket_path)
        ip = own_ip(self.metadata.server.url)
        place = self.agent.register(self.agent_key, self.path, self.named)
        return self.metadata.publish_key(self.key, ip, os.environ.get("POD_NAME"), os.environ.get("POD_NAMESPACE"), place.url(ip),
                                         self.lifespan, self.service, again)

    def withdraw(self) -> None:
        self.tell_store(self.metadata.timeout)
        self.forget()

    def tell_store(self, timeout: float) -> bool:
        """Have the store forget this source. Returns False if the store could not be asked within `timeout` seconds."""
        store = MetadataClient(self.metadata.namespace, self.metadata.server, min(timeout, self.metadata.timeout))
        try:
            store.remove_source(self.key, own_ip(store.server.url))
        except StoreRefused:
            pass
        except DataStoreError:
            return False
        return True

    def forget(self) -> None:
        """The store has no such source any more."""
        with contextlib.suppress(DataStoreError):
            self.agent.unregister(self.agent_key, os.getpid())
        if self.made:
            spool.remove(self.made)


class LocalOffers:
    """The offers of this process. Threads may share one; a child made by fork() offers nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offers: dict[tuple[str, str, str], Offer] = {}
        self._pid = 0
        self._stop = threading.Event()

    def add(self, offer: Offer) -> None:
        offer.publish()
        with self._lock:
            if self._pid != os.getpid():
                self._offers.clear()
                self._stop = threading.Event()
                self._pid = os.getpid()
                threading.Thread(target=self._repeat, args=(self._stop,), daemon=True).start()
                atexit.register(self.close)
            self._offers[self._name(offer.metadata, offer.key)] = offer

    def remove(self, metadata: MetadataClient, key: str, recursive: bool = False, prefix: bool = False) -> None:
        """Withdraw what this process offers under `key`, and of other keys what :meth:`DataStoreClient.rm` deletes."""
        with self._lock:
            mine = self._offers if self._pid == os.getpid() else {}
            going = [name for name in mine
                     if name[:2] == self._name(metadata, key)[:2] and is_meant(name[2], key, recursive, prefix)]
            withdrawn = [mine.pop(name) for name in going]
        for offer in withdrawn:
            offer.withdraw()

    def close(self) -> None:
        """Withdraw everything, as far as the stores answer within a few seconds: the rest they forget by themselves."""
        with self._lock:
            mine = list(self._offers.values()) if self._pid == os.getpid() else []
            self._offers.clear()
        self._stop.set()
        end, silent = time.monotonic() + LEAVE_S, set[str]()
        for offer in mine:
            store, left = offer.metadata.server.url, end - time.monotonic()
            if left > 0 and store not in silent and not offer.tell_store(left):
                silent.add(store)
            offer.forget()

    @staticmethod
    def _name(metadata: MetadataClient, key: str) -> tuple[str, str, str]:
        return metadata.server.url, metadata.namespace, key

    def _repeat(self, stop: threading.Event) -> None:
        while not stop.wait(AGAIN_S):
            self.publish_again()

    def publish_again(self) -> None:
        """Tell the agent and the store of everything once more. What others have deleted is offered no longer."""
        with self._lock:
            mine = list(self._offers.items())
        for name, offer in mine:
            try:
                if offer.publish(again=True):
                    continue
            except DataStoreError:  # until the next time
                continue
            except Exception:  # the process may have no descriptors left, for example; the others are told all the same
                _log.warning("%s: it could not be offered again", offer.key, exc_info=True)
                continue
            with self._lock:
                gone = self._offers.get(name) is offer and bool(self._offers.pop(name))
            if gone:
                offer.forget()


def is_meant(offered: str, key: str, recursive: bool, prefix: bool) -> bool:
    if prefix and offered.startswith(key):
        return recursive or "/" not in offered[len(key):]
    return offered == key or (recursive and offered.startswith(f"{key}/"))


#: Those of this process.
offers = LocalOffers()
