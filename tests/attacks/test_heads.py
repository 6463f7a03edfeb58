"""Heads that are larger than any client's."""

from __future__ import annotations

import pytest

from tests.attacks.conftest import Thief

pytestmark = pytest.mark.server

MAPS = "/api/v1/namespaces/{home}/configmaps"


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        pytest.param(MAPS, {"X-Long": "x" * (2 << 20)}, id="a field of two megabytes"),
        pytest.param(MAPS, {f"X-{number}": "x" * 1000 for number in range(2000)}, id="two megabytes of fields"),
        pytest.param(f"{MAPS}?x={'x' * (2 << 20)}", {}, id="a request line of two megabytes"),
    ],
)
async def test_a_head_beyond_a_megabyte_is_refused(thief: Thief, path: str, headers: dict[str, str]) -> None:
    try:
        answered = await thief.ask("GET", path, headers)
    except AssertionError:
        return  # the answer was lost as the connection closed before all had been sent
    assert answered.status == 431


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({f"X-{number}": "" for number in range(20_000)}, id="very many fields"),
        pytest.param({"X-Long": "x" * 500_000}, id="a long field"),
        pytest.param(
            {"Accept": "application/json," + ",".join(f"a/b;q=0.{number:05}" for number in range(60_000))}, id="choices without end"
        ),
        pytest.param({"Accept-Encoding": "gzip;q=0," * 50_000}, id="encodings without end"),
        pytest.param({"Cookie": "; ".join(f"a{number}=b" for number in range(50_000))}, id="cookies"),
        pytest.param({"Range": "bytes=" + ",".join(f"{number}-" for number in range(50_000))}, id="ranges without end"),
    ],
)
async def test_a_head_below_a_megabyte_is_read(thief: Thief, headers: dict[str, str]) -> None:
    answered = await thief.ask("GET", f"{MAPS}/kube-root-ca.crt-not", {name: value or "x" for name, value in headers.items()})
    assert answered.status == 404, answered.body[:300]


async def test_a_selector_of_many_terms_is_read_or_refused(thief: Thief) -> None:
    many = "%2C".join(f"a{number}%3Db" for number in range(20_000))
    assert (await thief.ask("GET", f"{MAPS}?labelSelector={many}")).status == 200
