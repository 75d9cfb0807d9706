# SPDX-License-Identifier: Apache-2.0
"""One TCP connection over loopback: the other end writes 1 MiB at a time, this one reads into a buffer of as much."""

import argparse
import json
import os
import socket
import time

WRITE_BYTES = 1 << 20


def write(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    data = memoryview(bytearray(os.urandom(WRITE_BYTES)))
    try:
        while True:
            connection.sendall(data)
    except OSError:
        os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=2)
    seconds = parser.parse_args().seconds
    listener = socket.create_server(("127.0.0.1", 0))
    if os.fork() == 0:
        write(listener)
    connection = socket.create_connection(listener.getsockname())
    room = memoryview(bytearray(WRITE_BYTES))
    total, begin = 0, time.monotonic()
    while (now := time.monotonic()) - begin < seconds:
        total += connection.recv_into(room)
    connection.close()
    os.wait()
    print(json.dumps({"bytes_per_s": total / (now - begin)}))


if __name__ == "__main__":
    main()
