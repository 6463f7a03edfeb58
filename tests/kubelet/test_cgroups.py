"""Limits of containers by cgroups: their paths, the values written, and the reports of the kernel; and limits without cgroups."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeloop.api.core.v1 import Pod
from kubeloop.client import Client
from kubeloop.kubelet.cgroups import CgroupLimits, Cgroups, CgroupsUnavailable, ContainerCgroup, Hierarchy, read_hierarchies, remove_tree
from kubeloop.kubelet.usage import ProcessUsage
from tests.kubelet.conftest import ProcessCluster, inner_kubelet
from tests.kubelet.test_process_pods import ended, is_ready, shell_pod, wait

V1 = """\
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n29 23 0:25 / /sys rw - sysfs sysfs rw\n"
PART = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
FOLDER = Path("/sys/fs/cgroup")


@pytest.mark.parametrize(
    ("mounts", "cgroups", "expected"),
    [
        pytest.param(
            V1,
            "4:memory:/session\n3:cpu,cpuacct:/\n0::/\n",
            [
                Hierarchy(1, ("cpu", "cpuacct"), FOLDER / "cpu,cpuacct", FOLDER / "cpu,cpuacct"),
                Hierarchy(1, ("memory",), FOLDER / "memory", FOLDER / "memory/session"),
                Hierarchy(2, (), FOLDER / "unified", FOLDER / "unified"),
            ],
            id="version 1 with an empty hierarchy of version 2",
        ),
        pytest.param(V2, "0::/user.slice/a.scope\n", [Hierarchy(2, (), FOLDER, FOLDER / "user.slice/a.scope")], id="version 2"),
        pytest.param(
            PART,
            "4:memory:/docker/abc/job\n",
            [Hierarchy(1, ("memory",), FOLDER / "memory", FOLDER / "memory/job")],
            id="a container that sees its part of version 1",
        ),
        pytest.param("", "0::/\n", [], id="nothing is mounted"),
    ],
)
def test_the_hierarchies_of_a_machine_are(mounts: str, cgroups: str, expected: list[Hierarchy]) -> None:
    assert read_hierarchies(mounts, cgroups) == expected


@pytest.mark.parametrize(
    ("limits", "version", "expected"),
    [
        pytest.param({}, 2, [], id="no limits write nothing"),
        pytest.param({"cpu": "0", "memory": "0"}, 1, [], id="limits of zero are none"),
        pytest.param({"cpu": "500m"}, 2, [("cpu", "cpu.max", "50000 100000")], id="half a CPU of version 2"),
        pytest.param(
            {"cpu": 2},
            1,
            [("cpu", "cpu.cfs_period_us", "100000"), ("cpu", "cpu.cfs_quota_us", "200000")],
            id="two CPUs of version 1",
        ),
        pytest.param({"cpu": "1m"}, 2, [("cpu", "cpu.max", "1000 100000")], id="the smallest quota is a millisecond"),
        pytest.param(
            {"memory": "64Mi"},
            1,
            [("memory", "memory.limit_in_bytes", "67108864"), ("memory", "memory.memsw.limit_in_bytes", "67108864")],
            id="memory of version 1",
        ),
        pytest.param(
            {"memory": "1k"},
            2,
            [("memory", "memory.max", "1000"), ("memory", "memory.swap.max", "0"), ("memory", "memory.oom.group", "1")],
            id="memory of version 2",
        ),
    ],
)
def test_the_limits_of_a_container_are_written(limits: dict[str, Any], version: int, expected: list[tuple[str, str, str]]) -> None:
    assert CgroupLimits.from_container({"resources": {"limits": limits}}).settings(version) == expected


@pytest.mark.parametrize(
    ("version", "files"),
    [
        pytest.param(
            1,
            {
                "cpuacct.usage": "2500000000\n",
                "memory.usage_in_bytes": "1000\n",
                "memory.stat": "inactive_file 1\ntotal_inactive_file 300\n",
                "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
            },
            id="version 1",
        ),
        pytest.param(
            2,
            {
                "cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
                "memory.current": "1000\n",
                "memory.stat": "anon 5\ninactive_file 300\n",
                "memory.events": "low 0\nhigh 0\nmax 7\noom 2\noom_kill 2\n",
            },
            id="version 2",
        ),
    ],
)
def test_usage_and_killed_processes_are_read_from(tmp_path: Path, version: int, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    cgroup = ContainerCgroup(version, dict.fromkeys(("memory", "cpu", "cpuacct"), tmp_path))
    assert cgroup.usage() == ProcessUsage(2.5, 700)
    assert cgroup.oom_kills() == 2
    assert cgroup.process_files == [tmp_path / "cgroup.procs"]


def test_a_container_of_version_2_gets_its_controllers_and_limits(tmp_path: Path) -> None:
    Cgroups(2, dict.fromkeys(("memory", "cpu"), tmp_path / "node")).create("id", CgroupLimits(0.5, 4096))
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu +memory"
    assert (tmp_path / "node/cgroup.subtree_control").read_text() == "+cpu +memory"
    assert {path.name: path.read_text() for path in (tmp_path / "node/id").iterdir()} == {"cpu.max": "50000 100000", "memory.max": "4096"}


@pytest.mark.parametrize(
    ("hierarchies", "reason"),
    [
        pytest.param([], "no hierarchy of cgroups has the controllers cpu and memory", id="without cgroups"),
        pytest.param([Hierarchy(2, (), Path("/proc"), Path("/proc"))], "no hierarchy", id="without controllers"),
        pytest.param(
            [Hierarchy(1, ("memory", "cpu", "cpuacct"), Path("/proc"), Path("/proc/sys"))], "/proc/sys/kubeloop-pods-", id="read-only"
        ),
    ],
)
def test_where_no_cgroups_can_be_created_the_reason_is_known(hierarchies: list[Hierarchy], reason: str) -> None:
    with pytest.raises(CgroupsUnavailable, match=reason):
        Cgroups.open("prefix", hierarchies)


# ---------------------------------------------------------------------------------------------------------------- of this machine


@pytest.fixture
def cgroups(tmp_path: Path) -> Iterator[Cgroups]:
    """The cgroups of a kubelet on this machine."""
    try:
        result = Cgroups.open(tmp_path.name)
    except CgroupsUnavailable as error:
        pytest.skip(str(error))
    yield result
    result.close()


def folders(cgroups: Cgroups, name: str) -> list[Path]:
    return [folder.with_name(name) for folder in cgroups.folders.values()]


def test_the_cgroups_of_dead_kubelets_are_removed_and_those_of_others_stay(cgroups: Cgroups, tmp_path: Path) -> None:
    with subprocess.Popen(["/bin/sleep", "1000"]) as leftover:
        former, dead = folders(cgroups, f"kubeloop-pods-{tmp_path.name}-1"), folders(cgroups, "kubeloop-pods-other-99999999")
        running = folders(cgroups, "kubeloop-pods-other-1")
        try:
            for folder in {*former, *dead, *running}:
                folder.mkdir()
                (folder / "container").mkdir()
            (former[0] / "container" / "cgroup.procs").write_text(str(leftover.pid))
            Cgroups.open(tmp_path.name)
            assert [one.exists() for one in (former[0], dead[0], running[0])] == [False, False, True]
            assert leftover.wait() == -9
        finally:
            leftover.kill()
            for folder in {*former, *dead, *running}:
                remove_tree(folder, kill=True)


@pytest.mark.embedded
@pytest.mark.timeout(90)
async def test_a_container_and_its_commands_run_in_a_cgroup_with_its_limits_that_ends_with_it(
    client: Client, cluster: ProcessCluster, tmp_path: Path, cgroups: Cgroups
) -> None:
    async with inner_kubelet(cluster, "inner-cgroups", tmp_path) as node:
        limits = {"resources": {"limits": {"cpu": "500m", "memory": "256Mi"}}}
        pod = await client.create(shell_pod("limited", "sleep 1000", node="inner-cgroups", container=limits))
        await wait(client, "limited", is_ready)
        worker = node.worker(client.namespace, "limited")
        assert worker is not None
        running = worker.running["main"]
        assert running.cgroup is not None
        places = [file.parent for file in running.cgroup.process_files]
        quotas = [(place / name).read_text() for place in places for name in ("cpu.cfs_quota_us", "cpu.max") if (place / name).exists()]
        assert quotas in (["50000\n"], ["50000 100000\n"])
        shown = (await client.pods.exec(pod, ["cat", "/proc/self/cgroup"])).stdout.decode()
        assert shown.count(f"/kubeloop-pods-{running.run.id[:16]}") == len(places)
        assert running.cgroup.usage().memory_bytes > 0
        await client.delete(Pod, "limited")
        await client.wait_gone(Pod, "limited", timeout=30)
        assert [place.exists() for place in places] == [False] * len(places)


@pytest.mark.embedded
@pytest.mark.timeout(90)
async def test_without_cgroups_the_kubelet_measures_memory_and_ends_a_container_beyond_its_limit(
    client: Client, cluster: ProcessCluster, tmp_path: Path
) -> None:
    async with inner_kubelet(cluster, "inner-measured", tmp_path, cgroups="off"):
        container = {"command": ["python3", "-S", "-c"], "resources": {"limits": {"memory": "64Mi"}}}
        script = "import time; data = bytearray(100 << 20); time.sleep(1000)"
        await client.create(shell_pod("measured", script, node="inner-measured", restartPolicy="Never", container=container))
        status = await wait(client, "measured", ended)
        terminated = status["containerStatuses"][0]["state"]["terminated"]
        assert (terminated["reason"], terminated["exitCode"]) == ("OOMKilled", 137)
        await client.delete(Pod, "measured", grace_period_seconds=0)
