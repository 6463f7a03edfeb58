"""Scenarios that the embedded server answers exactly as the real one did stay so. managedFields come with server-side apply."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeloop.testing import LocalCluster
from tests.conformance.__main__ import COMPACT, HERE, PROSE
from tests.conformance.compare import compare
from tests.conformance.scenario import Run, scenarios, write_tokens
from tests.conformance.wire import Server

pytestmark = pytest.mark.embedded

#: The order is that of a whole run: a few recordings show what scenarios before them left behind.
EXACT = (
    "crud-configmap",
    "crud-secret",
    "crud-pod",
    "crud-service",
    "crud-deployment",
    "crud-node",
    "crud-misc",
    "defaults-pod",
    "defaults-workloads",
    "defaults-others",
    "validation-pod",
    "validation-metadata",
    "conflict-update",
    "conflict-generatename",
    "patch-json",
    "patch-merge",
    "patch-strategic",
    "delete-finalizers",
    "delete-propagation",
    "delete-pod-graceful",
    "delete-collection",
    "list-labels",
    "list-fields",
    "list-paging",
    "list-resourceversion",
    "watch-from-rv",
    "watch-selectors",
    "watch-list",
    "watch-formats",
    "accept-types",
    "accept-gzip",
    "crd-subresources",
    "crd-deletion",
    "compaction",
)
SCENARIOS = dict(scenarios(HERE / "scenarios" / "plain"))


@pytest.fixture(scope="module")
def fresh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    tokens: Path = tmp_path_factory.mktemp("conformance") / "tokens.csv"
    write_tokens(tokens)
    with LocalCluster(controllers=False, token_auth_file=tokens) as cluster:
        server = Server(cluster.url, str(cluster.ca_file), tokens, COMPACT)
        yield server
        server.close()


@pytest.mark.parametrize("name", EXACT)
def test_every_answer_is_the_real_servers(fresh_server: Server, name: str) -> None:
    run = Run(fresh_server, SCENARIOS[name], name)
    actual = run.run()
    expected = json.loads((HERE / "recorded" / "plain" / f"{name}.json").read_text())
    score = compare(expected, actual, (*PROSE, "managedFields"))
    shown = [f"{step}: {difference}" for step, differences in score.differences.items() for difference in differences[:3]]
    assert not shown, "\n".join(shown[:12])
    assert run.surprises == []
