"""Results of Kubernetes' conformance suite: ginkgo's report, regressions, and the table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeloop.controlplane.simulation.rules import SimulationRules
from tests.conformance.counted import DOCUMENT
from tests.upstream import containers, results
from tests.upstream.clusters import SIMULATION
from tests.upstream.results import LEFT_OUT, SpecResult, left_out, load, read_report, regressions, section, store, summary


def spec(name: str, state: str, kind: str = "It", failure: str = "") -> dict[str, object]:
    return {
        "ContainerHierarchyTexts": [name],
        "LeafNodeText": "works [Conformance]",
        "LeafNodeType": kind,
        "State": state,
        "RunTime": 1_500_000_000,
        "Failure": {"Message": failure} if failure else None,
    }


def test_a_report_has_the_specs_that_ran(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    specs = [
        spec("[sig-apps] Job", "passed"),
        spec("[sig-apps] Deployment", "failed", failure="timed out\nmore"),
        spec("[sig-node] Pods", "skipped"),
        spec("[sig-node] Setup", "passed", kind="BeforeSuite"),
    ]
    report.write_text(json.dumps([{"SpecReports": specs}]))
    assert read_report(report) == {
        "[sig-apps] Job works [Conformance]": SpecResult("passed", 1.5),
        "[sig-apps] Deployment works [Conformance]": SpecResult("failed", 1.5, "timed out"),
    }


def test_a_regression_is_a_spec_that_passed_before() -> None:
    before = {"a": SpecResult("passed"), "b": SpecResult("failed"), "c": SpecResult("passed")}
    after = {"a": SpecResult("failed"), "b": SpecResult("failed"), "new": SpecResult("failed")}
    assert regressions(before, after) == ["a"]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    file = tmp_path / "containers.yaml"
    file.write_text("a shell:\n- 'Job (runs|ends)'\n")
    monkeypatch.setattr(containers, "TABLE", file)
    containers.needs.cache_clear()
    yield
    containers.needs.cache_clear()


@pytest.mark.usefixtures("table")
def test_specs_that_need_containers_and_slow_ones_are_left_out_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "report.json"
    names = ["[sig-apps] Job runs", "[sig-apps] Job ends", "[sig-apps] Job waits [Slow]", "[sig-apps] Job of another focus"]
    report.write_text(json.dumps([{"SpecReports": [spec(name, "skipped") for name in names]}]))
    found = left_out(report)
    assert list(found) == [f"{name} works [Conformance]" for name in names[:3]]
    assert set(found.values()) == {SpecResult(LEFT_OUT)}
    monkeypatch.setattr(results, "STORED", tmp_path)
    store("simulated", {"[sig-apps] Job runs works [Conformance]": SpecResult("passed")})
    store("simulated", found)
    assert section()[-3:] == [
        "| apps: Job ends works | needs a shell |",
        "| apps: Job runs works | passed |",
        "| apps: Job waits works | left out: slow |",
    ]
    assert "| apps | 1 of 1 |" in section()
    assert "| a shell | 1 |" in section()


def test_the_summary_counts_by_group() -> None:
    found = {"[sig-apps] x": SpecResult("passed"), "[sig-apps] y": SpecResult("failed"), "[sig-api-machinery] z": SpecResult("passed")}
    assert summary(found) == {"api-machinery": (1, 1), "apps": (1, 2)}


def test_a_failure_counts_where_nodes_run_containers() -> None:
    name = "[sig-node] Kubelet when scheduling a read only busybox container should not write to root filesystem [Conformance]"
    failed = {name: SpecResult("failed")}
    assert summary(failed) == {}
    assert summary(failed, "real-kubelet") == {"node": (0, 1)}


def test_the_page_lists_each_spec_without_its_tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "STORED", tmp_path)
    assert section() == []
    store("simulated", {"[sig-apps] Job works [Conformance] [NodeConformance]": SpecResult("passed", 3.0)})
    store("simulated", {"[sig-apps] Job fails [Conformance]": SpecResult("failed", 3.0, "no endpoint 127.0.0.1:4711 | after 12.5s")})
    lines = section()
    assert "| apps | 1 of 2 |" in lines
    assert "| **all** | 1 of 2 |" in lines
    assert lines[-2:] == ["| apps: Job fails | failed: no endpoint ... \\| after ... |", "| apps: Job works | passed |"]


def test_docs_conformance_md_shows_the_stored_results() -> None:
    assert "\n".join(section()) in DOCUMENT.read_text()


def test_whatever_the_real_control_plane_passes_with_simulated_nodes_ours_passes() -> None:
    real, ours = load("real-control-plane"), load("simulated")
    assert [name for name, result in real.items() if result.state == "passed" and ours[name].state != "passed"] == []


@pytest.mark.parametrize(
    ("cluster", "pattern"),
    [
        pytest.param(cluster, pattern, id=f"{cluster}, some spec matches {pattern}")
        for cluster in ("simulated", "process-pods")
        for pattern in containers.patterns(cluster)
    ],
)
def test_the_tables_of_specs_that_need_more_are_of_specs_that_exist(cluster: str, pattern: str) -> None:
    assert any(re.search(pattern, name) for name in load("real-kubelet"))


def test_each_spec_that_process_pods_do_not_pass_has_a_reason() -> None:
    results = load("process-pods")
    assert [name for name, result in results.items() if result.state != "passed" and containers.need_of(name, "process-pods") is None] == []
    assert results.keys() == load("real-kubelet").keys()


def test_the_simulation_file_of_the_clusters_makes_sense() -> None:
    assert len(SimulationRules.read(SIMULATION).nodes or ()) == 3
