"""Nodes get at what their pods need, and at nothing else, on both servers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.authorization.conftest import As

pytestmark = pytest.mark.server


async def test_a_node_reads_the_secrets_of_its_pods_until_they_are_gone(as_: As) -> None:
    name, place = f"n-{as_.namespace}", f"/api/v1/namespaces/{as_.namespace}"
    mine: dict[str, Any] = {"user": f"system:node:{name}", "group": "system:nodes"}
    other: dict[str, Any] = {"user": "system:node:other", "group": "system:nodes"}
    await as_("POST", f"{place}/secrets", {"metadata": {"name": "s"}})
    unrelated = f"no relationship found between node '{name}' and this object"
    status, refused = await as_("GET", f"{place}/secrets/s", **mine)
    assert (status, refused["message"].endswith(f'in the namespace "{as_.namespace}": {unrelated}')) == (403, True)
    pod = {
        "metadata": {"name": "p"},
        "spec": {
            "nodeName": name,
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "secret": {"secretName": "s"}}],
        },
    }
    status, made = await as_("POST", f"{place}/pods", pod)
    assert status == 201, made
    await as_.until(**mine, verb="get", resource="secrets", name="s", namespace=as_.namespace)
    assert (await as_("GET", f"{place}/secrets/s", **mine))[0] == 200
    assert (await as_("GET", f"{place}/secrets/s", **other))[0] == 403
    assert (await as_("GET", f"{place}/secrets", **mine))[0] == 403
    assert (await as_("DELETE", f"{place}/secrets/s", **mine))[0] == 403
    assert (await as_("GET", f"{place}/pods/p", **mine))[0] == 200
    assert (await as_("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{name}", **mine))[0] == 200
    assert (await as_("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dother", **mine))[0] == 403
    await as_("DELETE", f"{place}/pods/p?gracePeriodSeconds=0")
    await as_.until(**mine, allowed=False, verb="get", resource="secrets", name="s", namespace=as_.namespace)
    assert (await as_("GET", f"{place}/secrets/s", **mine))[0] == 403


async def test_a_node_may_use_only_the_lease_of_its_name(as_: As) -> None:
    node = {"user": "system:node:n1", "group": "system:nodes"}
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    assert (await as_("GET", f"{leases}/n1", **node))[0] == 404
    _, refused = await as_("GET", f"{leases}/n2", **node)
    assert refused["message"].endswith("can only access node lease with the same name as the requesting node")


@pytest.mark.parametrize(
    ("path", "verb", "reason"),
    [
        pytest.param("pods", "watch", "can only list/watch pods with spec.nodeName field selector", id="the old form of a watch of many"),
        pytest.param("pods/p", "watch", "no relationship found between node 'n1' and this object", id="the old form of a watch of one"),
        pytest.param("pods/p", "proxy", "", id="a proxy of old"),
    ],
)
async def test_selectors_open_no_path_that_says_the_verb(as_: As, path: str, verb: str, reason: str) -> None:
    query = "timeoutSeconds=1&fieldSelector=spec.nodeName%3Dn1"
    node = {"user": "system:node:n1", "group": "system:nodes"}
    status, refused = await as_("GET", f"/api/v1/{verb}/namespaces/{as_.namespace}/{path}?{query}", **node)
    what = f'cannot {verb} resource "pods" in API group "" in the namespace "{as_.namespace}"{f": {reason}" if reason else ""}'
    assert (status, refused["message"].endswith(what)) == (403, True), refused
