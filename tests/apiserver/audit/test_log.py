"""The audit log's file: its mode, its content at the end, and rotated files."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from kubeloop.apiserver.audit.log import AuditLog, Rotation
from kubeloop.meta.errors import ConfigError
from kubeloop.timing import FakeClock, SystemClock


async def test_after_the_end_all_events_are_in_a_file_of_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = AuditLog(path, FakeClock())
    log.open()
    for number in range(1000):
        log.add(b"%d" % number)
    await log.close()
    assert path.read_text().split() == [str(number) for number in range(1000)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_events_are_written_without_waiting_for_the_end(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = AuditLog(path, SystemClock())
    log.open()
    try:
        for number in range(3):
            log.add(b"%d" % number)
            async with asyncio.timeout(30):
                while path.read_text().count("\n") <= number:
                    await asyncio.sleep(0.01)
    finally:
        await log.close()
    assert path.read_text() == "0\n1\n2\n"


async def test_more_than_may_wait_is_written_at_once(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = AuditLog(path, FakeClock())
    log.open()
    for _ in range(9):
        log.add(b"x" * (1 << 20))
    assert path.stat().st_size > 8 << 20
    await log.close()


async def test_a_log_goes_on_where_a_former_one_ended(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for text in (b"one", b"two"):
        log = AuditLog(path, FakeClock())
        log.open()
        log.add(text)
        await log.close()
    assert path.read_text() == "one\ntwo\n"


async def test_a_file_of_full_size_is_put_aside_and_only_so_many_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    (tmp_path / "audit-of-mine.log").write_text("not ours")
    (tmp_path / "audit-2001-01-01T00-00-00.000000.log").write_text("old")
    for number in range(5):
        log = AuditLog(path, FakeClock(), Rotation(size=1, backups=2))
        log.open()
        log.add(b"%d" % number * (700 * 1024))
        await log.close()
    aside = sorted(one.read_text()[0] for one in tmp_path.glob("audit-2*.log"))
    assert (path.read_text()[0], aside) == ("4", ["2", "3"])
    assert (tmp_path / "audit-of-mine.log").exists()
    assert {stat.S_IMODE(one.stat().st_mode) for one in tmp_path.glob("audit-2*.log")} == {0o600}


async def test_files_that_are_too_old_go(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    (tmp_path / "audit-2001-01-01T00-00-00.000000.log").write_text("old")
    for _ in range(2):
        log = AuditLog(path, FakeClock(), Rotation(size=1, days=1))
        log.open()
        log.add(b"x" * (700 * 1024))
        await log.close()
    assert len(list(tmp_path.glob("audit-*.log"))) == 1
    assert not list(tmp_path.glob("audit-2001*"))


async def test_standard_output_can_be_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    log = AuditLog(None, FakeClock())
    log.open()
    log.add(b"{}")
    await log.close()
    assert capsys.readouterr().out == "{}\n"


async def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nosuch"):
        AuditLog(tmp_path / "nosuch" / "audit.log", FakeClock()).open()
