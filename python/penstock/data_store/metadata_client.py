# SPDX-License-Identifier: Apache-2.0
"""Who has which key: the data store's HTTP routes."""
from __future__ import annotations

import http.client
import json
import ssl
import time
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from .errors import Saturated, StoreRefused, StoreUnreachable
from .server import Server
from .timed_socket import TimedSocket
from .types import BroadcastWindow, Lifespan

__all__ = ["MetadataClient"]

TIMEOUT_S = 30.0
ANSWER_BYTES_MAX = 64 << 20  # a list of all names that one folder may have takes half of it


class MetadataClient:
    """Asks a data store about keys. Threads may share one: each call has a connection of its own.

    Every call raises :class:`StoreUnreachable` if the server is not there, is no data store, answers with more than 64 MiB, or
    has not answered in time, and :class:`StoreRefused` with the server's own words if it refuses.

    Parameters
    ----------
    namespace : str
        Of the keys.
    server : Server or None
        As the environment says if not set.
    timeout : float
        Seconds that a call may take.
    """

    def __init__(self, namespace: str = "default", server: Server | None = None, timeout: float = TIMEOUT_S) -> None:
        self.namespace = namespace
        self.server = server or Server.from_environment(namespace)
        self.timeout = timeout

    # ---- the key's sources ----

    def get_source_ip(self, key: str, external: bool = False) -> str | dict[str, Any] | None:
        """Whom to fetch a key from; the request counts at that source until :meth:`complete_request`.

        Returns
        -------
        An address; a dict with ``ip`` and ``src_path`` if the source says a path; with `external` a dict with ``pod_name``,
        ``namespace``, ``proxy_through_store``, ``peer_ip`` and ``src_path``; None if nobody has the key.

        Raises
        ------
        Saturated
            Every source serves as many as it may.
        """
        status, told = self._ask("GET", self._key(key, "/source"), {"external": "true"} if external else {}, also=(503,))
        if status == 503:
            raise Saturated(key, list(told.get("ips") or told.get("detail", {}).get("ips", [])))
        if told.get("found") is False:
            return None
        if external:
            return told
        return {"ip": told["ip"], "src_path": told["src_path"]} if told.get("src_path") else str(told["ip"])

    def key_info(self, key: str) -> dict[str, Any] | None:
        """``store_pod_ip`` or None, ``is_directory`` if the store has it, and ``sources``; None if nobody has the key."""
        told = self._ask("GET", self._key(key))[1]
        return None if told.get("found") is False else told

    def has_store_pod(self, key: str) -> bool:
        """Whether the store itself has the key."""
        told = self.key_info(key)
        return told is not None and told.get("store_pod_ip") is not None

    def publish_key(self, key: str, pod_ip: str, pod_name: str | None = None, namespace: str | None = None,
                    src_path: str | None = None, lifespan: Lifespan = "cluster", service_name: str | None = None,
                    again: bool = False) -> bool:
        """Tell that this pod has the key; it is told for an hour. Returns True.

        `again`: it was told before. Returns False if the key was deleted meanwhile: then the store keeps no source.
        """
        body = {"ip": pod_ip, "pod_name": pod_name, "namespace": namespace, "src_path": src_path, "lifespan": lifespan,
                "service_name": service_name}
        return self._succeeds("POST", self._key(key, "/publish"), body, {"again": "true"} if again else None)

    def register_store_pod(self, key: str, store_pod_ip: str, lifespan: Lifespan = "cluster",
                           service_name: str | None = None) -> bool:
        """Tell that the store has the key. Returns True."""
        body = {"ip": store_pod_ip, "lifespan": lifespan, "service_name": service_name}
        return self._succeeds("POST", self._key(key, "/store"), body)

    def complete_request(self, key: str, ip: str) -> bool:
        """The request at `ip` has ended. Returns True."""
        return self._succeeds("POST", self._key(key, "/source/complete"), {"ip": ip})

    def remove_source(self, key: str, pod_ip: str) -> bool:
        """`pod_ip` does not serve the key. Returns True."""
        return self._succeeds("DELETE", self._key(key, f"/sources/{quote(pod_ip, safe='')}"))

    # ---- keys ----

    def list_keys(self, prefix: str = "") -> dict[str, Any]:
        """``prefix`` and ``items``: dicts with ``name``, ``is_directory`` and ``locale``."""
        return self._ask("GET", "/api/v1/keys/list", {"prefix": prefix})[1]

    def mkdir(self, key: str) -> dict[str, Any]:
        """``success`` and ``path``."""
        return self._ask("POST", self._key(key, "/mkdir"))[1]

    def replace_key(self, key: str, by: str) -> bool:
        """What lies under `by` takes the key's place, be it a file or a folder; a folder's only if that has nothing but values. Returns True."""
        return self._succeeds("POST", self._key(key, "/replace"), {"by": by})

    def delete_key(self, key: str, recursive: bool = False, prefix: bool = False) -> dict[str, Any]:
        """``success`` and what was deleted; a directory that is not empty is refused unless `recursive`."""
        query = {name: "true" for name, wanted in (("recursive", recursive), ("prefix_mode", prefix)) if wanted}
        return self._ask("DELETE", self._key(key), query)[1]

    def cleanup_service_keys(self, service_name: str) -> dict[str, Any]:
        """Delete the keys that live as long as a service: ``success`` and ``deleted_count``."""
        return self._ask("DELETE", f"/api/v1/services/{quote(service_name, safe='')}/cleanup")[1]

    def stats(self) -> dict[str, int]:
        """``total_keys``, ``total_sources`` and ``keys_with_store_pod``."""
        return self._ask("GET", "/api/v1/stats")[1]

    def transport(self) -> dict[str, Any]:
        """``tree_port``, ``version``, ``tree_tunnel`` and ``broadcast_version`` of the store's own protocol for trees."""
        return self._ask("GET", "/api/v1/transport")[1]

    # ---- quorums ----

    def join_broadcast(self, keys: list[str], role: str, pod_ip: str, pod_name: str | None = None,
                       broadcast: BroadcastWindow | None = None) -> dict[str, Any]:
        """``broadcast_id``, ``status`` and counts; `role` is "putter" or "getter"."""
        window = broadcast.to_dict() if broadcast else {}
        body = {"keys": keys, "role": role, "pod_ip": pod_ip, "pod_name": pod_name,
                **{name: window.get(name) for name in ("timeout", "world_size", "ips", "group_id")}}
        return self._ask("POST", "/api/v1/broadcast/join", body=body)[1]

    def get_broadcast_status(self, broadcast_id: str, pod_ip: str) -> dict[str, Any]:
        """The same, with ``putters`` and ``getters``."""
        return self._ask("GET", f"/api/v1/broadcast/{quote(broadcast_id, safe='')}/status", {"pod_ip": pod_ip})[1]

    def complete_broadcast(self, broadcast_id: str, pod_ip: str) -> bool:
        """This pod has what it came for. Returns True."""
        return self._succeeds("POST", f"/api/v1/broadcast/{quote(broadcast_id, safe='')}/complete", query={"pod_ip": pod_ip})

    # ---- broadcasts of files ----

    def join_fs_broadcast(self, group_id: str, key: str, pod_ip: str, pod_name: str | None = None,
                          fanout: int | None = None) -> dict[str, Any]:
        """Join, or ask again where this pod stands: ``rank``, ``parent_rank``, ``parent_ip``, ``source_ip``, ``source_path``...

        Needs the package ``websockets``. Raises :class:`StoreRefused` if the store does, for example since nobody has the key.
        """
        from .websocket_tunnel import converse

        message = {"action": "join", "key": key, "pod_ip": pod_ip, "pod_name": pod_name, "fanout": fanout}
        told = converse(self.server, f"/ws/fs-broadcast/{quote(group_id, safe='')}?{urlencode({'namespace': self.namespace})}",
                        {name: value for name, value in message.items() if value is not None}, self.timeout)
        if told.get("event") != "ready":
            raise StoreRefused(0, f"broadcast {group_id}: {told.get('message') or 'refused'}")
        return told

    def fs_broadcasts(self) -> list[dict[str, Any]]:
        """The trees of pods: ``group_id``, ``key``, ``source_ip``, ``fanout``, ``total_participants``, ``unreachable``."""
        return list(self._ask("GET", "/api/v1/fs/broadcast/groups")[1]["groups"])

    def fs_broadcast_rows(self, group_id: str) -> list[dict[str, Any]]:
        """A group's rows of pods: ``key``, ``bytes``, ``pieces``, ``piece_bytes``, and ``members``, each with its ``state``."""
        return list(self._ask("GET", f"/api/v1/fs/broadcast/groups/{quote(group_id, safe='')}")[1]["broadcasts"])

    def report_unreachable(self, group_id: str, key: str, reporter_ip: str, unreachable_ip: str) -> dict[str, Any] | None:
        """This pod's new parent, as of a join, since it could not fetch from the old one; None: there is nobody behind it."""
        body = {"group_id": group_id, "key": key, "reporter_ip": reporter_ip, "unreachable_ip": unreachable_ip}
        told = self._ask("POST", "/api/v1/fs/broadcast/report-unreachable", body=body)[1]
        return told if told.get("status") == "ok" else None

    # ---- HTTP ----

    def _key(self, key: str, route: str = "") -> str:
        quoted = quote(key.strip("/"), safe="")
        return f"/api/v1/keys/{'%6Cist' if quoted == 'list' else quoted}{route}"  # "list" as it is: the route of listings

    def _succeeds(self, method: str, path: str, body: dict[str, Any] | None = None, query: dict[str, str] | None = None) -> bool:
        return self._ask(method, path, query, body)[1].get("success") is True

    def _connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.server.url)
        assert parts.hostname
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port, timeout=self.timeout)
        context = ssl.create_default_context(cafile=self.server.ca_file)
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=self.timeout, context=context)

    def _ask(self, method: str, path: str, query: dict[str, str] | None = None, body: dict[str, Any] | None = None,
             also: tuple[int, ...] = ()) -> tuple[int, dict[str, Any]]:
        """Status and answer; a status that is neither 2xx nor one of `also` raises."""
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if self.server.token:
            headers["Authorization"] = f"Bearer {self.server.token}"
        target = f"{urlsplit(self.server.url).path}{path}?{urlencode({'namespace': self.namespace, **(query or {})})}"
        end = time.monotonic() + self.timeout
        connection = self._connect()
        try:
            connection.connect()
            connection.sock = TimedSocket(connection.sock, end)
            connection.request(method, target, None if body is None else json.dumps(body).encode(), headers)
            answer = connection.getresponse()
            said = answer.read(ANSWER_BYTES_MAX + 1)
            if len(said) > ANSWER_BYTES_MAX:
                raise ValueError("the answer is too long")
            told = json.loads(said)
        except (OSError, http.client.HTTPException) as error:
            raise StoreUnreachable(f"{self.server.url}: {error or type(error).__name__}") from error
        except (ValueError, RecursionError) as error:
            raise StoreUnreachable(f"{self.server.url}: what answers there is no data store") from error
        finally:
            connection.close()
        if not isinstance(told, dict):
            raise StoreUnreachable(f"{self.server.url}: what answers there is no data store")
        if answer.status // 100 == 2 or answer.status in also:
            return answer.status, told
        raise StoreRefused(answer.status, f"{told.get('detail') or 'refused'} (HTTP {answer.status})")
