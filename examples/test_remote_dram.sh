#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the examples, starts a server, runs the client against it, shows what both printed, and cleans up.
#   examples/test_remote_dram.sh [port]
set -eu
port=${1:-12345}
. "$(dirname "$0")/common.sh"
work=$(mktemp -d)
server=
cleanup() {
    stop_server
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

build_examples

echo "== Starting the server on 127.0.0.1:$port =="
"$bin/remote_dram_example" --mode=server --listen_addr="127.0.0.1:$port" >"$work/server" 2>&1 &
server=$!
await_server

echo "== Running the client =="
code=0
"$bin/remote_dram_example" --mode=client --server_addr="127.0.0.1:$port" >"$work/client" 2>&1 || code=$?
kill "$server"
wait "$server" || code=$?
server=
show_both
conclude "$code"
