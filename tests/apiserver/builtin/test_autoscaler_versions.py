"""Autoscalers in their two versions: what a Kubernetes 1.36 API server made of each.

``autoscalers.json`` holds, by sentence, an object in v2, the same in v1, and the spec in v2 of the object created from the latter.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from kubeloop.apiserver.builtin.conversion import convert_autoscaler
from kubeloop.transport import Transport
from kubeloop.types import JSONObject
from tests.servers import ServerUnderTest

_CASES: dict[str, JSONObject] = json.loads((Path(__file__).parent / "autoscalers.json").read_text())
_ANNOTATION = "autoscaling.alpha.kubernetes.io"


def _v2(case: JSONObject) -> JSONObject:
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"}, **copy.deepcopy(case["v2"])}


def _v1(case: JSONObject) -> JSONObject:
    metadata: JSONObject = {"name": "a"}
    if case["v1"]["annotations"]:
        metadata["annotations"] = case["v1"]["annotations"]
    return {"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": case["v1"]["spec"]}


@pytest.mark.parametrize("name", _CASES)
def test_the_older_version_says(name: str) -> None:
    case = _CASES[name]
    older = convert_autoscaler(_v2(case), "v1")
    assert older["metadata"].get("annotations", {}) == case["v1"]["annotations"]
    assert (older["spec"], older["status"]) == (case["v1"]["spec"], case["v1"]["status"])


@pytest.mark.parametrize("name", _CASES)
def test_the_newer_version_says_again(name: str) -> None:
    case = _CASES[name]
    newer = convert_autoscaler({**_v1(case), "status": case["v1"]["status"]}, "v2")
    assert (newer["spec"], newer["status"]) == (case["back"], case["v2"]["status"])
    assert newer["metadata"] == {"name": "a"}


@pytest.mark.server
@pytest.mark.parametrize("name", _CASES)
async def test_both_versions_on_the_wire(name: str, server: ServerUnderTest, namespace: str) -> None:
    case = _CASES[name]
    older, newer = (f"/apis/autoscaling/{version}/namespaces/{namespace}/horizontalpodautoscalers" for version in ("v1", "v2"))
    async with Transport(server.config) as transport:

        async def get(path: str) -> JSONObject:
            found: JSONObject = json.loads((await transport.request("GET", path)).body)
            return found

        made = {"metadata": {"name": "a"}, "spec": case["v2"]["spec"]}
        await transport.request("POST", newer, body=json.dumps(made).encode())
        shown = await get(f"{older}/a")
        assert shown["spec"] == case["v1"]["spec"]
        specs = {key: value for key, value in case["v1"]["annotations"].items() if key.endswith(("metrics", "behavior"))}
        specs.pop(f"{_ANNOTATION}/current-metrics", None)
        assert shown["metadata"].get("annotations", {}) == specs
        back = {"metadata": {"name": "b", "annotations": specs}, "spec": case["v1"]["spec"]}
        await transport.request("POST", older, body=json.dumps(back).encode())
        assert (await get(f"{newer}/b"))["spec"] == case["back"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("x", id="no JSON"),
        pytest.param("[5]", id="no metrics"),
        pytest.param('[{"type":"Resource","resource":"x"}]', id="no resource"),
        pytest.param('[{"type":"Pods","pods":{"targetAverageValue":"abc","currentAverageValue":"abc"}}]', id="no quantity"),
        pytest.param("[" * 3000, id="endless lists"),
    ],
)
def test_an_annotation_counts_as_none_that_holds(text: str) -> None:
    annotations = {f"{_ANNOTATION}/{name}": text for name in ("metrics", "behavior", "current-metrics")}
    older = {"apiVersion": "autoscaling/v1", "metadata": {"annotations": annotations}, "spec": {}}
    newer = convert_autoscaler(older, "v2")
    assert (newer["spec"]["metrics"][0]["resource"]["name"], newer["status"]["currentMetrics"]) == ("cpu", None)
