"""DaemonSets over an API server with all controllers, ours or the real kube-controller-manager: placement, updates, Events."""

from __future__ import annotations

import pytest

from kubeloop.api.apps.v1 import ControllerRevision, DaemonSet
from kubeloop.api.core.v1 import Pod
from kubeloop.client import Client
from kubeloop.controlplane.workloads.history import REVISION_LABEL
from tests.controlplane.test_daemonset import daemon_set, is_rolled_out, rolling, set_image
from tests.controlplane.workloads import is_ready

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

_LONG = 90.0


async def rolled_out(client: Client) -> DaemonSet:
    return await client.wait_for(DaemonSet, "agent", is_rolled_out, timeout=_LONG)


async def live_pods(client: Client) -> list[Pod]:
    return [one for one in await client.list(Pod, namespace=client.namespace) if one.metadata.deletion_timestamp is None]


async def test_the_node_gets_a_pod_with_the_labels_of_its_revision_and_a_rollback_takes_an_earlier_one(client: Client) -> None:
    await client.create(daemon_set("agent"))
    status = (await rolled_out(client)).status
    assert (status.desired_number_scheduled, status.current_number_scheduled, status.number_ready) == (1, 1, 1)
    assert (status.number_unavailable, status.number_misscheduled) == (None, 0)
    (revision,) = await client.list(ControllerRevision, namespace=client.namespace)
    (mine,) = await live_pods(client)
    value = revision.metadata.labels[REVISION_LABEL]
    assert mine.metadata.labels == {"app": "agent", "pod-template-generation": "1", REVISION_LABEL: value}
    assert (revision.metadata.name, revision.revision, revision.metadata.labels["app"]) == (f"agent-{value}", 1, "agent")
    for image in ("x:2", "x:1"):
        await set_image(client, image)
        await rolled_out(client)
    found = {one.metadata.name: one.revision for one in await client.list(ControllerRevision, namespace=client.namespace)}
    assert found.pop(revision.metadata.name) == 3
    assert list(found.values()) == [2]


async def test_a_surge_deletes_the_old_pod_when_the_new_one_is_ready(client: Client) -> None:
    await client.create(daemon_set("agent", update_strategy=rolling(surge=1, unavailable=0)))
    await rolled_out(client)
    (old,) = await live_pods(client)
    async with client.watch(Pod, namespace=client.namespace) as events:
        await set_image(client, "x:2")
        ready = False
        async for event in events:
            one = event.object
            if one.metadata.uid == old.metadata.uid and one.metadata.deletion_timestamp is not None:
                break
            ready = ready or (one.metadata.uid != old.metadata.uid and is_ready(one))
    assert ready
    await rolled_out(client)
