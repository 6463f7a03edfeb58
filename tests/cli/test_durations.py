"""Durations as flags write them."""

from __future__ import annotations

import click
import pytest

from kubeloop.cli.flags import DurationParameter


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("300", 300.0, id="a number is seconds"),
        pytest.param("0.5", 0.5, id="parts of a second"),
        pytest.param("5m0s", 300.0, id="as Kubernetes writes it"),
        pytest.param("1h30m", 5400.0, id="several units"),
        pytest.param("1.5h", 5400.0, id="a part of a unit"),
        pytest.param("250ms", 0.25, id="milliseconds are no minutes"),
    ],
)
def test_a_duration(text: str, expected: float) -> None:
    assert DurationParameter().convert(text, None, None) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "0", "0s", "-5", "5 m", "m", "1d", "nan", "inf", "5m!"])
def test_a_text_that_is_no_duration(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a valid duration; write seconds, or one like 5m or 1h30m"):
        DurationParameter().convert(text, None, None)
