#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two nodes on one machine: two namespaces each for network, processes and IPC, joined by a veth pair, so that
# nothing but that network connects server and client. Needs root.
#   examples/run_2node_test.sh [port]
set -eu
port=${1:-12345}
. "$(dirname "$0")/common.sh"
[ "$(id -u)" -eq 0 ] || { echo "run_2node_test.sh: network namespaces need root" >&2; exit 2; }
command -v ip >/dev/null || { echo "run_2node_test.sh: needs 'ip' (package iproute2)" >&2; exit 2; }
work=$(mktemp -d)
one=pst-node1-$$
two=pst-node2-$$
server=
cleanup() {
    stop_server
    ip netns del "$one" 2>/dev/null || true
    ip netns del "$two" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

# node NAME COMMAND...: runs it on that node, with processes and IPC of its own.
node() {
    name=$1
    shift
    ip netns exec "$name" unshare --pid --ipc --mount --fork --kill-child --mount-proc "$@"
}

build_examples

echo "== Two nodes: 10.77.0.1 and 10.77.0.2 =="
ip netns add "$one"
ip netns add "$two"
ip link add veth0 netns "$one" type veth peer name veth0 netns "$two"
for side in "$one 10.77.0.1/24" "$two 10.77.0.2/24"; do
    ip -n "${side% *}" addr add "${side#* }" dev veth0
    ip -n "${side% *}" link set veth0 up
    ip -n "${side% *}" link set lo up
done
sleep 1 # until both ends know that they are connected: UCX looks once
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$work/secret")

echo "== Node 1: the server on 10.77.0.1:$port =="
node "$one" "$bin/remote_dram_server" --listen_addr="10.77.0.1:$port" --secret_file="$work/secret" \
    --fabric=trusted --dram=1536M >"$work/server" 2>&1 &
server=$!
await_server

echo "== Node 2: the client =="
before=$(ip netns exec "$two" cat /sys/class/net/veth0/statistics/tx_bytes)
code=0
node "$two" "$bin/remote_dram_client" --server_addr="10.77.0.1:$port" --secret_file="$work/secret" \
    --fabric=trusted --mebibytes="${MEBIBYTES:-1024}" >"$work/client" 2>&1 || code=$?
after=$(ip netns exec "$two" cat /sys/class/net/veth0/statistics/tx_bytes)
sleep 2 # for the server's last look at its keys
show_both
echo "node 2 sent $((after - before)) bytes over its network"
conclude "$code"
