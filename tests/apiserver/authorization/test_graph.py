"""Which nodes need which objects, as pods and volumes come and go."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.apiserver.authorization.node import NamedResource, NodeGraph, pod_dependencies, volume_dependencies


def pod(node: str = "n1", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": "p"}, "spec": {"nodeName": node, **spec}}


def secret(name: str) -> NamedResource:
    return NamedResource("secrets", "shop", name)


def test_an_object_is_needed_as_long_as_one_pod_of_the_node_needs_it() -> None:
    graph = NodeGraph()
    needs: dict[str, Any] = {"imagePullSecrets": [{"name": "s"}]}
    graph.put_pod("shop", "a", pod(**needs))
    graph.put_pod("shop", "b", pod(**needs))
    graph.put_pod("shop", "c", pod("n2", **needs))
    graph.put_pod("shop", "a", None)
    assert (graph.relates("n1", secret("s")), graph.relates("n2", secret("s")), graph.relates("n3", secret("s"))) == (True, True, False)
    graph.put_pod("shop", "b", pod())
    assert (graph.relates("n1", secret("s")), graph.relates("n2", secret("s"))) == (False, True)


def test_a_pod_without_a_node_concerns_none_and_may_be_bound_later() -> None:
    graph = NodeGraph()
    graph.put_pod("shop", "p", pod("", imagePullSecrets=[{"name": "s"}]))
    assert not graph.relates("", secret("s"))
    graph.put_pod("shop", "p", pod("n1", imagePullSecrets=[{"name": "s"}]))
    assert graph.relates("n1", secret("s"))
    assert graph.relates("n1", NamedResource("pods", "shop", "p"))


def test_a_volume_and_its_secrets_follow_the_claim_of_a_pod() -> None:
    graph = NodeGraph()
    volume = {"spec": {"claimRef": {"namespace": "shop", "name": "c"}, "iscsi": {"secretRef": {"name": "s"}}}}
    graph.put_volume("", "v", volume)
    assert not graph.relates("n1", NamedResource("persistentvolumes", "", "v"))
    graph.put_pod("shop", "p", pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]))
    for needed in (NamedResource("persistentvolumes", "", "v"), secret("s"), NamedResource("persistentvolumeclaims", "shop", "c")):
        assert (graph.relates("n1", needed), graph.relates("n2", needed)) == (True, False)
    graph.put_volume("", "v", {"spec": {}})
    assert not graph.relates("n1", secret("s"))


def test_a_secret_of_two_volumes_stays_needed_when_one_of_them_goes() -> None:
    graph = NodeGraph()
    for name in ("a", "b"):
        claim = {"namespace": "shop", "name": name}
        graph.put_volume("", name, {"spec": {"claimRef": claim, "iscsi": {"secretRef": {"name": "s"}}}})
    graph.put_pod("shop", "p", pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "b"}}]))
    graph.put_volume("", "a", None)
    assert graph.relates("n1", secret("s"))
    graph.put_volume("", "b", None)
    assert not graph.relates("n1", secret("s"))


def test_attachments_and_slices_are_their_nodes() -> None:
    graph, attachment = NodeGraph(), NamedResource("volumeattachments", "", "a")
    graph.put_attachment("", "a", {"spec": {"nodeName": "n1"}})
    assert (graph.relates("n1", attachment), graph.relates("n2", attachment)) == (True, False)
    graph.put_attachment("", "a", None)
    assert not graph.relates("n1", attachment)


@pytest.mark.parametrize(
    ("spec", "needed"),
    [
        pytest.param({"serviceAccountName": "a"}, {"serviceaccounts/a"}, id="its service account"),
        pytest.param(
            {"initContainers": [{"envFrom": [{"secretRef": {"name": "s"}}, {"configMapRef": {"name": "m"}}]}]},
            {"secrets/s", "configmaps/m"},
            id="what an environment is made from",
        ),
        pytest.param(
            {"ephemeralContainers": [{"env": [{"valueFrom": {one: {"name": "a"}}} for one in ("secretKeyRef", "configMapKeyRef")]}]},
            {"secrets/a", "configmaps/a"},
            id="a single variable",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}, {"configMap": {"name": "m"}}]}}]},
            {"secrets/s", "configmaps/m"},
            id="what a volume projects",
        ),
        pytest.param({"volumes": [{"name": "v", "csi": {"nodePublishSecretRef": {"name": "s"}}}]}, {"secrets/s"}, id="of a driver"),
        pytest.param({"volumes": [{"name": "v", "ephemeral": {}}]}, {"persistentvolumeclaims/p-v"}, id="the claim of an ephemeral volume"),
        pytest.param({"resourceClaims": [{"name": "r", "resourceClaimName": "c"}]}, {"resourceclaims/c"}, id="a claim for devices"),
    ],
)
def test_a_pod_needs(spec: dict[str, Any], needed: set[str]) -> None:
    assert {f"{one.resource}/{one.name}" for one in pod_dependencies(pod(**spec))} == needed


def test_a_mirror_pod_gives_its_node_nothing() -> None:
    mirror = pod(imagePullSecrets=[{"name": "s"}])
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert pod_dependencies(mirror) == set()


def test_a_claim_made_from_a_template_is_named_in_the_status() -> None:
    made = pod(resourceClaims=[{"name": "r", "resourceClaimTemplateName": "t"}])
    assert pod_dependencies(made) == set()
    made["status"] = {"resourceClaimStatuses": [{"name": "r", "resourceClaimName": "p-r-1"}]}
    assert pod_dependencies(made) == {NamedResource("resourceclaims", "shop", "p-r-1")}


def test_a_claim_for_extended_resources_is_named_in_the_status() -> None:
    made = pod()
    made["status"] = {"extendedResourceClaimStatus": {"resourceClaimName": "p-x"}}
    assert pod_dependencies(made) == {NamedResource("resourceclaims", "shop", "p-x")}


@pytest.mark.parametrize("kind", ["nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"])
def test_a_volume_of_a_driver_needs_a_secret_on_the_node(kind: str) -> None:
    volume = {"spec": {"claimRef": {"namespace": "shop", "name": "c"}, "csi": {kind: {"namespace": "x", "name": "n"}}}}
    assert volume_dependencies(volume)[1] == {NamedResource("secrets", "x", "n")}


def test_secrets_that_only_controllers_need_are_not_the_nodes() -> None:
    csi = {"controllerPublishSecretRef": {"namespace": "x", "name": "c"}, "nodeStageSecretRef": {"namespace": "x", "name": "n"}}
    claim, secrets = volume_dependencies({"spec": {"claimRef": {"namespace": "shop", "name": "c"}, "csi": csi}})
    assert (claim, secrets) == (NamedResource("persistentvolumeclaims", "shop", "c"), {NamedResource("secrets", "x", "n")})
