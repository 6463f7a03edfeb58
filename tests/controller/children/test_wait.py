"""Waiting for children, on both servers: by watches and informers, with an error that names missing children."""

import asyncio
from typing import Any

import pytest

from kubeloop.api.batch.v1 import Job
from kubeloop.api.core.v1 import ConfigMap, PersistentVolumeClaim, Pod, Service
from kubeloop.client import Client
from kubeloop.controller import Controller, Manager, Result
from kubeloop.controller.children.children import Children
from kubeloop.controller.children.lookup import ChildReader
from kubeloop.controller.children.readiness import state_of, wait_for_children
from kubeloop.meta import DeadlineError, ObjectMeta, Unstructured, WaitFailed


def tree(kind: str, **content: Any) -> Unstructured:
    group = {"Deployment": "apps/v1", "Job": "batch/v1"}.get(kind, "v1")
    metadata = {"name": "x", "namespace": "shop", "generation": 1}
    return Unstructured.from_dict({"apiVersion": group, "kind": kind, "metadata": metadata, **content})


ROLLED_OUT = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}


@pytest.mark.parametrize(
    ("children", "until", "says"),
    [
        pytest.param([], None, "all are ready", id="no children are ready"),
        pytest.param(
            [tree("Deployment", spec={"replicas": 1}, status=ROLLED_OUT), tree("ConfigMap")], None, "all are ready", id="all are ready"
        ),
        pytest.param(
            [tree("Deployment", spec={"replicas": 2}, status=ROLLED_OUT)],
            None,
            'Deployment shop/x: Waiting for deployment "x" rollout to finish: 1 out of 2 new replicas have been updated...',
            id="a rollout under way says how far it is",
        ),
        pytest.param(
            [tree("Pod", status={"phase": "Failed", "reason": "Evicted"}), tree("PersistentVolumeClaim")],
            None,
            'Pod shop/x: Pod "x" failed: Evicted; PersistentVolumeClaim shop/x: its phase is not known yet',
            id="what failed comes first",
        ),
    ],
)
def test_how_far_children_are(children: list[Unstructured], until: Any, says: str) -> None:
    state = state_of(children, until)
    assert str(state) == says
    assert state.ready == (says == "all are ready")


def test_a_wait_condition_may_be_given_by_kind() -> None:
    pod = Pod(metadata=ObjectMeta(name="p", namespace="shop"))
    assert not state_of([pod]).ready
    assert state_of([pod], {Pod: lambda obj: obj.metadata.name == "p"}).ready
    assert str(state_of([pod], {Pod: "condition=PodScheduled"})) == "Pod shop/p: no condition PodScheduled"


def test_a_reconcile_returns_on_the_state() -> None:
    waiting = state_of([tree("PersistentVolumeClaim")])
    assert waiting.result() is None, "changes of owned objects lead to the next reconcile"
    assert waiting.result(again=30) == Result(requeue_after=30)
    assert state_of([]).result(again=30) is None


@pytest.mark.server
async def test_children_without_a_cache_are_watched(client: Client) -> None:
    made = [await client.create(ConfigMap(metadata=ObjectMeta(name=name))) for name in ("a", "b")]
    until = {ConfigMap: "jsonpath={.data.done}=yes"}
    waiting = asyncio.create_task(wait_for_children(ChildReader(client, None), made, timeout=30, until=until))
    for name in ("a", "b"):
        await client.patch(ConfigMap, name, {"data": {"done": "yes"}})
    await waiting
    missing = ConfigMap(metadata=ObjectMeta(name="c"))
    with pytest.raises(DeadlineError, match=r'1 of 1 children are not ready: ConfigMap "c" .* it was not there'):
        await wait_for_children(ChildReader(client, None), [missing], timeout=0.05)


class ServiceController(Controller[Service], owns=[ConfigMap, PersistentVolumeClaim, Job]):
    """Has caches of the kinds it owns."""

    async def reconcile(self, obj: Service) -> None:
        """Nothing is to be done."""


@pytest.mark.server
async def test_children_in_a_controller_s_caches_are_awaited_there(client: Client) -> None:
    holder = ServiceController()
    children = Children(holder)
    until = {ConfigMap: "jsonpath={.data.done}=yes", PersistentVolumeClaim: "create"}
    async with Manager(client, [holder], namespace=client.namespace):
        made = await client.create(ConfigMap(metadata=ObjectMeta(name="a")))
        late = PersistentVolumeClaim(metadata=ObjectMeta(name="late", namespace=client.namespace))
        with pytest.raises(DeadlineError, match=r"nothing at \{.data.done\}; PersistentVolumeClaim .*/late: it is not there"):
            await wait_for_children(children.reader, [made, late], timeout=0.05, until=until)
        waiting = asyncio.create_task(wait_for_children(children.reader, [made], timeout=30, until=until))
        await asyncio.sleep(0)
        await client.patch(ConfigMap, "a", {"data": {"done": "yes"}})
        await waiting

        def never(_: ConfigMap) -> bool:
            raise WaitFailed("ConfigMap a will never be")

        with pytest.raises(WaitFailed, match="ConfigMap a will never be"):
            await wait_for_children(children.reader, [made], timeout=30, until={ConfigMap: never})
