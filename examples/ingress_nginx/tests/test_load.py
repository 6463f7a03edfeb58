"""The short form of the load: no request fails while endpoints, certificates and settings change. ``load.py`` has the long form."""

from __future__ import annotations

from examples.ingress_nginx.tests.load import run_load
from examples.ingress_nginx.tests.stage import ControllerStage


async def test_no_request_fails_while_the_cluster_changes(at: ControllerStage) -> None:
    report = await run_load(at, 6000)
    assert (report.requests, report.failures) == (6000, {})
