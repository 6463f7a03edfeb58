"""Faults around the controller: the last good configuration keeps serving, and an event, a log line and a metric tell of the fault."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.ingress_nginx.tests.objects import ingress, tls_secret
from examples.ingress_nginx.tests.stage import POD, ControllerStage, controller_stage, program_of, stage_options
from kubeloop.api.networking.v1 import Ingress


def metric(at: ControllerStage, name: str) -> float:
    """Return a metric of the controller."""
    labels = {"controller_namespace": POD[0], "controller_class": "kubeloop.dev/ingress-controller", "controller_pod": POD[1]}
    found = at.registry.get_sample_value(f"nginx_ingress_controller_{name}", labels)
    assert found is not None
    return found


async def succeeded(at: ControllerStage) -> None:
    """Wait for the metric of a successful sync, which follows NGINX's first answer with the new configuration."""

    async def value() -> float:
        return metric(at, "config_last_reload_successful")

    await at.until(value, 1.0)


async def serving(at: ControllerStage) -> None:
    """Serve a host as a good configuration."""
    await at.web()
    await at.put(ingress("web", "shop.test / web:80"))
    await at.answers("web", "shop.test")


async def test_a_missing_nginx_is_reported_and_looked_for_again(mode: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    program = tmp_path / "nginx-of-tomorrow"
    async with controller_stage(stage_options(mode, tmp_path / "nginx", program=program), mode, start=False) as at:
        await at.start()
        await at.warning(POD[1], f"there is no program '{program}'", kind="Pod")
        assert "pass --nginx" in caplog.text
        assert (metric(at, "config_last_reload_successful"), metric(at, "success")) == (0, 0)
        wrapped(program, mode, tmp_path)
        await at.answers("404", "unknown.test")
        await succeeded(at)


async def test_a_killed_master_comes_back_with_its_configuration(at: ControllerStage, caplog: pytest.LogCaptureFixture) -> None:
    await serving(at)
    master = at.process.pid
    assert master is not None
    os.kill(master, signal.SIGKILL)

    async def restarted() -> bool:
        return at.process.restarts == 1

    await at.until(restarted)
    await at.answers("web", "shop.test")
    assert at.process.pid != master
    assert "NGINX's master ended with status -9" in caplog.text
    # Changes reach the new process.
    await at.put(ingress("late", "late.test / web:80"))
    await at.answers("web", "late.test")


async def test_a_killed_worker_is_replaced(at: ControllerStage) -> None:
    await serving(at)
    workers = at.workers()
    for worker in workers:
        os.kill(worker, signal.SIGKILL)

    async def replaced() -> bool:
        return bool(at.workers()) and not at.workers() & workers

    await at.until(replaced)
    await at.answers("web", "shop.test")
    await at.put(ingress("late", "late.test / web:80"))
    await at.answers("web", "late.test")


def wrapped(path: Path, mode: str, folder: Path) -> Path:
    """Write a program that runs NGINX, and refuses each configuration while the file ``refuse`` exists in a folder. Return that file."""
    flag = folder / "refuse"
    program = program_of(mode)
    test = f'case " $* " in *" -t "*) [ -e {flag} ] && echo "nginx: [emerg] refused by a test" && exit 1;; esac'
    path.write_text(f'#!/bin/sh\n{test}\nexec {program} "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return flag


async def test_a_refused_configuration_leaves_the_last_one(mode: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    program = tmp_path / "wrapper"
    flag = wrapped(program, mode, tmp_path)
    async with controller_stage(stage_options(mode, tmp_path / "nginx", program=program), mode) as at:
        await serving(at)
        good = metric(at, "success")
        flag.touch()
        # Another body size is a new policy: a reload in both modes.
        await at.put(ingress("new", "new.test / web:80", proxy_body_size="3m"))
        await at.warning(POD[1], "refused by a test", kind="Pod")
        assert "the last one keeps serving: nginx: [emerg] refused by a test" in caplog.text
        assert metric(at, "config_last_reload_successful") == 0
        assert metric(at, "errors") > 0
        assert metric(at, "success") == good
        assert await at.backend_of("shop.test") == "web"
        assert await at.backend_of("new.test") == "404"
        flag.unlink()
        await at.answers("web", "new.test")
        await succeeded(at)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB. It needs the right to mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], check=False).returncode:
        yield folder
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


async def test_a_full_disk_leaves_the_last_configuration(mode: str, small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with controller_stage(stage_options(mode, small_disk / "nginx"), mode) as at:
        await serving(at)
        if await asyncio.to_thread(small_disk.is_mount):
            filler = small_disk / "filler"
            with filler.open("wb", buffering=0) as file:
                try:
                    while file.write(b"x" * 512):
                        pass
                except OSError:
                    pass
        else:
            filler = small_disk / "nginx" / "candidate.conf.new"
            filler.mkdir()
        await at.put(ingress("new", "new.test / web:80", proxy_body_size="3m"))
        await at.warning(POD[1], f"cannot write to {small_disk}", kind="Pod")
        assert "the last configuration keeps serving" in caplog.text
        assert metric(at, "config_last_reload_successful") == 0
        assert await at.backend_of("shop.test") == "web"
        assert await at.backend_of("new.test") == "404"
        filler.rmdir() if filler.is_dir() else filler.unlink()
        await at.answers("web", "new.test")
        await succeeded(at)


async def test_an_api_server_that_is_gone_changes_nothing_that_serves(at: ControllerStage) -> None:
    await at.put(tls_secret("cert", "shop.test"))
    await at.web()
    await at.put(ingress("web", "shop.test / web:80", tls=["cert shop.test"]))
    await at.answers("web", "shop.test", https=True)
    back = at.server.faults.break_answers()
    at.server.faults.cut_streams()
    assert await at.backend_of("shop.test", https=True) == "web"
    await at.controller.nginx.healthy()
    back()
    # The test's client continues before the controller's watches do.
    await at.put(ingress("late", "late.test / web:80"))
    await at.client.delete(Ingress, "web")
    await at.answers("web", "late.test")
    await at.answers("404", "shop.test")


async def test_a_history_that_is_lost_changes_nothing_that_serves(at: ControllerStage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    await serving(at)
    workers = at.workers()
    await at.server.restart()
    reports = len(at.reports)
    await at.put(ingress("late", "late.test / web:80"))
    await at.answers("web", "late.test")
    assert await at.backend_of("shop.test") == "web"
    assert all(report.changes.servers <= {((), "late.test")} for report in at.reports[reports:])
    assert at.mode == "reload" or at.workers() == workers


async def test_changes_beside_a_fault_are_not_lost(at: ControllerStage) -> None:
    """Kill the master while changes arrive: at the end NGINX serves all of them."""
    await serving(at)
    for number in range(6):
        await at.put(ingress(f"more-{number}", f"more-{number}.test / web:80"))
        if number == 3 and at.process.pid is not None:
            os.kill(at.process.pid, signal.SIGKILL)

    async def all_served() -> set[str]:
        return set(await asyncio.gather(*(at.backend_of(f"more-{number}.test") for number in range(6))))

    await at.until(all_served, {"web"})
