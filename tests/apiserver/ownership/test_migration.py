"""From kubectl's client-side apply to server-side apply: fields in its annotation belong to kubectl. On both servers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apiserver.ownership.conftest import Managers, config_map

pytestmark = pytest.mark.server

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"


def applied_earlier(data: dict[str, str]) -> dict[str, Any]:
    """As ``kubectl apply`` leaves it."""
    said = json.dumps(config_map("a", data), separators=(",", ":")) + "\n"
    return config_map("a", data, annotations={ANNOTATION: said})


async def test_kubectl_takes_over_what_it_applied_itself(managers: Managers) -> None:
    await managers("POST", "configmaps?fieldManager=kubectl-client-side-apply", applied_earlier({"k": "v", "l": "v"}))
    applied = await managers.apply("kubectl", "configmaps/a", config_map("a", {"k": "w"}))
    assert (applied.status, applied.body["data"]) == (200, {"k": "w", "l": "v"})
    assert applied.owners["Apply kubectl"] == [".data.k"]


async def test_its_annotation_follows_each_apply(managers: Managers) -> None:
    await managers("POST", "configmaps?fieldManager=kubectl-client-side-apply", applied_earlier({"k": "v"}))
    applied = await managers.apply("kubectl", "configmaps/a", config_map("a", {"k": "<w>"}, annotations={"x": "y"}))
    assert applied.body["metadata"]["annotations"] == {
        "x": "y",
        ANNOTATION: (
            '{"apiVersion":"v1","data":{"k":"\\u003cw\\u003e"},"kind":"ConfigMap","metadata":{"annotations":{"x":"y"},"name":"a"}}\n'
        ),
    }


async def test_another_manager_meets_the_conflict(managers: Managers) -> None:
    await managers("POST", "configmaps?fieldManager=kubectl-client-side-apply", applied_earlier({"k": "v"}))
    refused = await managers.apply("me", "configmaps/a", config_map("a", {"k": "w"}))
    assert refused.causes == [(".data.k", 'conflict with "kubectl-client-side-apply" using v1')]


async def test_what_others_changed_since_is_a_conflict_for_kubectl_too(managers: Managers) -> None:
    await managers("POST", "configmaps?fieldManager=kubectl-client-side-apply", applied_earlier({"k": "v", "l": "v"}))
    await managers.merge("other", "configmaps/a", {"data": {"k": "x"}})
    refused = await managers.apply("kubectl", "configmaps/a", config_map("a", {"k": "w", "l": "w"}))
    assert refused.causes == [(".data.k", 'conflict with "other" using v1')]


async def test_an_annotation_that_cannot_be_read_counts_for_nothing(managers: Managers) -> None:
    broken = config_map("a", {"k": "v"}, annotations={ANNOTATION: "{"})
    await managers("POST", "configmaps?fieldManager=kubectl-client-side-apply", broken)
    assert (await managers.apply("kubectl", "configmaps/a", config_map("a", {"k": "w"}))).status == 409
