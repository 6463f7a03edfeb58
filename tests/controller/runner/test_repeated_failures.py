"""Logs of failures: the whole traceback of a new failure, a line of a repeated one."""

from __future__ import annotations

import logging

import pytest

from kubeloop.controller.runner.workers import _LOG
from kubeloop.meta import ApiError, Status
from kubeloop.meta.failure_log import FailureLog
from tests.controller.runner.bench import KEY, OTHER, Bench


def _here() -> Exception:
    try:
        raise ValueError("bad image")
    except ValueError as error:
        return error


def _elsewhere() -> Exception:
    try:
        raise ValueError("bad image")
    except ValueError as error:
        return error


@pytest.fixture
def failures() -> FailureLog[str]:
    logger = logging.getLogger("failures-of-a-test")
    logger.setLevel(logging.INFO)
    return FailureLog(logger)


@pytest.mark.parametrize(
    ("steps", "shown"),
    [
        pytest.param([("a", _here), ("a", _here)], [True, False], id="a repeated error has one traceback"),
        pytest.param([("a", _here), ("b", _here)], [True, False], id="a thousand keys with one error have one traceback"),
        pytest.param([("a", _here), ("a", _elsewhere)], [True, True], id="another place in the code is another error"),
        pytest.param([("a", _here), ("a", _elsewhere), ("a", _here)], [True, True, True], id="an error that changes back is news"),
        pytest.param([("a", _here), ("a", None), ("a", _here)], [True, False, True], id="after a success the traceback comes back"),
        pytest.param([("a", _here), ("b", _here), ("a", None), ("a", _here)], [True, False, False, False], id="while another key fails so"),
    ],
)
def test_a_traceback_is_shown_once_for_each_error(failures: FailureLog[str], steps: list[tuple[str, object]], shown: list[bool]) -> None:
    found = []
    for key, make in steps:
        if callable(make):
            found.append(failures.failed(key, make()) is not None)
        else:
            failures.succeeded(key)
            found.append(False)
    assert found == shown


def test_at_debug_every_traceback_is_shown() -> None:
    logger = logging.getLogger("failures-of-a-test-at-debug")
    logger.setLevel(logging.DEBUG)
    failures: FailureLog[str] = FailureLog(logger)
    assert [failures.failed("a", _here()) is not None for _ in range(3)] == [True, True, True]


def _forbidden(verb: str, resource: str, namespace: str) -> ApiError:
    message = f'x is forbidden: User "eve" cannot {verb} resource "{resource}" in API group "" in the namespace "{namespace}"'
    return ApiError.from_status(Status(status="Failure", reason="Forbidden", code=403, message=message), f"{verb} {resource}")


def test_the_advice_for_a_missing_permission_is_given_once_for_each_verb_and_resource() -> None:
    advised: set[tuple[str, str]] = set()
    one, other = (FailureLog[str](logging.getLogger("a"), advised) for _ in range(2))
    asked = [
        ("list", "pods", "shop"),
        ("list", "pods", "shop"),
        ("list", "pods", "bank"),
        ("get", "pods", "shop"),
        ("list", "pods/log", "shop"),
    ]
    texts = [log.text(_forbidden(*access)) for access, log in zip(asked, [one, one, other, other, one], strict=True)]
    assert ["what it takes" in text for text in texts] == [True, False, False, True, True]
    assert all("cannot" in text and "is forbidden" in text for text in texts)


async def test_a_reconcile_that_fails_again_and_again_costs_one_traceback_and_a_line_for_each_retry(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, _LOG.name)
    async with Bench() as bench:
        for _ in range(4):
            bench.fails(ZeroDivisionError("oops"))
        bench.queue.add(KEY)
        await bench.clock.advance(8)
        bench.fails(ZeroDivisionError("oops"))
        bench.queue.add(OTHER)
        await bench.clock.advance(10)
        bench.fails(ZeroDivisionError("oops"))
        bench.queue.add(KEY)
        await bench.clock.advance(10)
    records = [(record.getMessage(), record.exc_info is not None) for record in caplog.records if record.levelno == logging.ERROR]
    assert records == [
        ("bench shop/web: reconcile raised ZeroDivisionError: oops; next try in 1.000 s", True),
        ("bench shop/web: reconcile raised ZeroDivisionError: oops (failed 2 times in a row); next try in 2.000 s", False),
        ("bench shop/web: reconcile raised ZeroDivisionError: oops (failed 3 times in a row); next try in 4.000 s", False),
        ("bench shop/web: reconcile raised ZeroDivisionError: oops (failed 4 times in a row); next try in 8.000 s", False),
        ("bench shop/db: reconcile raised ZeroDivisionError: oops; next try in 1.000 s", False),
        ("bench shop/web: reconcile raised ZeroDivisionError: oops; next try in 1.000 s", True),
    ]
