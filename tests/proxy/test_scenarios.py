"""The short form of ``make test-proxy`` and ``make test-proxy-real``: some scenarios through a proxy get a real server's answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.replay import replay
from tests.conformance.servers import fresh_server
from tests.conformance.wire import Server

pytestmark = pytest.mark.server

#: Writes of all kinds, Tables, media types, discovery, users and watches.
NAMES = (
    "crud-pod",
    "dryrun-fieldvalidation",
    "patch-strategic",
    "apply-basic",
    "delete-collection",
    "table-core",
    "accept-types",
    "accept-gzip",
    "discovery-aggregated",
    "rbac-impersonation",
    "watch-selectors",
)


@pytest.fixture(scope="module", params=[pytest.param("1", id="without rules"), pytest.param("rules", id="with idle rules")])
def server_behind_proxy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KUBELOOP_TEST_PROXY", request.param)
        with fresh_server(tmp_path_factory.mktemp("scenarios"), proxy=True) as server:
            yield server


@pytest.mark.parametrize("name", NAMES)
def test_every_answer_through_a_proxy_is_the_real_servers(server_behind_proxy: Server, name: str) -> None:
    found = replay(server_behind_proxy, name)
    assert not found.shown, "\n".join(found.shown[:12])
    assert found.surprises == []
