# SPDX-License-Identifier: Apache-2.0
"""UMBP's configuration: every name and field, what the environment says, sizes of any kind, and what is not used."""
from __future__ import annotations

import ctypes
import dataclasses
import enum
import logging
import os
import pathlib
import socket
import struct
import subprocess
import sys

import penstock
import pytest
import support
from penstock import umbp
from penstock.umbp import UMBPDeploymentMode, UMBPHostBufferBacking, UMBPRole
from penstock.umbp.opening import UNUSED, page_bytes, segment_bytes

ENUMS = {
    "UMBPRole": ["Standalone", "SharedSSDLeader", "SharedSSDFollower"],
    "UMBPDeploymentMode": ["Local", "StandaloneProcess", "Distributed"],
    "UMBPSsdLayoutMode": ["SegmentedLog"],
    "UMBPIoBackend": ["Posix", "IoUring"],
    "UMBPDurabilityMode": ["Strict", "Relaxed"],
    "CacheRemoteAdmission": ["SIZE", "NEVER", "ALWAYS"],
    "UMBPHostBufferBacking": ["Anonymous", "AnonymousHugetlb", "AnonymousShm", "AnonymousShmHugetlb"],
    "UMBPTierType": ["Unknown", "HBM", "DRAM", "SSD"],
}
FIELDS = {
    "UMBPDramConfig": "capacity_bytes use_shared_memory shm_name high_watermark low_watermark use_hugepages hugepage_size"
                      " numa_node prefault",
    "UMBPIoConfig": "backend queue_depth",
    "UMBPDurabilityConfig": "mode enable_background_gc",
    "UMBPSsdConfig": "enabled storage_dir capacity_bytes layout_mode segment_size_bytes high_watermark low_watermark io"
                     " durability ssd_backend spdk_bdev_name spdk_reactor_mask spdk_mem_size_mb spdk_nvme_pci_addr"
                     " spdk_nvme_ctrl_name spdk_io_workers spdk_proxy_shm_name spdk_proxy_bin spdk_proxy_tenant_id"
                     " spdk_proxy_tenant_quota_bytes"
                     " spdk_proxy_max_channels spdk_proxy_data_per_channel_mb spdk_proxy_startup_timeout_ms spdk_proxy_auto_start"
                     " spdk_proxy_idle_exit_timeout_ms spdk_proxy_allow_borrow spdk_proxy_reserved_shared_bytes",
    "UMBPEvictionConfig": "policy candidate_window auto_promote_on_read",
    "UMBPCopyPipelineConfig": "async_enabled queue_depth worker_threads batch_max_ops",
    "UMBPMasterClientConfig": "master_address node_id node_address auto_heartbeat tags",
    "UMBPIoEngineConfig": "host port",
    "UMBPDistributedConfig": "master_config io_engine staging_buffer_size ssd_staging_buffer_size ssd_staging_buffer_slots"
                             " peer_service_port cache_remote_fetches cache_remote_admission admission_max_block_bytes"
                             " dram_page_size ranged_scratch_size hbm enable_ssd_tier",
    "UMBPStandaloneProcessConfig": "address auto_start startup_timeout_ms worker_node_id worker_node_address tags",
    "UMBPConfig": "dram ssd eviction copy_pipeline role follower_mode force_ssd_copy_on_write distributed standalone_process",
}
BLOCK = ctypes.create_string_buffer(b"b" * 100_000, 100_000)
AT = ctypes.addressof(BLOCK)


def test_names_and_fields() -> None:
    for name, members in ENUMS.items():
        kind = getattr(umbp, name)
        assert issubclass(kind, enum.Enum) and [member.name for member in kind] == members
    for name, fields in FIELDS.items():
        kind = getattr(umbp, name)
        assert {field.name for field in dataclasses.fields(kind)} == set(fields.split()), name
        with pytest.raises(AttributeError):
            kind().something_else = 1
    for name in umbp.__all__:
        assert getattr(umbp, name).__doc__


def test_the_names_of_mori(tmp_path: pathlib.Path) -> None:
    """In a process of its own: an interpreter that has mori has one of them."""
    ours = pathlib.Path(__file__).parents[2] / "python/penstock-mori"
    code = ("import mori.cpp, mori.umbp, penstock.umbp as ours\n"
            "for there in (mori.cpp, mori.umbp):\n"
            "    assert there.__all__ == ours.__all__ and all(getattr(there, n) is getattr(ours, n) for n in ours.__all__)\n")
    env = support.clean_environment(PYTHONPATH=f"{support.BUILD / 'python'}:{ours}")
    subprocess.run([sys.executable, "-B", "-c", code], env=env, check=True, cwd=tmp_path)


def test_from_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("UMBP_") or name in ("LOCAL_RANK", "SLURM_LOCALID"):
            monkeypatch.delenv(name)
    assert umbp.UMBPConfig.from_environment() == umbp.UMBPConfig()
    for name, value in {"UMBP_DRAM_CAPACITY": "1048576", "UMBP_DRAM_HIGH_WM": "0.5", "UMBP_SSD_ENABLED": "1",
                        "UMBP_SSD_DIR": "/x", "UMBP_EVICTION_POLICY": "s3fifo", "UMBP_SPDK_PROXY_ALLOW_BORROW": "true",
                        "LOCAL_RANK": "3"}.items():
        monkeypatch.setenv(name, value)
    config = umbp.UMBPConfig.from_environment()
    assert config.dram.capacity_bytes == 1 << 20 and config.dram.high_watermark == 0.5
    assert config.ssd.enabled is True and config.ssd.storage_dir == "/x"
    assert config.eviction.policy == "s3fifo" and config.ssd.spdk_proxy_allow_borrow is True
    assert config.role == UMBPRole.SharedSSDFollower
    monkeypatch.setenv("UMBP_ROLE", "leader")
    assert umbp.UMBPConfig.from_environment().role == UMBPRole.SharedSSDLeader
    for name, value in (("UMBP_DRAM_CAPACITY", "9007199254740993"), ("UMBP_DRAM_HIGH_WM", "")):
        monkeypatch.setenv(name, value)
    config = umbp.UMBPConfig.from_environment()
    assert config.dram.capacity_bytes == 9007199254740993 and config.dram.high_watermark == umbp.UMBPDramConfig().high_watermark
    for name, value in (("UMBP_SSD_CAPACITY", "much"), ("UMBP_DRAM_CAPACITY", "nan"), ("UMBP_DRAM_CAPACITY", "inf"),
                        ("UMBP_DRAM_CAPACITY", "1.5"), ("UMBP_DRAM_HIGH_WM", "inf"), ("UMBP_ROLE", "Leader")):
        with monkeypatch.context() as patch, pytest.raises(ValueError, match=f"{name} is '{value}'"):
            patch.setenv(name, value)
            umbp.UMBPConfig.from_environment()


def test_older_words_for_roles() -> None:
    assert umbp.UMBPConfig(follower_mode=True).resolved_role() == UMBPRole.SharedSSDFollower
    assert umbp.UMBPConfig(force_ssd_copy_on_write=True).resolved_role() == UMBPRole.SharedSSDLeader
    assert umbp.UMBPConfig(role=UMBPRole.SharedSSDLeader, follower_mode=True).resolved_role() == UMBPRole.SharedSSDLeader


def test_what_is_not_used_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    plain = umbp.UMBPConfig(distributed=umbp.UMBPDistributedConfig(), standalone_process=umbp.UMBPStandaloneProcessConfig())
    for path in UNUSED:
        value: object = plain
        for name in path.split("."):
            value = getattr(value, name)  # there is such a field
    config = umbp.UMBPConfig(dram=umbp.UMBPDramConfig(capacity_bytes=16 << 20, numa_node=1))
    config.ssd.spdk_bdev_name = "NVMe0n1"
    with caplog.at_level(logging.WARNING, logger="penstock.umbp"):
        for _ in range(2):
            umbp.create_umbp_client(config).close()
    assert sorted(record.args[0] for record in caplog.records if record.args) == ["dram.numa_node", "ssd.spdk_bdev_name"]


@pytest.mark.parametrize("page", [0, 512, 4097, 3_000_000, 1 << 40])
@pytest.mark.parametrize("dram", [1 << 20, 5_000_000, 64 << 20])
def test_pages_and_memory_of_any_size(page: int, dram: int) -> None:
    bytes_of = page_bytes(page, dram)
    assert bytes_of % 4096 == 0 and 64 << 10 <= bytes_of <= max(64 << 10, dram // 16)
    with penstock.open(f"mem:?dram={dram}&page_size={bytes_of}") as store:
        assert store.put("k", b"v" * 1000)


@pytest.mark.parametrize("capacity,segment", [(1, 1), (16 << 20, 256 << 20), (17_000_000, 5_000_000), (64 << 20, 1 << 40)])
def test_ssds_of_any_size(tmp_path: pathlib.Path, capacity: int, segment: int) -> None:
    assert segment_bytes(segment, capacity) % (1 << 20) == 0
    config = umbp.UMBPConfig(dram=umbp.UMBPDramConfig(capacity_bytes=4 << 20))
    config.ssd = umbp.UMBPSsdConfig(True, str(tmp_path / "new/folder"), capacity, segment)
    with umbp.create_umbp_client(config) as client:
        keys = [f"{i}" for i in range(60)]  # 6 MB: more than memory has
        for key in keys:
            assert client.put_from_ptr(key, AT, 100_000) and client.flush(), client.failure
        assert client.store.stat().ssd_capacity_bytes > 0
        assert client.batch_get_into_ptr(keys, [AT] * 60, [100_000] * 60) == [True] * 60, client.failure


def test_a_put_may_wait_for_the_ssd(tmp_path: pathlib.Path) -> None:
    config = umbp.UMBPConfig(dram=umbp.UMBPDramConfig(capacity_bytes=16 << 20))
    config.ssd = umbp.UMBPSsdConfig(True, str(tmp_path), 64 << 20, 2 << 20)
    config.copy_pipeline.async_enabled = False
    with umbp.create_umbp_client(config) as client:
        assert client.put_from_ptr("k", AT, 100_000)
        assert client.batch_put_ranges_from_ptr(["r"], [100_000], [[AT, AT + 4]], [[4, 99_996]], [[0, 4]]) == [True]
        before = client.store.stat().ssd_appended_bytes
        assert before >= 200_000 and client.flush() and client.store.stat().ssd_appended_bytes == before


def test_errors_are_runtime_errors(tmp_path: pathlib.Path) -> None:
    both = umbp.UMBPConfig(distributed=umbp.UMBPDistributedConfig(), standalone_process=umbp.UMBPStandaloneProcessConfig("x"))
    none = umbp.UMBPConfig(distributed=umbp.UMBPDistributedConfig())
    file = tmp_path / "file"
    file.write_text("")
    folder = umbp.UMBPConfig(ssd=umbp.UMBPSsdConfig(True, str(file / "ssd")))
    for config, text in ((both, "standalone_process"), (none, "master_address"), (folder, "storage_dir")):
        with pytest.raises(RuntimeError, match=text):
            umbp.create_umbp_client(config)
    client = umbp.create_umbp_client(umbp.UMBPConfig(dram=umbp.UMBPDramConfig(capacity_bytes=16 << 20)))
    with pytest.raises(RuntimeError, match=r"ptrs\[0\]"):
        client.put_from_ptr("k", 0, 1)
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.exists("k")


def test_what_it_is() -> None:
    config = umbp.UMBPConfig(dram=umbp.UMBPDramConfig(capacity_bytes=16 << 20))
    with umbp.create_umbp_client(config) as client:
        assert client.get_deployment_mode() == client.get_backend_mode() == UMBPDeploymentMode.Local
        assert client.supports_ranged_io() and repr(client).startswith("<UMBPClient mem:")
        assert not client.register_memory(AT, 4096, umbp.MemoryLocationType.GPU, 0) and "GPU" in str(client.failure)
        assert client.register_memory(AT, 4096, umbp.MemoryLocationType.CPU, -1)


# ---- other processes of the host ----


def test_a_leader_and_its_followers(tmp_path: pathlib.Path) -> None:
    def config(role: UMBPRole) -> umbp.UMBPConfig:
        return umbp.UMBPConfig(dram=umbp.UMBPDramConfig(capacity_bytes=16 << 20), role=role,
                               ssd=umbp.UMBPSsdConfig(True, str(tmp_path / "ssd"), 64 << 20))

    with (umbp.create_umbp_client(config(UMBPRole.SharedSSDLeader)) as leader,
          umbp.create_umbp_client(config(UMBPRole.SharedSSDFollower)) as follower):
        assert leader.put_from_ptr("k", AT, 100_000) and follower.exists("k")
        into = ctypes.create_string_buffer(100_000)
        assert follower.get_into_ptr("k", ctypes.addressof(into), 100_000) and into.raw == BLOCK.raw
        assert follower.batch_put_from_ptr(["a", "b"], [AT] * 2, [1, 1]) == [False, False] and "follower" in str(follower.failure)
        assert follower.batch_put_ranges_from_ptr(["a"], [1], [[AT]], [[1]], [[0]]) == [False] and not leader.exists("a")
        assert not follower.clear() and "follower" in str(follower.failure) and leader.exists("k")


def _pid_behind(path: str) -> int:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(path)
        return int(struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])


@pytest.mark.parametrize("spelling", ["unix://{}", "unix:{}", "{}", "node+unix://{}"])
def test_a_process_of_the_host(tmp_path: pathlib.Path, spelling: str) -> None:
    path = str(tmp_path / "socket")
    config = umbp.UMBPConfig(standalone_process=umbp.UMBPStandaloneProcessConfig(spelling.format(path)))
    with support.start_node("--dram=16M", f"--unix={path}"), umbp.create_umbp_client(config) as client:
        assert client.put_from_ptr("k", AT, 1000) and not client.is_distributed() and client.node is None
        assert client.get_deployment_mode() == UMBPDeploymentMode.StandaloneProcess
        assert client.get_backend_mode() == UMBPDeploymentMode.Local


def test_a_process_that_is_started(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "socket")
    config = umbp.UMBPConfig(dram=umbp.UMBPDramConfig(capacity_bytes=16 << 20),
                             standalone_process=umbp.UMBPStandaloneProcessConfig(path, startup_timeout_ms=20000))
    monkeypatch.setenv("UMBP_STANDALONE_BIN", str(support.BUILD / "penstockd"))
    with umbp.create_umbp_client(config) as client:
        pid = _pid_behind(path)
        try:
            assert pid != os.getpid() and client.put_from_ptr("k", AT, 1000)
            with umbp.create_umbp_client(config) as other:
                assert other.exists("k") and _pid_behind(path) == pid
        finally:
            os.kill(pid, 15)
    support.wait_until("it has ended", lambda: not os.path.exists(path))
    monkeypatch.delenv("UMBP_STANDALONE_BIN")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(penstock.Unreachable, match="no penstockd"):
        umbp.create_umbp_client(config)
    assert config.standalone_process
    config.standalone_process.auto_start, config.standalone_process.startup_timeout_ms = False, 100
    with pytest.raises(penstock.Unreachable):
        umbp.create_umbp_client(config)


# ---- memory for an engine ----


@pytest.mark.parametrize("backing", list(UMBPHostBufferBacking))
def test_memory_of_the_host(backing: UMBPHostBufferBacking) -> None:
    allocator = umbp.UMBPHostMemAllocator()
    handle = allocator.alloc(100_001, backing, numa_node=0)
    assert handle and handle.requested_size == 100_001 <= handle.mapped_size and handle.mapped_size % handle.actual_alignment == 0
    assert handle.ptr % handle.actual_alignment == 0 and handle.actual_backing.name in backing.name
    ctypes.memset(handle.ptr, 7, handle.mapped_size)
    with umbp.create_umbp_client(umbp.UMBPConfig(dram=umbp.UMBPDramConfig(capacity_bytes=16 << 20))) as client:
        assert client.register_memory(handle.ptr, handle.mapped_size) and client.put_from_ptr("k", handle.ptr, 100_001)
        assert client.store.get("k") == b"\7" * 100_001
        client.deregister_memory(handle.ptr)
    allocator.free(handle)
    allocator.free(handle)
    assert not handle and handle.ptr == 0 and "ptr=0x0" in repr(handle)


def test_memory_that_there_is_not() -> None:
    allocator = umbp.UMBPHostMemAllocator()
    assert not allocator.alloc(0) and not allocator.alloc(1 << 60) and not umbp.UMBPHostBufferHandle()
    for wrong in ({"size": -1}, {"size": 1, "hugepage_size": 3}, {"size": 1, "numa_node": 5000}):
        with pytest.raises(ValueError):
            allocator.alloc(**wrong)
