# SPDX-License-Identifier: Apache-2.0
"""A client of penstockd --umbp by gRPC's own library: `umbp_client.py ADDRESS`. Lines of JSON come in, [method, request in
hexadecimal digits, seconds]; [status, answer or reason] goes out for each."""
import json
import sys

import grpc

MESSAGE_BYTES_MAX = 64 << 20


def main(address: str) -> None:
    options = [("grpc.max_receive_message_length", MESSAGE_BYTES_MAX), ("grpc.max_send_message_length", MESSAGE_BYTES_MAX)]
    with grpc.insecure_channel(address, options) as channel:
        for line in sys.stdin:
            method, request, seconds = json.loads(line)
            call = channel.unary_unary(f"/umbp.UMBPMaster/{method}")
            try:
                answer = "OK", call(bytes.fromhex(request), timeout=seconds, wait_for_ready=True).hex()
            except grpc.RpcError as error:
                answer = error.code().name, error.details()
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
