# SPDX-License-Identifier: Apache-2.0
"""A node's own service of mori's, by gRPC's library: prints its port, and then each request of EvictKey, in hexadecimal digits."""
import concurrent.futures
import sys

import grpc


def evict(request: bytes, _: grpc.ServicerContext) -> bytes:
    print(request.hex(), flush=True)
    return b"\x0a\x03\x0a\x01k" * 1000


def main() -> None:
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("umbp.UMBPPeer", {
        "EvictKey": grpc.unary_unary_rpc_method_handler(evict)}),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()
    server.stop(None)


if __name__ == "__main__":
    main()
