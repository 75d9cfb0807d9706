# SPDX-License-Identifier: Apache-2.0
"""Ports for servers that a test, a figure or a soak starts."""
import contextlib
import random
import socket

# Below the ports that the kernel gives to clients: no connection of a test beside this one takes it meanwhile.
PORTS = range(20_000, 29_000)


def free_port() -> int:
    """A TCP port of loopback that was free a moment ago."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):  # taken: try another
            probe.bind(("127.0.0.1", port))
            return port
