# SPDX-License-Identifier: Apache-2.0
"""The units and settings of deploy/systemd under a booted systemd, in a container over this host's own files.

It wants root, systemd-nspawn (Debian's systemd-container) and overlays; without them it is skipped.
"""
from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator

import pytest
import support

ROOT = pathlib.Path(__file__).resolve().parents[2]
SETTINGS = ROOT / "deploy" / "systemd"
TRIAL_S_MAX = 120
KEYS = 8
# Addresses of deploy/systemd, on the container's loopback. Each line that it prints is one finding.
TRIAL = """#!/bin/sh
exec >/trial.log 2>&1
for address in 1 2; do ip addr add 10.0.0.$address/32 dev lo; done
ip link set lo up
services="penstockd@store penstockd@master penstockd@node penstockd@other"
systemctl start $services
sleep 8 # a network that takes its time, more than five starts
ip addr add 10.0.0.3/32 dev lo
export PENSTOCK_URL=pool://10.0.0.1:7000 PENSTOCK_TLS=yes PENSTOCK_SECRET_FILE=/etc/penstock/secret
export PENSTOCK_DATA_URL=http://10.0.0.1:8081 PENSTOCK_DATA_TOKEN_FILE=/etc/penstock/data-token
ready() {
    for try in $(seq 100); do
        [ "$(for host in 1 2 3; do curl -fs -m 2 -H "Authorization: Bearer $(cat /etc/penstock/http-token)" \\
            http://10.0.0.$host:9400/ready 2>/dev/null; done | grep -o '"ready"' | wc -l)" = 3 ] && echo ready && return
        sleep 0.2
    done
}
values() { for i in $(seq KEYS); do penstock get key$i - ; done | sort -u | wc -l; }
ready
systemctl is-active $services
for i in $(seq KEYS); do echo value$i | penstock put key$i -; done
mkdir /tmp/tree && echo text >/tmp/tree/file
penstock data put key /tmp/tree --contents --transport rsync --rsync 10.0.0.1:8873
penstock data get key /tmp/back --contents --transport native && cat /tmp/back/file
systemctl kill -s KILL penstockd@node
sleep 3
ready
values
systemctl restart penstockd@other penstockd@master
ready
values
systemctl poweroff
"""


@pytest.fixture
def system(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """This host's files, and what is written over them."""
    nspawn = shutil.which("systemd-nspawn")
    if os.getuid() != 0 or not nspawn or not shutil.which("curl"):
        pytest.skip("not root, or no systemd-nspawn or curl here")
    over, root = tmp_path / "over", tmp_path / "root"
    over.mkdir()
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "penstock-over", over], check=True)
    try:
        (over / "files").mkdir()
        (over / "work").mkdir()
        options = f"lowerdir=/,upperdir={over}/files,workdir={over}/work"
        if subprocess.run(["mount", "-t", "overlay", "penstock-root", "-o", options, root], check=False).returncode != 0:
            pytest.skip("no overlays here")
        try:
            yield root
        finally:
            subprocess.run(["umount", root], check=True)
    finally:
        subprocess.run(["umount", over], check=True)


def install(root: pathlib.Path) -> None:
    """As a user does by docs/how-to/secure.md, with a second node and less memory."""
    subprocess.run(["meson", "install", "-C", support.BUILD, "--no-rebuild", "--destdir", root], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["chroot", root, "sh", "-c", "ldconfig; id penstock >/dev/null 2>&1 || useradd --system penstock"], check=True)
    etc = root / "etc" / "penstock"
    etc.mkdir(parents=True, exist_ok=True)
    for name in ("secret", "http-token", "data-token"):
        (etc / name).write_text(os.urandom(16).hex())
        (etc / name).chmod(0o600)
    node = (SETTINGS / "node.conf").read_text().replace("64G", "128M")
    other = node.replace("@node", "@other").replace("penstock-node", "penstock-other").replace("keep = node", "keep = other")
    settings = {"node": node, "other": other.replace("10.0.0.2", "10.0.0.3"), "master": (SETTINGS / "master.conf").read_text(),
                "store": (SETTINGS / "store.conf").read_text()}
    network = (SETTINGS / "network.conf").read_text()
    for name, text in settings.items():
        (etc / f"{name}.conf").write_text(text)
        drop_in = root / "etc/systemd/system" / f"penstockd@{name}.service.d"
        drop_in.mkdir(parents=True)
        lines = [line for line in network.splitlines() if name != "store" or "LoadCredential" not in line]
        lines += ["LoadCredential=data-token:/etc/penstock/data-token"] if name == "store" else []
        (drop_in / "network.conf").write_text("\n".join(lines) + "\n")


def test_services_under_systemd(system: pathlib.Path) -> None:
    """A pool and a data store come up, and a node that is killed, or restarted with its master, has its values."""
    install(system)
    (system / "usr/local/bin/trial").write_text(TRIAL.replace("KEYS", str(KEYS)))
    (system / "usr/local/bin/trial").chmod(0o755)
    unit = system / "etc/systemd/system/trial.service"
    unit.write_text("[Service]\nType=oneshot\nExecStart=/usr/local/bin/trial\n")
    wants = system / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(exist_ok=True)
    (wants / unit.name).symlink_to(unit.name)
    subprocess.run(["systemd-nspawn", "--register=no", "--keep-unit", "--private-network", "--boot", "-D", system, "systemd.unit=multi-user.target"],
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=TRIAL_S_MAX, check=False)
    said = (system / "trial.log").read_text()
    told = [line for line in said.splitlines() if not line.startswith(("put ", "get "))]
    assert told == ["ready", *["active"] * 4, "text", "ready", str(KEYS), "ready", str(KEYS)], said
