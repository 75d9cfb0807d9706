# SPDX-License-Identifier: Apache-2.0
# common.sh: what the scripts here share. They set `work`, a folder of their own, and `server`, a process id or nothing.
root=$(cd "$(dirname "$0")/.." && pwd)

stop_server() {
    [ -z "$server" ] || { kill "$server" && wait "$server"; } 2>/dev/null || true
}

# Leaves the programs in $bin.
build_examples() {
    echo "== Building the examples (the first time, TensorStore too) =="
    "$root/ci/install" build tensorstore
    make -C "$root" >/dev/null
    "$root/ci/tensorstore" --arrays >"$work/build" || { cat "$work/build" >&2; exit 1; }
    bin=$root/build-tensorstore/driver
}

# Until the server, whose output goes to $work/server, takes clients.
await_server() {
    tries=0
    until grep -q 'ready to receive' "$work/server"; do
        tries=$((tries + 1))
        if [ "$tries" -gt 150 ] || ! kill -0 "$server" 2>/dev/null; then
            cat "$work/server" >&2
            exit 1
        fi
        sleep 0.2
    done
}

show_both() {
    for side in server client; do
        echo
        echo "---- $side ----"
        cat "$work/$side"
    done
    echo
}

conclude() { # exit code
    [ "$1" -eq 0 ] && echo "PASSED" || echo "FAILED (exit code $1)"
    exit "$1"
}
