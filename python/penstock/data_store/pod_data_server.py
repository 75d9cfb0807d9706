# SPDX-License-Identifier: Apache-2.0
"""A pod's agent, ``penstockd --role agent``: frames to it, and how one is started."""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .errors import AgentError, KeyNotFound
from .timed_socket import TimedSocket

__all__ = ["DEFAULT_TCP_PORT", "FDS_MAX", "FoundTensors", "Place", "PodDataServer", "PodDataServerClient", "default_socket_path", "is_server_running",
           "start_server_if_needed"]

DEFAULT_TCP_PORT = 29400
CONNECT_S = 2.0
ANSWER_S = 30.0
RECEIVE_S = 24 * 3600.0  # the agent says in time that nothing comes; this is for one that says nothing
START_S = 20.0
FRAME_BYTES_MAX = 16 << 20
FDS_A_BYTE = 253  # of a frame's length; the kernel takes no more at once
FDS_MAX = 4 * FDS_A_BYTE


def default_socket_path() -> str:
    """The agent's socket: ``PENSTOCK_AGENT_SOCKET``, or where ``penstockd`` serves unless told otherwise."""
    said = os.environ.get("PENSTOCK_AGENT_SOCKET")
    if said:
        return said
    user, runtime = os.geteuid(), os.environ.get("XDG_RUNTIME_DIR")
    folders = ["/run"] if user == 0 else [runtime] if runtime else [f"/run/user/{user}"]
    folder = next((folder for folder in folders if os.path.isdir(folder)), f"/tmp/penstock-{user}")
    return f"{folder}/penstock-agent.sock"


class Place(NamedTuple):
    """Where an agent serves something by rsync."""

    port: int
    path: str

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Place:
        try:
            return cls(int(answer["rsync_port"]), str(answer["rsync_path"]))
        except (KeyError, TypeError, ValueError) as error:
            raise AgentError(f"the agent names no place: {error!r}") from error

    def url(self, host: str) -> str:
        """"rsync://host:port/module", of a file with "/name" behind it."""
        return f"rsync://{f'[{host}]' if ':' in host else host}:{self.port}/{self.path}"


class FoundTensors(NamedTuple):
    """Tensors that an agent knows."""

    key: str  # under and below which they are, in its normal form
    tensors: list[dict[str, Any]]
    fds: list[int]  # of their memory; the caller's to close


class PodDataServerClient:
    """Asks this pod's agent over its unix socket, and other pods' agents over TCP. Threads may share one.

    Every call raises :class:`AgentError` if there is no agent, or if it refuses.

    Parameters
    ----------
    socket_path : str or None
        :func:`default_socket_path` if not set.
    token : str
        That other pods' agents ask for; empty: none.
    """

    def __init__(self, socket_path: str | None = None, token: str = "") -> None:
        self.socket_path = socket_path or default_socket_path()
        self.token = token

    def ping(self) -> dict[str, Any]:
        """``pid`` and ``tcp_port`` of the agent."""
        return self._ask("ping")

    def register(self, key: str, path: str | os.PathLike[str], named: bool = False, pid: int | None = None) -> Place:
        """Offer a file or folder to other pods until a process ends.

        Parameters
        ----------
        key : str
        path : path
            Absolute.
        named : bool
            A folder: others see it under its name, and not what it has.
        pid : int or None
            The process that owns it: this one if not set; 0: none.
        """
        return Place.of(self._ask("register", key=key, path=os.fspath(path), named=named, pid=os.getpid() if pid is None else pid))

    def unregister(self, key: str, pid: int | None = None) -> bool:
        """Withdraw it. Whether it was offered."""
        return "key" in self._ask("unregister", key=key, **({} if pid is None else {"pid": pid}))

    def list_keys(self) -> list[dict[str, Any]]:
        """What this pod offers: ``key``, ``pid``, ``registered_at``; of files ``path`` and ``rsync_path``, of tensors ``shape``,
        ``dtype`` and ``device``."""
        return list(self._ask("list_keys")["keys"])

    def put_tensor(self, key: str, data: Any) -> None:
        """:func:`penstock.sharing.share` by this agent: a tensor, an array, or a state dict of such."""
        from ..sharing import share
        share(key, data, agent=self)

    def get_tensor(self, key: str, dest: Any = None) -> Any:
        """:func:`penstock.sharing.attach` by this agent; `dest`: what is filled."""
        from ..sharing import attach
        return attach(key, into=dest, agent=self)

    def register_tensors(self, tensors: list[dict[str, Any]], fds: Sequence[int], state_dict: str | None = None) -> None:
        """Tell where tensors of this process lie; all of them or none.

        Parameters
        ----------
        tensors : list of dict
            ``key``, ``ipc_handle``, ``shape``, ``dtype``, ``device``.
        fds : sequence of int
            Of their memory; a handle has the number of its own among them.
        state_dict : str or None
            They take the place of all that lies under and below this key.
        """
        more = {} if state_dict is None else {"state_dict": state_dict}
        self._exchange_fds({"command": "put_tensor", "tensors": tensors, "pid": os.getpid(), **more}, fds)

    def find_tensors(self, state_dict: str) -> FoundTensors:
        """Where the tensors under and below a key lie.

        Raises
        ------
        KeyNotFound
            There are none, or the process has ended whose they were.
        """
        return self._find({"command": "get_tensor", "state_dict": state_dict}, ANSWER_S)

    def serve_broadcast(self, state_dict: str, group_id: str | None = None) -> int:
        """Let other pods receive the tensors under and below a key, as members of a group, or of any. Returns the port."""
        more = {} if group_id is None else {"group_id": group_id}
        return int(self._ask("serve_broadcast", state_dict=state_dict, **more)["port"])

    def receive_broadcast(self, state_dict: str, group_id: str, ip: str, port: int, timeout: float | None = None,
                          world_size: int = 0) -> FoundTensors:
        """Receive the tensors under and below a key from the agent of another pod, together with others of a group.

        They stay under the key in this pod as long as this process lives, unless another process has something there.

        Parameters
        ----------
        state_dict, group_id : str
        ip : str
            An IPv4 address.
        port : int
            As :meth:`serve_broadcast` says.
        timeout : float or None
            Seconds without anything that comes; 30 if not set.
        world_size : int
            How many pods are expected to receive; 0: not known.

        Raises
        ------
        KeyNotFound
            There are none, or the process has ended whose they were.
        """
        frame = {"command": "receive_broadcast", "state_dict": state_dict, "group_id": group_id, "ip": ip, "port": port,
                 "timeout": timeout, "world_size": world_size, "pid": os.getpid()}
        return self._find(frame, RECEIVE_S)

    def execute_broadcast_group(self, ready: Mapping[str, Any], participant: str, timeout: float | None = None,
                                connected: Callable[[socket.socket], object] | None = None) -> str:
        """Do this pod's part of a group of pods that move tensors, once for all of its processes that ask.

        Parameters
        ----------
        ready : mapping
            What the store has told: ``group_id``, ``round_id``, ``rank``, ``world_size``, ``master_addr``, ``master_port``,
            ``sends``, ``receives``, ``local_transfers``.
        participant : str
            Names who asks; the second time it is another round.
        timeout : float or None
            Seconds until all other pods have come, and without anything that moves; 60 if not set.
        connected : callable or None
            Takes the connection to the agent. Whoever shuts that down from another thread gives up.

        Returns
        -------
        str
            How tensors went between pods: "nccl", "row" (through the memory of hosts), or "copy" (not at all).
        """
        frame = {name: ready.get(name) for name in ("group_id", "round_id", "rank", "world_size", "master_addr", "master_port", "sends", "receives",
                                                    "local_transfers")}
        frame |= {"command": "execute_broadcast_group", "participant": participant, "timeout": timeout}
        connection = self._connect()
        if connected:
            connected(connection)
        return str(self._exchange(connection, self.socket_path, frame, RECEIVE_S)["way"])

    def _find(self, frame: dict[str, Any], seconds: float) -> FoundTensors:
        try:
            answer, fds = self._exchange_fds(frame, (), seconds)
        except AgentError as error:
            if error.answered and ("Key not found" in str(error) or " is gone: " in str(error)):
                raise KeyNotFound(str(error)) from error
            raise
        return FoundTensors(str(answer["state_dict"]), list(answer["tensors"]), fds)

    def unregister_tensors(self, state_dict: str, timeout: float = ANSWER_S) -> bool:
        """Withdraw the tensors under and below a key. Whether there were any."""
        frame = {"command": "unregister", "key": state_dict, "recursive": True, "pid": os.getpid()}
        return "key" in self._exchange(self._connect(), self.socket_path, frame, timeout)

    def fs_broadcast_complete(self, group_id: str, key: str, local_path: str | os.PathLike[str]) -> None:
        """Tell that the tree of a broadcast lies whole at `local_path`: other pods may fetch it from here."""
        self._ask("fs_broadcast_complete", group_id=group_id, key=key, local_path=os.fspath(local_path))

    def fs_broadcast_get_path_remote(self, parent_ip: str, parent_port: int, group_id: str, key: str,
                                     timeout: float = 60.0) -> dict[str, Any]:
        """Wait until another pod has the tree: its ``local_path``, ``pod_ip``, ``rsync_port`` and ``rsync_path``."""
        address = f"{parent_ip}:{parent_port}"
        try:
            connection = socket.create_connection((parent_ip, parent_port), CONNECT_S)
        except OSError as error:
            raise AgentError(f"agent {address}: {error}") from error
        frame = {"command": "fs_broadcast_get_path", "group_id": group_id, "key": key, "timeout": timeout}
        return self._exchange(connection, address, {**frame, "token": self.token} if self.token else frame, timeout + CONNECT_S)

    def _ask(self, command: str, **members: Any) -> dict[str, Any]:
        return self._exchange(self._connect(), self.socket_path, {"command": command, **members}, ANSWER_S)

    def _exchange_fds(self, frame: dict[str, Any], fds: Sequence[int], seconds: float = ANSWER_S) -> tuple[dict[str, Any], list[int]]:
        """The same, with descriptors that go with the frame's length, and come with the answer's."""
        came: list[int] = []
        try:
            return self._exchange(self._connect(), self.socket_path, frame, seconds, fds, came), came
        except BaseException:
            for fd in came:
                os.close(fd)
            raise

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(CONNECT_S)
            connection.connect(self.socket_path)
            peer = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        except OSError as error:
            connection.close()
            raise AgentError(f"agent {self.socket_path}: {error}") from error
        if peer[1] not in (0, os.geteuid()):
            connection.close()
            raise AgentError(f"agent {self.socket_path}: another user serves it")
        return connection

    @staticmethod
    def _exchange(connection: socket.socket, where: str, frame: dict[str, Any], seconds: float, fds: Sequence[int] = (),
                  came: list[int] | None = None) -> dict[str, Any]:
        data, timed = json.dumps(frame).encode(), TimedSocket(connection, time.monotonic() + seconds)
        try:
            with connection, timed.makefile("rb") as file:
                head = struct.pack(">I", len(data))
                if fds:
                    send_with(connection, head, fds)
                    head = b""
                # An agent that refuses before it has read all ends the connection, and its answer lies there.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    timed.sendall(head + data)
                head = file.read(4) if came is None else receive_with(connection, 4, came)
                size = struct.unpack(">I", head)[0] if len(head) == 4 else 0
                told = json.loads(file.read(size)) if 0 < size <= FRAME_BYTES_MAX else None
        except (OSError, ValueError, RecursionError) as error:
            raise AgentError(f"agent {where}: {error or type(error).__name__}") from error
        if not isinstance(told, dict):
            raise AgentError(f"agent {where}: it ended without an answer")
        if told.get("status") != "ok":
            raise AgentError(f"agent {where}: {told.get('error') or 'it refused'}", answered=True)
        return told


def send_with(connection: socket.socket, head: bytes, fds: Sequence[int]) -> None:
    """Send a frame's length, and descriptors with each of its bytes."""
    for i in range(len(head)):
        part = list(fds[FDS_A_BYTE * i:FDS_A_BYTE * (i + 1)])
        sent = socket.send_fds(connection, [head[i:i + 1]], part) if part else connection.send(head[i:i + 1])
        if sent != 1:
            raise BrokenPipeError("a byte was not sent")


def receive_with(connection: socket.socket, size: int, fds: list[int]) -> bytes:
    """Read so many bytes, or less at the end, and what descriptors come with them."""
    data = b""
    while len(data) < size:
        part, came, flags, _ = socket.recv_fds(connection, size - len(data), FDS_A_BYTE)
        fds += came
        if flags & socket.MSG_CTRUNC:
            raise OSError("there is no room for the descriptors of what was asked for")
        if not part:
            break
        data += part
    return data


class PodDataServer:
    """An agent as a child process that outlives this one, as :func:`start_server_if_needed` starts it.

    Parameters
    ----------
    socket_path : str or None
        :func:`default_socket_path` if not set.
    tcp_port : int
        Of this pod's address ``POD_IP``, or of loopback if that is not set.
    """

    def __init__(self, socket_path: str | None = None, tcp_port: int = DEFAULT_TCP_PORT) -> None:
        self.socket_path = socket_path or default_socket_path()
        self.tcp_port = tcp_port
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> int:
        """Start it, unless one serves the socket already. Returns the PID of the one that does."""
        client, log = PodDataServerClient(self.socket_path), pathlib.Path(f"{self.socket_path}.log")
        pid = running(client)
        if pid is not None:
            return pid
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600), "wb") as out:
            self.process = subprocess.Popen([program(), *self._arguments()], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                            start_new_session=True)
        end = time.monotonic() + START_S
        while (pid := running(client)) is None:
            # Of two that start at the same moment one ends, and the other serves.
            if self.process.poll() is not None and time.monotonic() > end - START_S + CONNECT_S:
                said = log.read_text(errors="replace").strip().splitlines()
                raise AgentError(f"agent {self.socket_path}: penstockd ended with {self.process.returncode}: "
                                 f"{said[-1] if said else 'it said nothing'}")
            if time.monotonic() > end:
                raise AgentError(f"agent {self.socket_path}: not ready within {START_S:.0f} s, see {log}")
            time.sleep(0.05)
        return pid

    def stop(self) -> None:
        """End it, if this object started it."""
        if self.process:
            self.process.terminate()
            self.process.wait()
            self.process = None

    def _arguments(self) -> list[str]:
        ip = os.environ.get("POD_IP")
        token_file = os.environ.get("PENSTOCK_DATA_TOKEN_FILE")
        arguments = ["--role", "agent", "--agent-socket", self.socket_path]
        # What penstockd reads from the environment wins over nothing, and so is not said again.
        if "PENSTOCK_AGENT_LISTEN" not in os.environ:
            arguments += ["--agent-listen", f"{ip or '127.0.0.1'}:{self.tcp_port}"]
        if "PENSTOCK_RSYNC_PORT" not in os.environ:
            arguments += ["--rsync-port", "0"]
        if token_file and "PENSTOCK_TOKEN_FILE" not in os.environ:
            arguments += ["--token-file", token_file]
        elif ip and "PENSTOCK_AGENT_NETWORK" not in os.environ:
            arguments += ["--agent-network=yes"]
        return arguments


def program() -> str:
    """``penstockd``: ``PENSTOCK_PENSTOCKD``, or the one on the PATH."""
    found = os.environ.get("PENSTOCK_PENSTOCKD") or shutil.which("penstockd")
    if not found:
        raise AgentError("there is no program penstockd on the PATH, and PENSTOCK_PENSTOCKD names none")
    return found


def running(client: PodDataServerClient) -> int | None:
    try:
        return int(client.ping()["pid"])
    except AgentError:
        return None


def is_server_running(socket_path: str | None = None) -> bool:
    """Whether an agent serves this pod."""
    return running(PodDataServerClient(socket_path)) is not None


def start_server_if_needed(socket_path: str | None = None) -> int:
    """Start this pod's agent unless there is one. Returns its PID. It goes on when this process ends."""
    return PodDataServer(socket_path).start()
