"""Times on the wire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from kubeloop.meta import format_micro_time, format_time, parse_time

MOMENT = datetime(2026, 2, 3, 4, 5, 6, 780000, tzinfo=UTC)


def test_a_time_has_whole_seconds_in_utc() -> None:
    assert format_time(MOMENT.astimezone(timezone(timedelta(hours=2)))) == "2026-02-03T04:05:06Z"


def test_a_micro_time_always_has_six_digits() -> None:
    assert format_micro_time(MOMENT) == "2026-02-03T04:05:06.780000Z"
    assert format_micro_time(MOMENT.replace(microsecond=0)) == "2026-02-03T04:05:06.000000Z"


def test_the_zero_time_of_go_can_be_written_and_read() -> None:
    assert format_time(parse_time("0001-01-01T00:00:00Z")) == "0001-01-01T00:00:00Z"


@pytest.mark.parametrize("text", ["2026-02-03T04:05:06.78Z", "2026-02-03T06:05:06.780+02:00", "2026-02-03T04:05:06.780000000Z"])
def test_any_precision_and_offset_is_read(text: str) -> None:
    assert parse_time(text) == MOMENT


@pytest.mark.parametrize("text", ["", "yesterday", "2026-02-03", "2026-02-03T04:05:06"])
def test_a_text_that_is_no_time_or_has_no_offset_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an RFC 3339 time|has no offset"):
        parse_time(text)


def test_a_naive_time_is_refused() -> None:
    with pytest.raises(ValueError, match="is naive"):
        format_time(datetime(2026, 1, 1))  # noqa: DTZ001 - the point of the test
