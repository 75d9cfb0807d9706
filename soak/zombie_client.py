# SPDX-License-Identifier: Apache-2.0
"""A client of the soak freeze_and_drop: zombie_client.py URL KEY VALUE TIMEOUT_S.

Opens a node, waits for a line of standard input, and then writes and reads the key there, both at once. Prints what came
of it as one JSON line: "put" and "get" are what was read and the generation that was given, or the error's name.
"""

import json
import sys
import threading
from collections.abc import Callable

import penstock


def main() -> None:
    """Acts at once, and tells."""
    url, key, value, timeout_s = sys.argv[1:]
    store = penstock.open(url, timeout=float(timeout_s))
    told: dict[str, int | str] = {}

    def act(name: str, call: Callable[[], int | bytes]) -> None:
        try:
            said = call()
            told[name] = said.decode() if isinstance(said, bytes) else said
        except penstock.Error as error:
            told[name] = type(error).__name__

    print("open", flush=True)
    sys.stdin.readline()
    acts = [threading.Thread(target=act, args=("put", lambda: store.put(key, value.encode()))),
            threading.Thread(target=act, args=("get", lambda: store.get(key)))]
    for thread in acts:
        thread.start()
    for thread in acts:
        thread.join()
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
