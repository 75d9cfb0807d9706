#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Remote DMA without hardware, for `make test-rdma`: boots an emulated machine with soft RoCE, in which guest.py tests.

  machine.py [--only CASE[,CASE...]] [--build FOLDER]

Debian's kernel package is fetched once into build-rdma and unpacked there: nothing of it is installed. The machine sees the
host's files, read-only, and writes to memory. No KVM is needed. Ends with "N passed, N failed".
"""
from __future__ import annotations

import argparse
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
FOLDER = ROOT / "build-rdma"
KERNEL = "linux-image-6.12-amd64"  # soft RoCE of 6.1 is of no use to UCX
MODULES = ("virtio_pci", "9p", "9pnet_virtio", "overlay", "veth", "bridge", "ib_uverbs", "rdma_rxe", "crc32_generic")
MEMORY_MB = 6144
SECONDS_MAX = 1500


def call(*command: str | pathlib.Path, **more: object) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **more).stdout  # type: ignore[call-overload]


def package_of(meta: str) -> str:
    """The kernel that the name without a version stands for now."""
    found = re.search(r"Depends: (linux-image-\S+)", call("apt-cache", "depends", meta))
    if not found:
        raise SystemExit(f"make test-rdma: apt knows no {meta}; run apt-get update")
    return found[1]


def kernel() -> pathlib.Path:
    """The folder of an unpacked kernel, fetched the first time."""
    there = sorted(FOLDER.glob("linux-image-*"))
    if there:
        return there[-1]
    name = package_of(KERNEL)
    print(f"fetching {name}", flush=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
        call("apt-get", "-qq", "download", name, cwd=scratch, stderr=subprocess.DEVNULL)
        call("dpkg-deb", "-x", next(pathlib.Path(scratch).glob("*.deb")), pathlib.Path(scratch, "files"))
        shutil.move(pathlib.Path(scratch, "files"), FOLDER / name)
    return FOLDER / name


def add_modules(unpacked: pathlib.Path, version: str, tree: pathlib.Path) -> None:
    call("depmod", "-b", unpacked, version)
    said = call("modprobe", "-d", unpacked, "-S", version, "-a", "--show-depends", *MODULES)
    for name in sorted(set(re.findall(r"^insmod (\S+)", said, re.MULTILINE))):
        path = pathlib.Path(name)
        to = tree / path.relative_to(unpacked)
        to.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".xz":
            to.with_suffix("").write_bytes(subprocess.run(["xz", "-dc", path], check=True, stdout=subprocess.PIPE).stdout)
        else:
            shutil.copy(path, to)
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        shutil.copy(unpacked / "lib/modules" / version / name, tree / "lib/modules" / version / name)
    call("depmod", "-b", tree, version)


def packed(tree: pathlib.Path) -> bytes:
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*"))).encode()
    command = ["cpio", "--quiet", "-o", "-H", "newc"]
    return subprocess.run(command, input=names, cwd=tree, check=True, stdout=subprocess.PIPE).stdout


def initrd(unpacked: pathlib.Path, version: str, build: pathlib.Path, verbs_filter: pathlib.Path, only: str) -> bytes:
    """What the machine begins with, and what it is to run."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
        tree = pathlib.Path(scratch)
        (tree / "bin").mkdir()
        shutil.copy("/bin/busybox", tree / "bin/busybox")
        shutil.copy(HERE / "init", tree / "init")
        add_modules(unpacked, version, tree)
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PENSTOCK_BUILD": build, "VERBS_FILTER": verbs_filter,
                       "PYTHONPATH": f"{build}/python:{ROOT}/tests/lib", "PYTHONDONTWRITEBYTECODE": "1"}
        (tree / "run.sh").write_text("ulimit -l unlimited -c 0 -n 20000\nexec env -i "
                                     + shlex.join(f"{name}={value}" for name, value in environment.items())
                                     + shlex.join(["", "/usr/bin/python3", str(HERE / "guest.py"), only]) + "\n")
        return packed(tree)


def build_filter() -> pathlib.Path:
    library = FOLDER / "verbs_filter.so"
    call("gcc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library,
         HERE / "verbs_filter.c", "-ldl")
    return library


def boot(image: pathlib.Path, start: pathlib.Path) -> tuple[int, int]:
    """Runs the machine to its end. Returns what passed and what failed there."""
    share = "local,id=host,path=/,readonly=on,security_model=none,multidevs=remap"
    command = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-M", "q35", "-m", str(MEMORY_MB), "-smp", "2",
               "-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio", "-kernel", image, "-initrd", start,
               "-append", "console=ttyS0 panic=-1 quiet loglevel=1 mitigations=off random.trust_cpu=on no_timer_check",
               "-fsdev", share, "-device", "virtio-9p-pci,fsdev=host,mount_tag=host"]
    passed = failed = -1
    with subprocess.Popen(["timeout", "--signal=KILL", str(SECONDS_MAX), *command], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, errors="replace") as machine:
        assert machine.stdout
        for line in machine.stdout:
            line = re.sub(r"\x1b\[[0-9;?=]*[a-zA-Z]|\x1bc|\r", "", line)
            counted = re.fullmatch(r"(\d+) passed, (\d+) failed\n", line)
            if counted:
                passed, failed = int(counted[1]), int(counted[2])
            else:
                print(line, end="", flush=True)
    if passed < 0:
        print(f"FAILED the machine ended before its tests did, or not within {SECONDS_MAX} s", flush=True)
    return max(passed, 0), max(failed, 0) + (passed < 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="of these cases alone")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build")))
    options = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    unpacked = kernel()
    version = next((unpacked / "lib/modules").iterdir()).name
    start = FOLDER / "initrd"
    start.write_bytes(initrd(unpacked, version, options.build.resolve(), build_filter(), options.only))
    passed, failed = boot(unpacked / "boot" / f"vmlinuz-{version}", start)
    print(f"\n{passed} passed, {failed} failed", flush=True)
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
