#!/bin/sh
# Builds the examples, starts a server, runs the client against it, shows what both printed, and cleans up.
#   examples/test_remote_dram.sh [port]
set -eu
port=${1:-12345}
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
server=
cleanup() {
    [ -z "$server" ] || { kill "$server" && wait "$server"; } 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

echo "== Building the examples (the first time, TensorStore too) =="
"$root/ci/install" build tensorstore
make -C "$root" >/dev/null
"$root/ci/tensorstore" --arrays >"$work/build" || { cat "$work/build" >&2; exit 1; }
bin=$root/build-tensorstore/driver

echo "== Starting the server on 127.0.0.1:$port =="
"$bin/remote_dram_example" --mode=server --listen_addr="127.0.0.1:$port" >"$work/server" 2>&1 &
server=$!
tries=0
until grep -q 'ready to receive' "$work/server"; do
    tries=$((tries + 1))
    if [ "$tries" -gt 150 ] || ! kill -0 "$server" 2>/dev/null; then
        cat "$work/server" >&2
        exit 1
    fi
    sleep 0.2
done

echo "== Running the client =="
code=0
"$bin/remote_dram_example" --mode=client --server_addr="127.0.0.1:$port" >"$work/client" 2>&1 || code=$?
kill "$server"
wait "$server" || code=$?
server=
for side in server client; do
    echo
    echo "---- $side ----"
    cat "$work/$side"
done
echo
[ "$code" -eq 0 ] && echo "PASSED" || echo "FAILED (exit code $code)"
exit "$code"
