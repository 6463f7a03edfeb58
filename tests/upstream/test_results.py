"""Results of Kubernetes' conformance suite: ginkgo's report, regressions, and the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.upstream import results
from tests.upstream.results import SpecResult, read_report, regressions, section, store, summary


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


def test_the_summary_counts_by_group() -> None:
    found = {"[sig-apps] x": SpecResult("passed"), "[sig-apps] y": SpecResult("failed"), "[sig-api-machinery] z": SpecResult("passed")}
    assert summary(found) == {"api-machinery": (1, 1), "apps": (1, 2)}


def test_the_page_lists_each_spec_without_its_tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "STORED", tmp_path)
    assert section() == []
    store("simulated", {"[sig-apps] Job works [Conformance] [NodeConformance]": SpecResult("passed", 3.0)})
    store("simulated", {"[sig-apps] Job fails [Conformance]": SpecResult("failed", 3.0, "no endpoint 127.0.0.1:4711 | after 12.5s")})
    lines = section()
    assert "| apps | 1 of 2 |" in lines
    assert "| **all** | 1 of 2 |" in lines
    assert lines[-2:] == ["| Job fails | failed: no endpoint ... \\| after ... |", "| Job works | passed |"]
