"""Log files in the format of the CRI: lines and parts, rotation, and what kubectl logs asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kubeloop.kubelet.logs import LogSelection, LogWriter, last_output, read_log

START = datetime(2026, 1, 1, tzinfo=UTC)


class Seconds:
    """A clock that advances a second with each look."""

    def __init__(self) -> None:
        self.count = -1

    def __call__(self) -> datetime:
        self.count += 1
        return START + timedelta(seconds=self.count)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Callable[..., LogWriter]]:
    made: list[LogWriter] = []

    def make(**options: Any) -> LogWriter:
        made.append(LogWriter(tmp_path / "0.log", Seconds(), **options))
        return made[-1]

    yield make
    for log in made:
        log.close()


async def read(log: LogWriter, **options: Any) -> str:
    return b"".join([part async for part in read_log(log.path, LogSelection(**options), log)]).decode()


def test_lines_of_both_streams_have_time_stream_and_tag(writer: Callable[..., LogWriter]) -> None:
    log = writer()
    log.write("stdout", b"one\ntw")
    log.write("stderr", b"err\n")
    log.write("stdout", b"o\n")
    log.write("stdout", b"rest")
    log.close()
    assert [line.split(" ", 1)[1] for line in log.path.read_text().splitlines()] == [
        "stdout F one",
        "stderr F err",
        "stdout F two",
        "stdout P rest",
    ]


async def test_a_long_line_is_written_in_parts_and_read_as_one(writer: Callable[..., LogWriter]) -> None:
    log = writer()
    log.write("stdout", b"x" * 40_000 + b"\nend\n")
    assert [line.split(" ", 3)[2] for line in log.path.read_text().splitlines()] == ["P", "P", "F", "F"]
    assert await read(log) == "x" * 40_000 + "\nend\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, "a\nb\nc\n", id="all lines"),
        pytest.param({"tail": 2}, "b\nc\n", id="the last lines"),
        pytest.param({"tail": 0}, "", id="no line"),
        pytest.param({"tail": 9}, "a\nb\nc\n", id="more lines than there are"),
        pytest.param({"since": START + timedelta(seconds=1)}, "b\nc\n", id="lines since a time"),
        pytest.param({"limit": 3}, "a\nb", id="a number of bytes"),
        pytest.param({"tail": 1, "timestamps": True}, "2026-01-01T00:00:02.000000000Z c\n", id="with times"),
    ],
)
async def test_a_log_is_read_as_requested(writer: Callable[..., LogWriter], options: dict[str, Any], expected: str) -> None:
    log = writer()
    log.write("stdout", b"a\nb\nc\n")
    assert await read(log, **options) == expected


async def test_a_reader_that_follows_gets_later_lines_across_rotations_until_the_end(writer: Callable[..., LogWriter]) -> None:
    log = writer(max_size=200, max_files=3)
    log.write("stdout", b"line 0\n")
    reading = asyncio.create_task(read(log, follow=True))
    for number in range(1, 40):
        await asyncio.sleep(0)
        log.write("stdout", f"line {number}\n".encode())
    log.close()
    assert await reading == "".join(f"line {number}\n" for number in range(40))
    assert len(list(log.path.parent.iterdir())) == 3


def test_a_query_is_read_as_log_options() -> None:
    query = {"follow": ["true"], "timestamps": ["false"], "tailLines": ["5"], "sinceSeconds": ["60"], "limitBytes": ["10"]}
    assert LogSelection.of_query(query, START) == LogSelection(True, False, 5, START - timedelta(seconds=60), 10)


def test_the_end_of_a_log_stands_for_a_termination_message(writer: Callable[..., LogWriter]) -> None:
    log = writer()
    log.write("stdout", b"".join(b"line %d\n" % number for number in range(200)))
    assert last_output(log.path, 2, 2048) == "line 198\nline 199\n"
    assert len(last_output(log.path, 80, 100)) == 100


def test_output_that_cannot_be_stored_is_dropped_and_said_once(
    writer: Callable[..., LogWriter], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "0.log").symlink_to("/dev/full")
    log = writer()
    for _ in range(3):
        log.write("stdout", b"lost\n")
    [message] = [record.getMessage() for record in caplog.records]
    assert message == f"cannot write the log {tmp_path / '0.log'}: No space left on device; output of the container is lost"
