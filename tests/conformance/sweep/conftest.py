"""A server for the replay of the sweep: fresh for each file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kubeloop.testing import LocalCluster
from tests.conformance.scenario import write_tokens
from tests.conformance.wire import Server


@pytest.fixture(scope="module")
def swept_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    tokens = tmp_path_factory.mktemp("sweep") / "tokens.csv"
    write_tokens(tokens)
    with LocalCluster(controllers=False, token_auth_file=tokens, disable_admission_plugins=()) as cluster:
        server = Server(cluster.url, str(cluster.ca_file), tokens)
        yield server
        server.close()
