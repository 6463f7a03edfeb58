"""Lines of a log, wherever bytes are cut; and each line once, wherever connections are."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.client.streams import StreamError, log_lines
from kubeloop.client.streams.log_lines import LineSplitter, ReturnedLines, line_time, without_time
from kubeloop.client.streams.logs import LogOptions


@given(data=st.binary(max_size=60).map(lambda data: data.replace(b"\x00", b"\n")), cuts=st.lists(st.integers(0, 60), max_size=6))
def test_lines_do_not_depend_on_how_their_bytes_were_cut(data: bytes, cuts: list[int]) -> None:
    cutter = LineSplitter("web")
    bounds = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    lines = [line for start, end in itertools.pairwise(bounds) for line in cutter.feed(data[start:end])]
    assert [*lines, cutter.rest()] == data.split(b"\n")


def test_a_line_without_an_end_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "MAX_LINE", 10)
    cutter = LineSplitter('pod "web"')
    cutter.feed(b"12345678")
    with pytest.raises(StreamError, match=r'log of pod "web": a line is longer than .*resume=False and chunks'):
        cutter.feed(b"9abc")


@pytest.mark.parametrize(
    ("line", "moment", "text"),
    [
        pytest.param(b"1970-01-01T00:00:01.5Z x", (1, b"500000000"), b"x", id="a fraction of any length"),
        pytest.param(
            b"1970-01-01T01:00:02.000000001+01:00  x ", (2, b"000000001"), b" x ", id="a zone, and blanks that are the line's own"
        ),
        pytest.param(b"1970-01-01T00:00:03Z ", (3, b"000000000"), b"", id="an empty line"),
        pytest.param(b"1970-13-01T00:00:03Z x", None, b"x", id="a month that there is not"),
        pytest.param(b"plain words", None, b"plain words", id="no time at all"),
    ],
)
def test_the_first_word_of_a_line_is_its_time(line: bytes, moment: tuple[int, bytes] | None, text: bytes) -> None:
    assert line_time(line) == moment
    assert without_time(line) == text


@st.composite
def _logs(draw: st.DrawFn) -> list[bytes]:
    """Lines as runtimes write them: many at one moment, equal ones, some a little younger than those before."""
    steps = draw(st.lists(st.tuples(st.integers(-9, 30), st.sampled_from("ab")), min_size=1, max_size=25))
    tenths, lines = 100, []
    for step, text in steps:
        tenths = max(tenths, 100) + step
        lines.append(
            f"1970-01-01T00:00:{tenths // 10 % 60:02}.{tenths % 10}Z {text}".encode() if tenths < 600 else b"1970-01-01T00:01:00Z z"
        )
        if step < 0:
            tenths -= step
    return lines


@given(lines=_logs(), cuts=st.lists(st.integers(0, 25), max_size=4))
def test_each_line_comes_once_wherever_connections_are_cut(lines: list[bytes], cuts: list[int]) -> None:
    """A node answers each time with what there is from a whole second on, as far as the connection lasts."""
    handed_out = ReturnedLines(from_start=True)
    got: list[bytes] = []
    since: datetime | None = None
    for cut in [*cuts, len(lines)]:
        for line in lines[:cut]:
            moment = line_time(line)
            assert moment is not None
            if (since is None or moment[0] >= since.timestamp()) and handed_out.is_new(line):
                got.append(line)
        since = handed_out.begin_resume()
    assert got == lines


def test_what_was_before_the_first_line_is_not_handed_out_after_a_cut() -> None:
    handed_out = ReturnedLines(from_start=False)
    assert handed_out.is_new(b"1970-01-01T00:00:05.5Z wanted")
    assert handed_out.begin_resume() == datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
    again = [b"1970-01-01T00:00:05.1Z not wanted", b"1970-01-01T00:00:05.5Z wanted", b"1970-01-01T00:00:05.6Z new", b"no time"]
    assert [handed_out.is_new(line) for line in again] == [False, False, True, True]


def test_nothing_with_a_time_means_asking_as_at_first() -> None:
    handed_out = ReturnedLines(from_start=True)
    assert handed_out.is_new(b"no time")
    assert handed_out.begin_resume() is None


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        pytest.param(LogOptions(), {}, id="all of it"),
        pytest.param(LogOptions(tail=0), {"tailLines": 0}, id="none of the lines"),
        pytest.param(LogOptions(since=90), {"sinceSeconds": 90}, id="seconds"),
        pytest.param(LogOptions(since=0.2), {"sinceSeconds": 1}, id="less than a second is one"),
        pytest.param(LogOptions(since=timedelta(minutes=2)), {"sinceSeconds": 120}, id="a duration"),
        pytest.param(LogOptions(since=datetime(2026, 1, 1, tzinfo=UTC)), {"sinceTime": "2026-01-01T00:00:00Z"}, id="a moment"),
        pytest.param(LogOptions(previous=True, follow=True), {"previous": True, "follow": True}, id="what ended before is not resumed"),
        pytest.param(LogOptions(follow=True, resume=False), {"follow": True}, id="followed as kubectl does"),
        pytest.param(LogOptions(follow=True, limit_bytes=9), {"follow": True, "limitBytes": 9}, id="a limit is not resumed"),
        pytest.param(LogOptions(follow=True), {"follow": True, "timestamps": True}, id="followed across cuts by the times of lines"),
    ],
)
def test_what_of_a_log_is_wanted_is_said_in_the_query(options: LogOptions, asked: dict[str, object]) -> None:
    query = options.query("main")
    assert {name: value for name, value in query.items() if value is not None} == {"container": "main", **asked}
