"""Logs of a webhook that raises: the traceback begins at the user's code."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

import pytest

from kubeloop.controller.webhooks.admission import Failed, contained
from kubeloop.meta.failure_log import user_traceback
from kubeloop.meta.label_requirement import parse_requirements


async def raises() -> None:
    raise ValueError("bad")


async def raises_in_kubeloop() -> None:
    parse_requirements("a in (")


@pytest.mark.parametrize(
    ("work", "level", "files"),
    [
        pytest.param(raises, logging.INFO, ["test_containing.py"], id="only the user's frames"),
        pytest.param(raises_in_kubeloop, logging.INFO, ["test_containing.py", "label_requirement.py"], id="the user's line and the last"),
        pytest.param(raises, logging.DEBUG, ["admission.py", "test_containing.py"], id="at level DEBUG all frames"),
    ],
)
async def test_the_traceback_of_a_webhook_shows(work: object, level: int, files: list[str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(level, "kubeloop.controller.webhooks"), pytest.raises(Failed):
        await contained("a", work, 10)  # type: ignore[arg-type]
    (record,) = [one for one in caplog.records if one.exc_info]
    assert record.exc_info is not None
    names = [Path(frame.filename).name for frame in traceback.extract_tb(record.exc_info[2])]
    assert (names[0], names[-1]) == (files[0], files[-1])
    assert ("admission.py" in names) == (level == logging.DEBUG)


def test_an_error_that_went_through_no_code_of_the_user_keeps_its_frames() -> None:
    error = ValueError("bad")
    assert user_traceback(logging.getLogger("a"), error) == (ValueError, error, None)
