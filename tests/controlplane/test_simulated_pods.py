"""Pods on a simulated node, by fake time: when they start, what their annotations make of them, how they end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubeloop.api.core.v1 import ConfigMap, Event, PersistentVolumeClaim, Pod, Secret
from kubeloop.client import ALL_NAMESPACES
from kubeloop.codec import to_dict
from kubeloop.controlplane.simulation.annotations import EXIT_CODE, LOG, READINESS, RUN_SECONDS, STARTUP, STOP_SECONDS
from kubeloop.controlplane.simulation.nodes import SimulatedNodes
from kubeloop.meta import ObjectMeta
from tests.controlplane.simulated import FakeTimeCluster, simulation
from tests.controlplane.storage import claim
from tests.controlplane.workloads import read

NODE = "kubeloop-node"


@pytest.fixture
async def cluster() -> AsyncIterator[FakeTimeCluster]:
    async with simulation(SimulatedNodes()) as found:
        yield found


def pod(annotations: dict[str, str] | None = None, container: dict[str, Any] | None = None, **spec: Any) -> Pod:
    containers = [{"name": "c", "image": "x:1"} | (container or {})]
    metadata = {"name": "p", "annotations": annotations or {}}
    return read(Pod, {"metadata": metadata, "spec": {"containers": containers, "nodeName": NODE} | spec})


async def become(cluster: FakeTimeCluster, made: Pod, seconds: float = 10) -> dict[str, Any]:
    """Return the status of a pod some time after it was created."""
    await cluster.client.create(made)
    return await later(cluster, seconds)


async def later(cluster: FakeTimeCluster, seconds: float = 10) -> dict[str, Any]:
    await cluster.drive(cluster.clock.sleep(seconds))
    found: dict[str, Any] = to_dict(await cluster.client.get(Pod, "p"))["status"]
    return found


def condition(status: dict[str, Any], kind: str) -> tuple[str, str]:
    (found,) = [one for one in status["conditions"] if one["type"] == kind]
    return found["status"], found.get("reason") or ""


async def events(cluster: FakeTimeCluster) -> dict[str, str]:
    return {one.reason or "": one.message or "" for one in await cluster.client.list(Event, namespace=ALL_NAMESPACES)}


PROBE = {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 1}
SECRET_ENV = {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}
OPTIONAL_ENV = {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}}]}
MAP_ENV = {"envFrom": [{"configMapRef": {"name": "m"}}]}


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        pytest.param(SECRET_ENV, 'secret "s" not found', id="a variable from a missing secret"),
        pytest.param(MAP_ENV, 'configmap "m" not found', id="an environment from a missing config map"),
    ],
)
async def test_a_container_waits_for_what_its_environment_lacks(cluster: FakeTimeCluster, container: dict[str, Any], expected: str) -> None:
    status = await become(cluster, pod(container=container))
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "CreateContainerConfigError", "message": expected}}
    assert (status["phase"], condition(status, "Ready")) == ("Pending", ("False", "ContainersNotReady"))
    assert (await events(cluster))["Failed"] == f"Error: {expected}"
    await cluster.client.create(Secret(metadata=ObjectMeta(name="s"), data={"k": b"v"}))
    await cluster.client.create(ConfigMap(metadata=ObjectMeta(name="m")))
    assert condition(await later(cluster), "Ready") == ("True", "")


async def test_a_secret_without_the_key_is_named(cluster: FakeTimeCluster) -> None:
    await cluster.client.create(Secret(metadata=ObjectMeta(name="s"), data={"other": b"v"}))
    status = await become(cluster, pod(container=SECRET_ENV))
    assert status["containerStatuses"][0]["state"]["waiting"]["message"] == "couldn't find key k in Secret default/s"


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        pytest.param({"secret": {"secretName": "s"}}, 'secret "s" not found', id="a secret"),
        pytest.param({"configMap": {"name": "m"}}, 'configmap "m" not found', id="a config map"),
        pytest.param({"projected": {"sources": [{"configMap": {"name": "m"}}]}}, 'configmap "m" not found', id="a projected config map"),
    ],
)
async def test_a_pod_waits_for_its_volumes(cluster: FakeTimeCluster, volume: dict[str, Any], expected: str) -> None:
    status = await become(cluster, pod(volumes=[{"name": "v"} | volume]))
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert condition(status, "PodReadyToStartContainers")[0] == "False"
    assert (await events(cluster))["FailedMount"] == f'MountVolume.SetUp failed for volume "v" : {expected}'
    await cluster.client.create(Secret(metadata=ObjectMeta(name="s")))
    await cluster.client.create(ConfigMap(metadata=ObjectMeta(name="m")))
    assert (await later(cluster))["phase"] == "Running"


async def test_a_pod_waits_until_its_claims_are_bound(cluster: FakeTimeCluster) -> None:
    made = pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    await become(cluster, made)
    await cluster.client.create(claim())
    status = await later(cluster)
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    why = 'MountVolume.SetUp failed for volume "v" : error processing PVC default/data: '
    missing = 'failed to fetch PVC from API server: persistentvolumeclaims "data" not found'
    assert {one.message for one in await cluster.client.list(Event, namespace=ALL_NAMESPACES)} == {
        f"{why}{missing}",
        f"{why}PVC is not bound",
    }
    await cluster.client.patch(PersistentVolumeClaim, "data", {"spec": {"volumeName": "v"}})
    await cluster.client.patch(PersistentVolumeClaim, "data", {"status": {"phase": "Bound"}}, subresource="status")
    assert (await later(cluster))["phase"] == "Running"


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(pod(container=OPTIONAL_ENV), id="a variable"),
        pytest.param(pod(volumes=[{"name": "v", "configMap": {"name": "m", "optional": True}}]), id="a volume"),
    ],
)
async def test_optional_references_may_be_missing(cluster: FakeTimeCluster, made: Pod) -> None:
    assert (await become(cluster, made))["phase"] == "Running"


@pytest.mark.parametrize(
    ("made", "reason", "message"),
    [
        pytest.param(
            pod(container={"resources": {"requests": {"cpu": "100"}}}),
            "OutOfcpu",
            "Node didn't have enough resource: cpu, requested: 100000, used: 0, capacity: 64000",
            id="too large",
        ),
        pytest.param(
            pod(nodeSelector={"disk": "ssd"}),
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
            id="with another node selector",
        ),
    ],
)
async def test_a_pod_that_was_bound_to_a_node_which_it_does_not_fit_is_rejected(
    cluster: FakeTimeCluster, made: Pod, reason: str, message: str
) -> None:
    status = await become(cluster, made)
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", reason, f"Pod was rejected: {message}")
    assert (await events(cluster))[reason] == message


async def test_a_second_pod_with_the_same_host_port_is_rejected(cluster: FakeTimeCluster) -> None:
    ports = {"ports": [{"containerPort": 80, "hostPort": 8080}]}
    first = pod(container=ports)
    first.metadata.name = "first"
    await cluster.client.create(first)
    await cluster.drive(cluster.clock.sleep(5))
    assert (await become(cluster, pod(container=ports)))["reason"] == "NodePorts"


async def test_a_missing_image_pull_secret_is_reported_and_holds_back_no_pod(cluster: FakeTimeCluster) -> None:
    assert (await become(cluster, pod(imagePullSecrets=[{"name": "registry"}])))["phase"] == "Running"
    assert "some image pull secrets (registry)" in (await events(cluster))["FailedToRetrieveImagePullSecret"]


@pytest.mark.parametrize(
    ("annotation", "probe", "expected"),
    [
        pytest.param({}, "readinessProbe", ("True", True, True), id="a probe without an annotation succeeds"),
        pytest.param({READINESS: "success"}, "readinessProbe", ("True", True, True), id="readiness succeeds"),
        pytest.param({READINESS: "failure"}, "readinessProbe", ("False", False, True), id="readiness fails"),
        pytest.param({READINESS: "other=failure"}, "readinessProbe", ("True", True, True), id="readiness of another container fails"),
        pytest.param({READINESS: "failure"}, "livenessProbe", ("True", True, True), id="there is no readiness probe to fail"),
        pytest.param({STARTUP: "c=failure"}, "startupProbe", ("False", False, False), id="startup fails"),
    ],
)
async def test_probes(cluster: FakeTimeCluster, annotation: dict[str, str], probe: str, expected: tuple[str, bool, bool]) -> None:
    status = await become(cluster, pod(annotation, {probe: PROBE}))
    (container,) = status["containerStatuses"]
    assert (condition(status, "Ready")[0], container["ready"], container["started"]) == expected
    unknown = not annotation or probe == "livenessProbe" or "other" in annotation.get(READINESS, "")
    assert ("ProbesNotRun" in await events(cluster)) is unknown


async def test_a_probe_follows_its_annotation(cluster: FakeTimeCluster) -> None:
    await become(cluster, pod({READINESS: "failure"}, {"readinessProbe": PROBE}))
    await cluster.client.patch(Pod, "p", {"metadata": {"annotations": {READINESS: "success"}}})
    assert condition(await later(cluster), "Ready") == ("True", "")
    await cluster.client.patch(Pod, "p", {"metadata": {"annotations": {READINESS: "failure"}}})
    assert condition(await later(cluster), "Ready") == ("False", "ContainersNotReady")


async def test_a_failing_liveness_probe_restarts_the_container(cluster: FakeTimeCluster) -> None:
    status = await become(cluster, pod({"simulated.kubeloop.dev/liveness-probe": "failure"}, {"livenessProbe": PROBE}))
    (container,) = status["containerStatuses"]
    assert (container["state"]["waiting"]["reason"], container["restartCount"]) == ("CrashLoopBackOff", 1)
    assert container["lastState"]["terminated"]["exitCode"] == 137


@pytest.mark.parametrize(
    ("policy", "annotations", "phase", "state"),
    [
        pytest.param("Never", {}, "Succeeded", "terminated", id="Never succeeds after a moment"),
        pytest.param("OnFailure", {}, "Succeeded", "terminated", id="OnFailure succeeds after a moment"),
        pytest.param("Always", {}, "Running", "running", id="Always runs on"),
        pytest.param("Never", {EXIT_CODE: "3"}, "Failed", "terminated", id="Never fails with an exit code"),
        pytest.param("OnFailure", {EXIT_CODE: "3"}, "Running", "waiting", id="OnFailure restarts after an exit code"),
        pytest.param("Always", {EXIT_CODE: "0"}, "Running", "waiting", id="Always restarts whatever the exit code"),
        pytest.param("Never", {RUN_SECONDS: "60"}, "Running", "running", id="it runs as long as its annotation says"),
        pytest.param("Never", {RUN_SECONDS: "forever"}, "Running", "running", id="it never ends"),
    ],
)
async def test_containers_end(cluster: FakeTimeCluster, policy: str, annotations: dict[str, str], phase: str, state: str) -> None:
    status = await become(cluster, pod(annotations, restartPolicy=policy))
    assert (status["phase"], list(status["containerStatuses"][0]["state"])) == (phase, [state])
    ready = {"Succeeded": ("False", "PodCompleted"), "Failed": ("False", "PodFailed")}
    if phase in ready:
        assert condition(status, "Ready") == ready[phase]
        assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == int(annotations.get(EXIT_CODE, 0))


async def test_a_container_runs_for_its_time_to_the_second(cluster: FakeTimeCluster) -> None:
    assert (await become(cluster, pod({RUN_SECONDS: "60"}, restartPolicy="Never"), 55))["phase"] == "Running"
    assert (await later(cluster, 6))["phase"] == "Succeeded"


async def test_an_annotation_that_makes_no_sense_is_reported_and_ignored(cluster: FakeTimeCluster) -> None:
    assert (await become(cluster, pod({EXIT_CODE: "soon"}, restartPolicy="Never")))["phase"] == "Succeeded"
    assert 'simulated.kubeloop.dev/exit-code: "soon" is neither an exit code from 0 to 255' in (await events(cluster))["InvalidSimulation"]


async def test_init_containers_hold_back_the_others_until_they_succeed(cluster: FakeTimeCluster) -> None:
    init = [{"name": "setup", "image": "x:1"}, {"name": "more", "image": "x:1"}]
    status = await become(cluster, pod({EXIT_CODE: "setup=1"}, initContainers=init, restartPolicy="Never"))
    assert (status["phase"], condition(status, "Initialized")[0]) == ("Failed", "False")
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


async def test_a_pod_beyond_its_deadline_fails(cluster: FakeTimeCluster) -> None:
    status = await become(cluster, pod(activeDeadlineSeconds=30), 25)
    assert status["phase"] == "Running"
    status = await later(cluster, 10)
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")


async def test_a_deleted_pod_shows_that_its_containers_ended_before_it_goes(cluster: FakeTimeCluster) -> None:
    await become(cluster, pod(terminationGracePeriodSeconds=30))
    seen: list[tuple[str, str, str]] = []

    async def follow() -> None:
        async with cluster.client.watch(Pod, namespace=ALL_NAMESPACES) as changes:
            await cluster.client.delete(Pod, "p")
            async for change in changes:
                status = to_dict(change.object)["status"]
                seen.append((status["phase"], "".join(status["containerStatuses"][0]["state"]), condition(status, "Ready")[0]))
                if change.type == "DELETED":
                    return

    await cluster.drive(follow())
    before_deletion = list(dict.fromkeys(seen[:-1]))
    assert before_deletion == [("Running", "running", "True"), ("Succeeded", "terminated", "False")]


@pytest.mark.parametrize(
    ("stop", "grace", "seconds", "code"),
    [
        pytest.param("5", 30, 5, 0, id="a container that takes its time within the grace period"),
        pytest.param("forever", 7, 7, 137, id="a container that is killed when the grace period is over"),
    ],
)
async def test_grace_period(cluster: FakeTimeCluster, stop: str, grace: int, seconds: int, code: int) -> None:
    made = pod({STOP_SECONDS: stop}, terminationGracePeriodSeconds=grace)
    made.metadata.finalizers = ["example.com/seen"]
    await become(cluster, made)
    await cluster.client.delete(Pod, "p")
    assert (await later(cluster, seconds - 1.5))["phase"] == "Running"
    status = await later(cluster, 3)
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == code


async def test_a_pod_is_resized_in_place(cluster: FakeTimeCluster) -> None:
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    (container,) = (await become(cluster, pod(container={"resources": resources})))["containerStatuses"]
    assert (container["resources"], container["allocatedResources"]) == (resources, {"cpu": "1"})
    change = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}
    await cluster.client.patch(Pod, "p", change, type="strategic", subresource="resize")
    status = await later(cluster)
    (container,) = status["containerStatuses"]
    assert (container["resources"]["requests"], container["allocatedResources"]) == ({"cpu": "2"}, {"cpu": "2"})
    assert status["observedGeneration"] == 2


async def test_a_resize_waits_until_its_node_has_room(cluster: FakeTimeCluster) -> None:
    neighbour = pod(container={"resources": {"requests": {"cpu": "60"}}}, terminationGracePeriodSeconds=0)
    neighbour.metadata.name = "neighbour"
    await cluster.client.create(neighbour)
    await become(cluster, pod(container={"resources": {"requests": {"cpu": "1"}}}))
    change = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "10"}}}]}}
    await cluster.client.patch(Pod, "p", change, type="strategic", subresource="resize")
    status = await later(cluster)
    assert status["containerStatuses"][0]["allocatedResources"] == {"cpu": "1"}
    assert condition(status, "PodResizePending") == ("True", "Deferred")
    message = "Node didn't have enough resource: cpu, requested: 10000, used: 60000, capacity: 64000"
    assert (await events(cluster))["ResizeDeferred"] == f"Pod resize Deferred: {message}"
    await cluster.client.delete(Pod, "neighbour")
    status = await later(cluster, 130)
    assert status["containerStatuses"][0]["allocatedResources"] == {"cpu": "10"}
    assert "PodResizePending" not in [one["type"] for one in status["conditions"]]


async def read_log(cluster: FakeTimeCluster, **options: Any) -> list[str]:
    async with cluster.client.pods.logs("p", **options) as lines:
        return [line async for line in lines]


async def test_logs_are_empty_or_what_the_annotation_says(cluster: FakeTimeCluster) -> None:
    await become(cluster, pod())
    assert await cluster.drive(read_log(cluster)) == []
    await cluster.client.patch(Pod, "p", {"metadata": {"annotations": {LOG: "one\ntwo\nthree"}}})
    assert await cluster.drive(read_log(cluster)) == ["one", "two", "three"]
    assert await cluster.drive(read_log(cluster, tail=2)) == ["two", "three"]


async def test_a_log_that_is_followed_ends_with_its_container(cluster: FakeTimeCluster) -> None:
    await cluster.client.create(pod({LOG: "one", RUN_SECONDS: "60"}, restartPolicy="Never"))
    await cluster.drive(cluster.client.wait_for(Pod, "p", lambda pod: pod.status.phase == "Running", timeout=10))
    begun = cluster.clock.now()
    assert await cluster.drive(read_log(cluster, follow=True)) == ["one"]
    assert 50 <= cluster.clock.now() - begun <= 65
