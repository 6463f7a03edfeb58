"""Waits against servers: each built on a watch, each with a deadline that says what was missing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, assert_type

import pytest

from kubeloop.api.apps.v1 import Deployment, StatefulSet, StatefulSetSpec
from kubeloop.api.autoscaling.v2 import CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec
from kubeloop.api.core.v1 import ConfigMap, Container, Namespace, Pod, PodSpec, PodTemplateSpec
from kubeloop.client import ALL_NAMESPACES, Client, Event
from kubeloop.meta import DeadlineError, Forbidden, LabelSelector, ObjectMeta, Unstructured, WaitFailed
from kubeloop.timing import FakeClock, SystemClock
from kubeloop.transport import Transport
from tests.faults import FaultServer, Received, Reply, frames, status
from tests.kubectl.runner import Kubectl
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server


def pod(name: str = "p") -> Pod:
    # No scheduler of that name: the pod's status is the test's own.
    return Pod(metadata=ObjectMeta(name=name), spec=PodSpec(scheduler_name="absent", containers=[Container(name="c", image="nginx")]))


def autoscaler() -> HorizontalPodAutoscaler:
    target = CrossVersionObjectReference(api_version="apps/v1", kind="Deployment", name="web")
    spec = HorizontalPodAutoscalerSpec(max_replicas=3, scale_target_ref=target)
    return HorizontalPodAutoscaler(metadata=ObjectMeta(name="web"), spec=spec)


async def becomes(client: Client, **state: Any) -> None:
    await client.patch(Pod, "p", {"status": state}, subresource="status")


def ready(value: str, **more: str) -> dict[str, Any]:
    return {"conditions": [{"type": "Ready", "status": value, **more}]}


class TestAgainstAServer:
    async def test_a_condition(self, client: Client, namespace: str) -> None:
        waiting = asyncio.create_task(client.wait_for(Pod, "p", "condition=Ready", timeout=30))
        await client.create(pod())
        await becomes(client, **ready("False"))
        await becomes(client, **ready("True"))
        found = await waiting
        assert_type(found, Pod)
        assert found.metadata.name == "p"

    async def test_a_value_at_a_path(self, client: Client, namespace: str) -> None:
        await client.create(pod())
        waiting = asyncio.create_task(client.wait_for(Pod, "p", "jsonpath={.status.phase}=Running", timeout=30))
        await becomes(client, phase="Running")
        assert (await waiting).status.phase == "Running"

    async def test_its_creation(self, client: Client, namespace: str) -> None:
        waiting = asyncio.create_task(client.wait_created(Unstructured.for_kind("v1", "ConfigMap"), "a", timeout=30))
        await client.create(ConfigMap(metadata=ObjectMeta(name="a"), data={"x": "1"}))
        assert (await waiting)["data"] == {"x": "1"}

    async def test_a_pod_that_becomes_ready(self, client: Client, namespace: str) -> None:
        await client.create(pod())
        waiting = asyncio.create_task(client.wait_ready(Pod, "p", timeout=30))
        await becomes(client, phase="Running", **ready("True"))
        assert (await waiting).status.phase == "Running"

    async def test_a_pod_that_fails_is_not_waited_for_any_longer(self, client: Client, namespace: str) -> None:
        await client.create(pod())
        waiting = asyncio.create_task(client.wait_ready(Pod, "p", timeout=30))
        await becomes(client, phase="Failed", message="evicted")
        with pytest.raises(WaitFailed, match='Pod "p" failed: evicted'):
            await waiting

    async def test_a_namespace_is_ready_at_once(self, client: Client, namespace: str) -> None:
        assert (await client.wait_ready(Namespace, namespace, timeout=30)).metadata.name == namespace

    async def test_a_view_waits_in_its_namespace(self, client: Client, namespace: str) -> None:
        await client.create(pod())
        assert (await client.in_namespace(namespace).wait_created(Pod, "p", timeout=30)).metadata.namespace == namespace

    async def test_what_a_watch_sees_counts_one_condition_after_the_other(self, client: Client, namespace: str) -> None:
        begun = asyncio.Event()

        def second(event: Event[ConfigMap]) -> bool:
            if event.object.metadata.name == "b":
                begun.set()
            return begun.is_set()

        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(
                client.wait_for_events(
                    ConfigMap, second, lambda event: event.type == "DELETED", timeout=30, namespace=namespace, label_selector="app=web"
                )
            )
            for name in ("a", "b"):
                await client.create(ConfigMap(metadata=ObjectMeta(name=name, labels={"app": "web"})))
            await begun.wait()  # or the present objects would be requested when "a" is gone
            await client.delete(ConfigMap, "a")
        event = assert_type(await waiting, Event[ConfigMap])
        assert (event.type, event.object.metadata.name) == ("DELETED", "a")

    async def test_a_rollout_is_reported_in_kubectls_words(
        self, client: Client, namespace: str, server: ServerUnderTest, tmp_path: Path
    ) -> None:
        # Beside no controller and a controller alike: a StatefulSet of no pods, whose status is what counts.
        labels = {"app": "web"}
        template = PodTemplateSpec(metadata=ObjectMeta(labels=labels), spec=PodSpec(containers=[Container(name="c", image="nginx")]))
        spec = StatefulSetSpec(replicas=0, service_name="web", selector=LabelSelector(match_labels=labels), template=template)
        await client.create(StatefulSet(metadata=ObjectMeta(name="web"), spec=spec))
        waiting = asyncio.create_task(client.wait_rollout(StatefulSet, "web", timeout=30))
        seen = {"observedGeneration": 1, "replicas": 0}
        await client.patch(StatefulSet, "web", {"status": seen}, subresource="status")
        line = await waiting
        assert line == "partitioned roll out complete: 0 new pods have been updated..."
        kubectl = Kubectl(Path(server.kubeconfig), tmp_path, namespace)
        assert kubectl("rollout", "status", "statefulset/web", "--watch=false") == f"{line}\n"


def server_of(names: list[str]) -> FaultServer:
    found = [("ADDED", {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "resourceVersion": "5"}}) for name in names]
    return FaultServer(frames(*found, end="hang"))


async def test_n181_the_event_that_met_one_condition_is_the_first_that_the_next_is_asked_about() -> None:
    asked: list[tuple[int, str]] = []

    def condition(number: int, name: str) -> Any:
        def met(event: Event[ConfigMap]) -> bool:
            asked.append((number, event.object.metadata.name))
            return event.object.metadata.name == name

        return met

    async with server_of(["a", "b", "c"]) as server, Client(Transport(server.config())) as client:
        conditions = (condition(1, "b"), condition(2, "b"), condition(3, "c"))
        event = await client.wait_for_events(ConfigMap, *conditions, timeout=10, resource_version="1", namespace=ALL_NAMESPACES)
    assert event.object.metadata.name == "c"
    assert asked == [(1, "a"), (1, "b"), (2, "b"), (3, "b"), (3, "c")]


async def test_n181_a_condition_that_raises_ends_the_wait() -> None:
    def broken(_: Event[ConfigMap]) -> bool:
        raise RuntimeError("no")

    async with server_of(["a"]) as server, Client(Transport(server.config())) as client:
        with pytest.raises(RuntimeError, match="no"):
            await client.wait_for_events(ConfigMap, broken, timeout=10, resource_version="1", namespace=ALL_NAMESPACES)


class Late:
    """A client of a scripted server whose time passes only while a test waits for the end."""

    def __init__(self, answer: Callable[[Received], Reply]) -> None:
        self.clock = FakeClock()
        self.server = FaultServer(answer=answer)

    async def failing(self, wait: Callable[[Client], Awaitable[object]]) -> str:
        """What the deadline says, after everything that the server had to say was read."""
        async with self.server, Client(Transport(self.server.config()), clock=self.clock) as client:
            waiting = asyncio.ensure_future(wait(client))
            async with asyncio.timeout(30):
                while not waiting.done():
                    await asyncio.sleep(0.001)
                    await self.clock.advance(0.25)
            with pytest.raises(DeadlineError) as raised:
                await waiting
        return str(raised.value)


def one_pod(**status: Any) -> Callable[[Received], Reply]:
    entry = {
        "metadata": {"name": "p", "namespace": "default", "resourceVersion": "2", "finalizers": ["example.com/hold"]},
        "status": status,
    }

    def answer(received: Received) -> Reply:
        if "watch=true" in received.query:
            return frames(end="hang")
        return Reply(body={"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "3"}, "items": [entry]})

    return answer


NOT_READY = ready("False", reason="ContainersNotReady", message="c is not")


@pytest.mark.parametrize(
    ("answer", "wait", "text"),
    [
        pytest.param(
            one_pod(**NOT_READY),
            lambda client: client.wait_for(Pod, "p", "condition=Ready", timeout=30),
            'Pod "p" in namespace "default": not Ready=True within 30 s: Ready=False (ContainersNotReady: c is not)',
            id="the condition as it was",
        ),
        pytest.param(
            one_pod(**NOT_READY),
            lambda client: client.wait_ready(Pod, "p", timeout=30),
            'Pod "p" in namespace "default": not ready within 30 s: Ready=False (ContainersNotReady: c is not)',
            id="what kept it from being ready",
        ),
        pytest.param(
            one_pod(),
            lambda client: client.wait_gone(Pod, "p", timeout=30),
            'Pod "p" in namespace "default": still there after 30 s; finalizers that hold it: example.com/hold',
            id="what held it",
        ),
        pytest.param(
            lambda _: status(503, "ServiceUnavailable", "starting"),
            lambda client: client.wait_created(Pod, "p", timeout=30),
            'Pod "p" in namespace "default": not there within 30 s: it was not there; the server could not answer: '
            'ServiceUnavailable: starting (list pods in namespace "default")',
            id="why the server could not answer",
        ),
        pytest.param(
            one_pod(),
            lambda client: client.wait_for_events(Pod, lambda _: False, timeout=30),
            "watch of Pod: not all of 1 conditions came true within 30 s",
            id="181: that conditions did not come true",
        ),
    ],
)
async def test_a_deadline_says(answer: Callable[[Received], Reply], wait: Callable[[Client], Awaitable[object]], text: str) -> None:
    assert await Late(answer).failing(wait) == text


async def test_a_rollout_that_does_not_end_says_how_far_it_came() -> None:
    entry = {
        "metadata": {"name": "web", "generation": 1, "resourceVersion": "2"},
        "spec": {"replicas": 3},
        "status": {"observedGeneration": 1},
    }

    def answer(received: Received) -> Reply:
        if "watch=true" in received.query:
            return frames(end="hang")
        return Reply(body={"kind": "DeploymentList", "apiVersion": "apps/v1", "metadata": {"resourceVersion": "3"}, "items": [entry]})

    text = await Late(answer).failing(lambda client: client.wait_rollout(Deployment, "web", timeout=30))
    line = 'Waiting for deployment "web" rollout to finish: 0 out of 3 new replicas have been updated...'
    assert text == f'Deployment "web" in namespace "default": not rolled out within 30 s: {line}'


class TestFaults:
    async def test_a_refusal_ends_a_wait_at_once(self) -> None:
        async with FaultServer(status(403, "Forbidden", "no")) as server, Client(Transport(server.config())) as client:
            with pytest.raises(Forbidden):
                await client.wait_created(ConfigMap, "a", timeout=60)

    async def test_a_server_that_cannot_be_reached_is_waited_for(self) -> None:
        async with FaultServer() as server:
            config = server.config()
        clock = FakeClock()
        async with Client(Transport(config), clock=clock) as client:
            waiting = asyncio.ensure_future(client.wait_gone(ConfigMap, "a", timeout=30))
            async with asyncio.timeout(30):
                while not waiting.done():
                    await asyncio.sleep(0.001)
                    await clock.advance(0.25)
            with pytest.raises(DeadlineError, match=r"the server could not be asked: .*nothing listens there"):
                await waiting

    async def test_a_server_that_comes_back_is_believed(self) -> None:
        failed = False

        def answer(received: Received) -> Reply:
            nonlocal failed
            if not failed:
                failed = True
                return status(503)
            entry = {"metadata": {"name": "a", "resourceVersion": "2"}}
            body = {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "3"}, "items": [entry]}
            return Reply(body=body)

        async with FaultServer(answer=answer) as server, Client(Transport(server.config()), clock=Impatient()) as client:
            assert (await client.wait_created(ConfigMap, "a", timeout=30)).metadata.name == "a"


class Impatient(SystemClock):
    """Pauses take no time; deadlines do."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
