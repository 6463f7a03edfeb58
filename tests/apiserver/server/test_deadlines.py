"""Time limits of requests."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.apiserver.filters import OperationOptions
from kubeloop.apiserver.server.pipeline import parse_duration
from tests.apiserver.conftest import CONFIGMAPS, Api, running_api

TOO_LATE = (
    '{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted timeout",'
    '"reason":"Timeout","details":{},"code":504}\n'
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0.0), ("1us", 1e-6), ("1.5s", 1.5), (".5m", 30.0), ("1h2m3s", 3723.0), ("-1s", -1.0), ("+2ms", 0.002), ("10ns", 1e-8)],
)
def test_durations_are_gos(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("x", 'time: invalid duration "x"', id="no number"),
        pytest.param("-", 'time: invalid duration "-"', id="a sign"),
        pytest.param("5", 'time: missing unit in duration "5"', id="no unit"),
        pytest.param("5y", 'time: unknown unit "y" in duration "5y"', id="an unknown unit"),
    ],
)
async def test_a_timeout_that_is_no_duration_is_refused(api: Api, text: str, fault: str) -> None:
    refused = await api("GET", f"{CONFIGMAPS}?timeout={text}")
    assert (refused.status, refused.message) == (400, f"invalid timeout specified in the request URL - {fault}")


@pytest.mark.parametrize("text", ["0", "-1s", "1h"])
async def test_nothing_less_than_nothing_and_too_long_mean_as_long_as_the_server_allows(api: Api, text: str) -> None:
    assert (await api("GET", f"{CONFIGMAPS}?timeout={text}")).status == 200


async def test_a_request_with_a_timeout_of_zero_is_answered_as_timed_out(api: Api) -> None:
    late = await api("GET", f"{CONFIGMAPS}?timeout=1ns")
    assert (late.status, late.text, late.headers["Content-Type"]) == (504, TOO_LATE, "text/plain; charset=utf-8")


async def test_a_body_that_does_not_come_is_waited_for_so_long_and_no_longer() -> None:
    async with running_api(operation=OperationOptions(request_timeout=0.2)) as api:
        host, port = api.server.url.removeprefix("https://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=api.context)
        try:
            head = f"POST {CONFIGMAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\nContent-Length: 10\r\n\r\n"
            writer.write(head.encode())
            async with asyncio.timeout(60):
                assert await reader.readline() == b"HTTP/1.1 504 Gateway Timeout\r\n"
        finally:
            writer.close()
            await writer.wait_closed()


async def test_watches_have_no_deadline() -> None:
    async with running_api(operation=OperationOptions(request_timeout=1e-9)) as api, api.watch(f"{CONFIGMAPS}?watch=1&timeout=1ns"):
        assert (await api("GET", CONFIGMAPS)).status == 504
