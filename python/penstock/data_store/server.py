# SPDX-License-Identifier: Apache-2.0
"""Where the data store is."""
from __future__ import annotations

import dataclasses
import os
import pathlib
from urllib.parse import urlsplit

__all__ = ["Server"]

HTTP_PORT = 8081
RSYNC_PORT = 873
SERVICE = "kubetorch-data-store"


@dataclasses.dataclass(frozen=True)
class Server:
    """A data store's addresses, and how to show who one is.

    Attributes
    ----------
    url : str
        Of HTTP: "http://host:port", or https.
    rsync : str or None
        "host:port" of its rsync daemon; None: through the tunnel on the HTTP port.
    token : str
        Empty: none.
    ca_file : str or None
        PEM file of those whom to trust with https; the system's if not set.
    """

    url: str
    rsync: str | None = None
    token: str = dataclasses.field(default="", repr=False)
    ca_file: str | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{self.url!r} is no http:// or https:// URL of a data store")

    @classmethod
    def from_environment(cls, namespace: str) -> Server:
        """The store that the environment names.

        ``PENSTOCK_DATA_URL`` or ``KT_API_URL`` is one URL for all, with rsync through its tunnel unless ``PENSTOCK_DATA_RSYNC``
        is "host:port". Without them it is the service ``kubetorch-data-store`` of `namespace` inside Kubernetes, and else this
        host. ``PENSTOCK_DATA_TOKEN_FILE`` or ``PENSTOCK_DATA_TOKEN`` is the token, ``PENSTOCK_DATA_CA`` the file of authorities.
        """
        token_file = os.environ.get("PENSTOCK_DATA_TOKEN_FILE")
        token = pathlib.Path(token_file).read_text().strip() if token_file else os.environ.get("PENSTOCK_DATA_TOKEN", "")
        url = os.environ.get("PENSTOCK_DATA_URL") or os.environ.get("KT_API_URL")
        rsync = os.environ.get("PENSTOCK_DATA_RSYNC") or None
        if not url:
            inside = "KUBERNETES_SERVICE_HOST" in os.environ
            host = f"{SERVICE}.{namespace}.svc.cluster.local" if inside else "127.0.0.1"
            url, rsync = f"http://{host}:{HTTP_PORT}", rsync or f"{host}:{RSYNC_PORT}"
        return cls(url.rstrip("/"), rsync, token, os.environ.get("PENSTOCK_DATA_CA") or None)
