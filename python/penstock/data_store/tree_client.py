# SPDX-License-Identifier: Apache-2.0
"""Files and folders by the store's own protocol for trees: the command ``penstock tree``."""
from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from .errors import DataStoreError, KeyNotFound, TreeError
from .metadata_client import MetadataClient
from .server import Server
from .types import Transport
from .websocket_tunnel import Tunnels, reach

__all__ = ["TreeClient"]

VERSION = 1
BROADCAST_VERSION = 2
NOT_FOUND, NO_SPACE, NOT_ALLOWED = 1, 3, 4  # the command's exit statuses
MEMBERS_MAX = 20_000


class TreeClient:
    """Moves files and folders between this host and a data store, without rsync.

    Parameters
    ----------
    namespace : str
    server : Server
        If its rsync is reached through the tunnel alone, so are its trees.
    port : int
        For trees, on the host of its rsync.
    command : str
        The program ``penstock``.
    tunnels : Tunnels or None
        As of :class:`RsyncClient`.
    broadcasts : bool
        Whether the store knows broadcasts in a row as this client does.
    """

    def __init__(self, namespace: str, server: Server, port: int, command: str = "penstock", tunnels: Tunnels | None = None,
                 broadcasts: bool = False) -> None:
        self.namespace = namespace
        self.server = server
        self.command = command
        self.tunnels = tunnels
        self.broadcasts = broadcasts and server.rsync is not None  # through a tunnel no other pod is reached
        self.address = f"{server.rsync.rpartition(':')[0]}:{port}" if server.rsync else None

    @classmethod
    def find(cls, metadata: MetadataClient, transport: Transport, tunnels: Tunnels | None = None) -> TreeClient | None:
        """A client for the store, if both sides speak the protocol. With "native" it raises :class:`TreeError` if they do not."""
        if transport == "rsync":
            return None
        fault = "there is no program penstock on the PATH, and PENSTOCK_COMMAND names none"
        command = program()
        if command:
            try:
                told = metadata.transport()
                fault = "the store speaks another version"
                if told.get("version") == VERSION and (metadata.server.rsync or told.get("tree_tunnel")):
                    return cls(metadata.namespace, metadata.server, int(told["tree_port"]), command, tunnels,
                               told.get("broadcast_version") == BROADCAST_VERSION)
            except DataStoreError as error:
                fault = str(error)
        if transport == "native":
            raise TreeError(f"transport 'native': {fault}")
        return None

    def put(self, path: str, key: str, force: bool = False, verbose: bool = False) -> None:
        """Put a file or folder under the name `key`. Its links stay links."""
        with self._url(key) as url:
            self._run(key, ["put", path, url], forced(force), verbose)

    def get(self, key: str, path: str | os.PathLike[str], force: bool = False, verbose: bool = False) -> None:
        """Get one as `path`, which appears whole, or is brought up to date."""
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        with self._url(key) as url:
            self._run(key, ["get", url, os.fspath(path)], forced(force), verbose)

    def broadcast(self, key: str, path: str | os.PathLike[str], group: str, members: int = 0, verbose: bool = False) -> None:
        """Get one as :meth:`get` does, together with others of a group, of whom `members` are expected; 0: not known."""
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        with self._url(key) as url:
            options = [f"--group={group}", f"--members={min(members, MEMBERS_MAX)}"]
            self._run(key, ["broadcast", url, os.fspath(path)], options, verbose)

    @contextlib.contextmanager
    def _url(self, key: str) -> Iterator[str]:
        with reach(self.server, self.address, f"/tree/{self.namespace}/", self.tunnels) as address:
            yield f"tree://{address}/{self.namespace}/{key}"

    def _run(self, key: str, action: list[str], options: list[str], verbose: bool) -> None:
        with token_file(self.server.token) as token:
            done = subprocess.run([self.command, "tree", *options, *token, "--", *action], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
        if verbose:
            sys.stderr.write(done.stdout)
        if done.returncode == NOT_FOUND:
            raise KeyNotFound(f"{key}: {done.stdout.strip()}")
        if done.returncode != 0:
            raise TreeError(f"{key}: {done.stdout.strip() or f'penstock tree ended with {done.returncode}'}",
                            done.returncode in (NO_SPACE, NOT_ALLOWED))


def program() -> str | None:
    """The command ``penstock``: ``PENSTOCK_COMMAND``, or the one on the PATH."""
    return os.environ.get("PENSTOCK_COMMAND") or shutil.which("penstock")


def forced(force: bool) -> list[str]:
    return ["--force"] if force else []


@contextlib.contextmanager
def token_file(token: str) -> Iterator[list[str]]:
    """The arguments that name a file with the token, which nobody else can read."""
    if not token:
        yield []
        return
    with tempfile.NamedTemporaryFile("w", prefix="penstock-token-") as file:
        file.write(token)
        file.flush()
        yield ["--token-file", file.name]
