"""What a namespace gets from controllers, and how it goes (recorded in the scenario c-namespace)."""

import pytest

from kubeloop.api.core.v1 import ConfigMap, Container, Namespace, Pod, PodSpec, Secret, ServiceAccount
from kubeloop.client import Client
from kubeloop.meta import ObjectMeta
from tests.controlplane.workloads import deployment, is_rolled_out
from tests.servers import ServerUnderTest

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]


async def test_it_gets_a_default_service_account_and_the_certificate_authority(client: Client, bare_server: ServerUnderTest) -> None:
    await client.wait_for(ServiceAccount, "default", bool, timeout=60)
    found = await client.wait_for(ConfigMap, "kube-root-ca.crt", bool, timeout=60)
    assert found.data == {"ca.crt": bare_server.authority}
    assert "verify the kube-apiserver" in found.metadata.annotations["kubernetes.io/description"]


async def test_its_default_objects_come_back_when_they_are_deleted_or_changed(client: Client, bare_server: ServerUnderTest) -> None:
    account = await client.wait_for(ServiceAccount, "default", bool, timeout=60)
    await client.wait_for(ConfigMap, "kube-root-ca.crt", bool, timeout=60)
    await client.delete(ServiceAccount, "default")
    await client.wait_for(ServiceAccount, "default", lambda current: current.metadata.uid != account.metadata.uid, timeout=60)
    await client.patch(ConfigMap, "kube-root-ca.crt", {"data": {"ca.crt": "forged"}})
    await client.wait_for(
        ConfigMap, "kube-root-ca.crt", lambda config_map: config_map.data == {"ca.crt": bare_server.authority}, timeout=60
    )


async def test_a_deleted_namespace_is_emptied_and_goes(client: Client) -> None:
    name = f"{client.namespace}-other"
    await client.create(Namespace(metadata=ObjectMeta(name=name)))
    await client.create(Secret(metadata=ObjectMeta(name="s", namespace=name)))
    await client.create(deployment("d", 2), namespace=name)
    from kubeloop.api.apps.v1 import Deployment

    await client.wait_for(Deployment, "d", is_rolled_out, timeout=60, namespace=name)
    await client.delete(Namespace, name)
    await client.wait_gone(Namespace, name, timeout=60)
    assert await client.list(Secret, namespace=name) == []


async def test_one_whose_content_has_a_finalizer_stays_and_says_why_until_it_is_taken_off(client: Client) -> None:
    name = f"{client.namespace}-held"
    await client.create(Namespace(metadata=ObjectMeta(name=name)))
    await client.wait_for(ConfigMap, "kube-root-ca.crt", bool, timeout=60, namespace=name)
    await client.create(ConfigMap(metadata=ObjectMeta(name="held", namespace=name, finalizers=["example.com/hold"])))
    await client.delete(Namespace, name)
    held = await client.wait_for(Namespace, name, lambda namespace: len(namespace.status.conditions) == 5, timeout=60)
    assert [(one.type, one.status, one.reason, one.message) for one in held.status.conditions] == [
        ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", "All resources successfully discovered"),
        ("NamespaceDeletionGroupVersionParsingFailure", "False", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ("NamespaceDeletionContentFailure", "False", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        ("NamespaceContentRemaining", "True", "SomeResourcesRemain", "Some resources are remaining: configmaps. has 1 resource instances"),
        (
            "NamespaceFinalizersRemaining",
            "True",
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances",
        ),
    ]
    await client.patch(ConfigMap, "held", {"metadata": {"finalizers": None}}, namespace=name)
    await client.wait_gone(Namespace, name, timeout=60)


async def test_other_objects_stay_until_the_last_pod_is_gone(client: Client) -> None:
    name = f"{client.namespace}-ordered"
    await client.create(Namespace(metadata=ObjectMeta(name=name)))
    await client.wait_for(ServiceAccount, "default", bool, timeout=60, namespace=name)
    await client.create(ConfigMap(metadata=ObjectMeta(name="settings", namespace=name)))
    spec = PodSpec(containers=[Container(name="main", image="main")], node_selector={"no": "node"})
    await client.create(Pod(metadata=ObjectMeta(name="held", namespace=name, finalizers=["example.com/hold"]), spec=spec))
    await client.delete(Namespace, name)
    held = await client.wait_for(Namespace, name, lambda namespace: len(namespace.status.conditions) == 5, timeout=60)
    # The real controller returns before it counts the remaining objects.
    assert held.status.conditions[3].message == "All content successfully removed"
    assert (await client.get(Pod, "held", namespace=name)).metadata.deletion_timestamp is not None
    assert (await client.get(ConfigMap, "settings", namespace=name)).metadata.deletion_timestamp is None
    await client.patch(Pod, "held", {"metadata": {"finalizers": None}}, namespace=name)
    await client.wait_gone(Namespace, name, timeout=60)


async def test_the_description_of_the_certificate_authority_comes_back(client: Client) -> None:
    await client.wait_for(ConfigMap, "kube-root-ca.crt", bool, timeout=60)
    await client.patch(ConfigMap, "kube-root-ca.crt", {"metadata": {"annotations": {"kubernetes.io/description": None, "own": "x"}}})
    found = await client.wait_for(
        ConfigMap, "kube-root-ca.crt", lambda published: "kubernetes.io/description" in published.metadata.annotations, timeout=60
    )
    assert found.metadata.annotations["own"] == "x"


async def test_one_with_a_finalizer_in_its_metadata_says_that_its_content_is_gone(client: Client) -> None:
    name = f"{client.namespace}-held"
    await client.create(Namespace(metadata=ObjectMeta(name=name, finalizers=["example.com/hold"])))
    await client.delete(Namespace, name)
    found = await client.wait_for(Namespace, name, lambda ending: ending.spec.finalizers == [], timeout=60)
    assert {condition.type: condition.status for condition in found.status.conditions} == {
        "NamespaceDeletionDiscoveryFailure": "False",
        "NamespaceDeletionGroupVersionParsingFailure": "False",
        "NamespaceDeletionContentFailure": "False",
        "NamespaceContentRemaining": "False",
        "NamespaceFinalizersRemaining": "False",
    }
    await client.patch(Namespace, name, {"metadata": {"finalizers": None}})
    await client.wait_gone(Namespace, name, timeout=60)
