"""Quotas: their status shows the usage; deleted and ended objects no longer count."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kubeloop.api.core.v1 import ConfigMap, Container, Pod, PodSpec, ResourceQuota, ResourceQuotaSpec, ResourceRequirements
from kubeloop.client import Client
from kubeloop.meta import Forbidden, ObjectMeta
from kubeloop.meta.quantity import Quantity

pytestmark = [pytest.mark.server, pytest.mark.timeout(180)]


def quota(**hard: str) -> ResourceQuota:
    amounts = {name.replace("__", "/").replace("_", "."): Quantity(text) for name, text in hard.items()}
    return ResourceQuota(metadata=ObjectMeta(name="q"), spec=ResourceQuotaSpec(hard=amounts))


def pod(name: str, cpu: str) -> Pod:
    resources = ResourceRequirements(requests={"cpu": Quantity(cpu)})
    spec = PodSpec(containers=[Container(name="c", image="i", resources=resources)], node_selector={"nowhere": "here"})
    return Pod(metadata=ObjectMeta(name=name), spec=spec)


def uses(**used: str) -> Callable[[ResourceQuota], bool]:
    wanted = {name.replace("__", "/").replace("_", "."): Quantity(text) for name, text in used.items()}
    return lambda quota: {name: quota.status.used.get(name) for name in wanted} == wanted


async def test_existing_objects_are_counted_when_a_quota_comes(client: Client) -> None:
    await client.create(pod("a", "300m"))
    await client.create(pod("b", "200m"))
    await client.create(quota(pods="5", requests_cpu="1", count__pods="5"))
    found = await client.wait_for(ResourceQuota, "q", uses(pods="2", requests_cpu="500m", count__pods="2"), timeout=60)
    assert found.status.hard == found.spec.hard


async def test_a_deleted_pod_makes_room_for_another(client: Client) -> None:
    await client.create(quota(pods="1"))
    await client.wait_for(ResourceQuota, "q", uses(pods="0"), timeout=60)
    await client.create(pod("a", "1m"))
    await client.wait_for(ResourceQuota, "q", uses(pods="1"), timeout=60)
    with pytest.raises(Forbidden, match="exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"):
        await client.create(pod("b", "1m"))
    await client.delete(Pod, "a")
    await client.wait_for(ResourceQuota, "q", uses(pods="0"), timeout=60)
    await client.create(pod("b", "1m"))


async def test_a_pod_that_gets_a_deadline_counts_in_the_other_scope(client: Client) -> None:
    for scope in ("Terminating", "NotTerminating"):
        made = quota(pods="2")
        made.metadata.name, made.spec.scopes = scope.lower(), [scope]
        await client.create(made)
        await client.wait_for(ResourceQuota, scope.lower(), uses(pods="0"), timeout=60)
    await client.create(pod("a", "1m"))
    await client.wait_for(ResourceQuota, "notterminating", uses(pods="1"), timeout=60)
    await client.patch(Pod, "a", {"spec": {"activeDeadlineSeconds": 100}})
    await client.wait_for(ResourceQuota, "notterminating", uses(pods="0"), timeout=60)
    await client.wait_for(ResourceQuota, "terminating", uses(pods="1"), timeout=60)


async def test_objects_of_any_kind_are_counted_and_a_changed_limit_is_taken_over(client: Client) -> None:
    await client.wait_for(ConfigMap, "kube-root-ca.crt", bool, timeout=60)
    await client.create(quota(configmaps="10", count__configmaps="10", count__leases_coordination_k8s_io="3"))
    # The certificate authority's is there already. Upstream's controller ignores creations: admission counts them when it knows the quota.
    await client.wait_for(ResourceQuota, "q", uses(configmaps="1", count__configmaps="1"), timeout=60)
    await client.create(ConfigMap(metadata=ObjectMeta(name="a")))
    await client.wait_for(
        ResourceQuota, "q", uses(configmaps="2", count__configmaps="2", count__leases_coordination_k8s_io="0"), timeout=60
    )
    await client.delete(ConfigMap, "a")
    await client.wait_for(ResourceQuota, "q", uses(configmaps="1", count__configmaps="1"), timeout=60)
    await client.patch(ResourceQuota, "q", {"spec": {"hard": {"configmaps": "1"}}})
    await client.wait_for(ResourceQuota, "q", lambda quota: quota.status.hard.get("configmaps") == Quantity("1"), timeout=60)
    with pytest.raises(Forbidden, match="exceeded quota"):
        await client.create(ConfigMap(metadata=ObjectMeta(name="b")))
