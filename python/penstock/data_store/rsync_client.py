# SPDX-License-Identifier: Apache-2.0
"""Files to and from an rsync daemon, by the real rsync."""
from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import pathlib
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence

from .errors import DataStoreError, RsyncError, StoreUnreachable
from .key_utils import normal_key
from .server import Server
from .sources import sources
from .websocket_tunnel import Tunnels, reach

__all__ = ["Fetch", "RsyncClient", "peer_source"]

STALL_S = 60  # without a byte rsync gives up
CONNECT_S = 10
USER = "penstock"
PEER_PORT = 873
FILTERS = ("--include", "--exclude", "--filter")
WILD = "*?["  # of rsync's patterns
NAME_BYTES_MAX = 255
PARTIAL = ".penstock-partial"  # rsync's folders for files that are not whole
HIDDEN = "--filter=- .penstock-*"  # names for what has not arrived
HARMLESS = ("--no-devices", "--no-specials", "--chmod=ug-s,o-t")  # whoever sends, nobody gets powers that way
FROM_PEER = ("--no-owner", "--no-group")
FRESH = ("--delete-excluded", f"--filter=P {PARTIAL}")  # what an earlier try has left, and the source has no more, goes


class RsyncClient:
    """Moves files between this host and a data store, or another pod's rsync daemon.

    Threads may share one. Every call raises :class:`RsyncError` with rsync's own words if rsync fails.

    Parameters
    ----------
    namespace : str
        The first folder of the store's module ``data``.
    service_name : str or None
        The folder in it below which paths of the store lie; "store" if not set.
    server : Server or None
        As the environment says if not set.
    tunnels : Tunnels or None
        Of the client for which it works; if not set each call has a tunnel of its own.
    """

    def __init__(self, namespace: str = "default", service_name: str | None = None, server: Server | None = None,
                 tunnels: Tunnels | None = None) -> None:
        self.namespace = namespace
        self.service_name = service_name or "store"
        self.server = server or Server.from_environment(namespace)
        self.tunnels = tunnels

    def upload(self, source: str | Sequence[str], dest: str, contents: bool = False, filter_options: str | None = None,
               force: bool = False, verbose: bool = False) -> None:
        """Put files or folders into the store.

        Parameters
        ----------
        source : str or list of str
            Links are followed. A folder is called what its path leads to: "." has the current folder's name.
        dest : str
            Below the service's folder; a file's own name, where no folder with files may lie, or the folder into which folders, or several
            files, go.
        contents : bool
            What the folders have, not the folders.
        filter_options : str or None
            ``--include``, ``--exclude`` and ``--filter`` of rsync, as on a command line.
        force : bool
            Read files whose size and time are the same, too.
        """
        found = sources([source] if isinstance(source, str) else source, contents)
        into_folder = dest.endswith("/") or any(one.name or one.is_folder for one in found)
        folder = f"{self.namespace}/{self._below(dest)}"
        if set(folder) & set(WILD):  # however they are written, a key that is there and fits would get it
            raise ValueError(f"{folder}: rsync takes {WILD} for a pattern; the native transport does not")
        paths = [f"{one.path}/" if one.is_folder and not one.name else one.path for one in found]
        with contextlib.ExitStack() as stack:
            address = stack.enter_context(self._address())
            above, _, leaf = folder.rpartition("/")
            if not (into_folder or filter_options or leaf.startswith(".penstock-")):
                # By another name rsync would put a file into a folder that lies there.
                link = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-put-"))) / leaf
                link.symlink_to(paths[0])
                paths, folder, into_folder = [str(link)], above, True
            self.run_rsync_command(self.build_rsync_command(
                paths, f"rsync://{self._user}{address}/data/{folder}{'/' if into_folder else ''}",
                filter_options, force, ("--copy-links", "--mkpath")), verbose)

    def download(self, source: str, dest: str, contents: bool = False, filter_options: str | None = None, force: bool = False,
                 verbose: bool = False, name: str | None = None) -> pathlib.Path:
        """Get a file or a folder.

        What is not at its destination yet appears there whole, at the end: until then it lies in a hidden folder beside it, where
        a later call goes on. What is there already is brought up to date file by file, each of them whole.

        Parameters
        ----------
        source : str
            A path below the service's folder, or a URL ``rsync://...``. One that ends with a slash stands for what a folder has.
        dest : str
            The folder into which it goes; it is made if it is not there.
        contents : bool
            What the folder has goes into `dest`, not the folder.
        filter_options, force
            As of :meth:`upload`.
        name : str or None
            What it is called in `dest`; as at its source if not set.

        Returns
        -------
        Where it lies: `dest` itself with `contents`.
        """
        with contextlib.ExitStack() as stack:
            is_peer = source.startswith("rsync://")
            inside = contents or source.endswith("/")
            below = source.rstrip("/") if is_peer else self._below(source)
            came_as = below.rpartition("/")[2]
            if is_peer:  # another pod's agent asks for the same token as the store
                source = source.replace("rsync://", f"rsync://{self._user}", 1)
            else:
                address = stack.enter_context(self._address())
                source = f"rsync://{self._user}{address}/data/{self.namespace}/{escaped(below)}"
            source = source.rstrip("/")
            folder = pathlib.Path(os.path.expanduser(dest)).absolute()
            final = folder if contents else folder / (name or came_as)
            part = final.parent / part_name(final.name)
            # What a folder has goes into the part itself; else what comes lies in it, and rsync's own names beside it.
            lock, whole = await_turn(part, final, stack)
            into = f"{part}/" if whole else f"{final}/" if inside else str(final) if name else f"{folder}/"
            self.run_rsync_command(self.build_rsync_command(
                [f"{source}/" if inside else source], into, filter_options, force,
                (f"--partial-dir={PARTIAL}", *(FRESH if whole else ("--delay-updates",)), *(FROM_PEER if is_peer else ()))),
                verbose, lock)
            if lock is not None:
                remove_partial(part if whole else final)
            if whole:
                appear(part if inside else part / came_as, final, part)
            return final

    def build_rsync_command(self, sources: Sequence[str], dest: str, filter_options: str | None = None, force: bool = False,
                            more: Sequence[str] = ()) -> list[str]:
        """The arguments of rsync; no shell reads them."""
        return ["rsync", "--archive", *HARMLESS, "--verbose", f"--timeout={STALL_S}", f"--contimeout={CONNECT_S}", *more,
                *(["--ignore-times"] if force else []), HIDDEN, *parse_filters(filter_options), "--", *sources, dest]

    def run_rsync_command(self, command: Sequence[str], verbose: bool = False, lock: int | None = None) -> str:
        """Run it to its end; with `verbose` its words go to standard error. Returns them.

        `lock` is a descriptor that rsync inherits: what it locks stays so until rsync has ended, though this process was killed.
        """
        environment = dict(os.environ)
        if self.server.token:
            environment["RSYNC_PASSWORD"] = self.server.token
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  errors="replace", env=environment, check=False, pass_fds=() if lock is None else (lock,))
        except FileNotFoundError as error:
            raise DataStoreError("there is no program rsync on the PATH") from error
        if verbose:
            sys.stderr.write(done.stdout)
        if done.returncode != 0:
            raise RsyncError(done.returncode, done.stdout)
        return done.stdout

    def _below(self, path: str) -> str:
        """A path of the service's folder, in the namespace's: rsync would have ".." lead out of that."""
        below = normal_key(f"{self.service_name}/{path}")
        if not below:
            raise ValueError("a key is empty")
        return below

    @property
    def _user(self) -> str:
        return f"{USER}@" if self.server.token else ""

    def _address(self) -> contextlib.AbstractContextManager[str]:
        """The "host:port" of the store's rsync daemon, or of a tunnel to it."""
        return reach(self.server, self.server.rsync, f"/rsync/{self.namespace}/", self.tunnels)


@dataclasses.dataclass(frozen=True)
class Fetch:
    """What a get asked for: the arguments of :meth:`RsyncClient.download` that stay the same from source to source."""

    folder: str
    contents: bool = False
    filter_options: str | None = None
    force: bool = False
    verbose: bool = False

    def final(self, key: str) -> pathlib.Path:
        """Where what a key has is to lie."""
        folder = pathlib.Path(os.path.expanduser(self.folder)).absolute()
        return folder if self.contents else folder / pathlib.PurePosixPath(key).name

    def run(self, rsync: RsyncClient, source: str, name: str | None = None) -> pathlib.Path:
        return rsync.download(source, self.folder, self.contents, self.filter_options, self.force, self.verbose, name)


def peer_source(ip: str, path: str) -> str:
    """The URL of what a pod has published: an agent's own, or a path below the module ``data`` of other clients' pods."""
    if not path.startswith("rsync://"):
        return f"rsync://{ip}:{PEER_PORT}/data/{path.lstrip('/')}"
    # A module stands for what a folder has; a file lies in one.
    below = path.removeprefix("rsync://").partition("/")[2]
    return path if below.strip("/").count("/") else path.rstrip("/") + "/"


def escaped(path: str) -> str:
    """As rsync's daemon wants a path that it is to send: it expands patterns, and takes a backslash for itself if there are none."""
    return re.sub(r"([*?\[\]\\])", r"\\\1", path) if set(path) & set(WILD) else path


def part_name(name: str) -> str:
    """Of the hidden folder beside what is to have a name; for a long one of its digest, as ``penstock tree`` calls its own."""
    part = f".penstock-{name}.part"
    fits = len(os.fsencode(part)) <= NAME_BYTES_MAX
    return part if fits else f".penstock--{hashlib.sha256(os.fsencode(name)).hexdigest()}.part"


def own_folder(path: pathlib.Path) -> None:
    """Make a folder, or take one that this user has made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(0o700)
    state = path.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid():
        raise PermissionError(f"{path}: another user has made it")


def await_turn(part: pathlib.Path, final: pathlib.Path, stack: contextlib.ExitStack) -> tuple[int | None, bool]:
    """Lock the part; others who fetch to the same place wait here.

    Returns the descriptor that has the lock, None if there is no room for one beside what is there; and whether nothing is there.
    """
    while True:
        try:
            own_folder(part)
        except OSError:
            if os.path.lexists(final):
                return None, False
            raise
        try:
            fd = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:  # it has its final name
            continue
        stack.callback(os.close, fd)
        fcntl.flock(fd, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), part.lstat()):
                whole = not os.path.lexists(final)
                if not whole:  # it was there for its lock alone
                    stack.callback(remove_empty, part)
                return fd, whole


def remove_empty(folder: pathlib.Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def remove_partial(folder: pathlib.Path) -> None:
    """What earlier tries have left of files that are whole now, or that the source has no more."""
    for path in sorted(folder.rglob(PARTIAL)) if folder.is_dir() else ():
        shutil.rmtree(path)


def appear(made: pathlib.Path, final: pathlib.Path, part: pathlib.Path) -> None:
    """Give what has arrived its name, and let the folder go in which it lay."""
    if not os.path.lexists(made):
        raise DataStoreError(f"{final.name}: rsync ended well, and brought nothing")
    final.parent.mkdir(parents=True, exist_ok=True)
    os.rename(made, final)
    if made != part:
        shutil.rmtree(part, ignore_errors=True)


def parse_filters(options: str | None) -> list[str]:
    """rsync's filters of a command line, those that include first: rsync takes the first that fits."""
    words = shlex.split(options or "")
    filters: list[str] = []
    while words:
        name, equals, value = words.pop(0).partition("=")
        if name not in FILTERS or (not equals and not words):
            raise ValueError(f"{name!r} is none of {', '.join(FILTERS)} with a pattern")
        filters.append(f"{name}={value if equals else words.pop(0)}")
    return sorted(filters, key=lambda text: not text.startswith("--include"))
