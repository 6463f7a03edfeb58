"""Pods that run as processes, on a separate server: containers, volumes, probes, streams, ends and restarts."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.batch.v1 import Job
from kubeloop.api.core.v1 import ConfigMap, Event, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service
from kubeloop.client import Client
from kubeloop.meta import DeadlineError, ObjectMeta

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(90)]
TIMEOUT = 40.0


def shell_pod(name: str, script: str, *, node: str = "", **more: Any) -> Pod:
    """Return a pod whose container ``main`` runs a shell script."""
    container = {"name": "main", "image": "shell", "imagePullPolicy": "IfNotPresent", "args": [script], **more.pop("container", {})}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container], **more}
    if node:
        spec["nodeName"] = node
    return Pod.from_dict({"metadata": {"name": name}, "spec": spec})


async def until(done: Callable[[], object], timeout: float = 10.0) -> None:
    """Return when ``done`` returns true; an error of the network counts as false."""
    last: object = None
    for _ in range(int(timeout / 0.05)):
        try:
            last = done()
            if inspect.isawaitable(last):
                last = await last
        except OSError as error:
            last = error
        else:
            if last:
                return
        await asyncio.sleep(0.05)
    raise AssertionError(f"not within {timeout} s: {last!r}")


async def wait(client: Client, name: str, done: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Return the pod's status when ``done`` holds for it."""
    status: dict[str, Any] = {}

    def met(pod: Pod) -> bool:
        nonlocal status
        status = pod.to_dict().get("status") or {}
        return bool(done(status))

    try:
        await client.wait_for(Pod, name, met, timeout=TIMEOUT)
    except DeadlineError as error:
        raise AssertionError(f"{error}: {status}") from None
    return status


def is_ready(status: dict[str, Any]) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or ())


def ended(status: dict[str, Any]) -> bool:
    return status.get("phase") in ("Succeeded", "Failed")


async def reasons(client: Client, name: str) -> dict[str, str]:
    """Return the messages of a pod's Events by their reasons."""
    return {one.reason or "": one.message or "" async for one in client.list(Event) if one.involved_object.name == name}


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as response:
        text: str = response.read().decode()
        return text


def web(replicas: int = 2, image: str = "web:1") -> dict[str, Any]:
    probe = {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 1}
    hook = {"preStop": {"sleep": {"seconds": 1}}}
    container = {
        "name": "web",
        "image": image,
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": probe,
        "lifecycle": hook,
    }
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"nodeName": "kubeloop-node", "containers": [container]}}
    strategy = {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    return {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "strategy": strategy, "template": template}


async def test_a_deployment_behind_a_service_is_updated_without_a_failed_request(client: Client) -> None:
    await client.create(Deployment.from_dict({"metadata": {"name": "web"}, "spec": web()}))
    ports = [{"port": 8080, "targetPort": "http"}]
    service = await client.create(Service.from_dict({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": ports}}))
    await client.wait_for(Deployment, "web", lambda deployment: deployment.status.ready_replicas == 2, timeout=TIMEOUT)
    url = f"http://{service.spec.cluster_ip}:8080/"
    [pod, *_] = [one async for one in client.list(Pod)]
    call = "import urllib.request; print(urllib.request.urlopen('http://web:8080/').read().decode())"
    result = await client.pods.exec(pod, ["python3", "-S", "-c", call])
    assert result.stdout == b"first\n", "a service has a name in containers"
    answers: list[str] = []
    stop = asyncio.Event()

    async def load() -> None:
        while not stop.is_set():
            answers.append(await asyncio.to_thread(get, url))
            await asyncio.sleep(0.01)

    loading = asyncio.create_task(load())
    try:
        await until(lambda: len(answers) > 3)
        await client.patch(Deployment, "web", {"spec": web(image="web:2")}, type="strategic")
        await client.wait_for(
            Deployment,
            "web",
            lambda deployment: (
                deployment.status.observed_generation == deployment.metadata.generation
                and deployment.status.updated_replicas == deployment.status.replicas == deployment.status.ready_replicas == 2
            ),
            timeout=TIMEOUT,
        )
        await until(lambda: answers[-5:] == ["second"] * 5, timeout=20)
    finally:
        stop.set()
        await loading
    assert set(answers) == {"first", "second"}


async def test_commands_logs_ports_and_files_reach_a_container(client: Client, tmp_path: Path) -> None:
    script = "echo started; echo problem >&2; cat > /srv/from-stdin & exec python3 -S -m http.server --bind $KUBELOOP_POD_IP 8080"
    await client.create(shell_pod("tools", script, container={"workingDir": "/srv", "env": [{"name": "COLOR", "value": "red"}]}))
    await wait(client, "tools", is_ready)
    result = await client.pods.exec("tools", ["sh", "-c", "echo $COLOR; pwd; hostname; cat; exit 3"], stdin="input")
    assert (result.exit_code, result.stdout) == (3, b"red\n/srv\ntools\ninput")
    missing = await client.pods.exec("tools", ["no-such-program"])
    assert (missing.exit_code, "executable file not found in $PATH" in missing.stderr.decode()) == (127, True)
    assert set((await client.pods.logs("tools")).splitlines()) >= {"started", "problem"}
    async with client.pods.port_forward("tools", ":8080") as forward:
        await until(lambda: asyncio.to_thread(get, f"http://127.0.0.1:{forward.ports[0].local}/"), timeout=20)
    (tmp_path / "data").write_text("copied")
    await client.pods.copy_to("tools", tmp_path / "data", "/srv/data")
    await client.pods.copy_from("tools", "/srv/data", tmp_path / "back")
    assert (tmp_path / "back").read_text() == "copied"
    async with client.pods.exec_stream("tools", ["sh", "-c", "tty; stty size"], tty=True) as session:
        await session.resize(132, 43)
        shown = b"".join([part.data async for part in session])
    assert shown.startswith(b"/dev/pts/")
    assert not Path("/srv/from-stdin").exists()  # writes of a container stay in the container


async def test_a_client_attaches_to_the_input_and_output_of_a_container(client: Client) -> None:
    script = "while read line; do echo got $line; done; echo end"
    container = {"stdin": True, "stdinOnce": True}
    await client.create(shell_pod("reader", script, restartPolicy="Never", container=container))
    await wait(client, "reader", is_ready)
    async with client.pods.attach("reader", stdin=True) as session:
        await session.write(b"one\ntwo\n")
        await session.close_stdin()
        shown = b"".join([part.data async for part in session])
    assert shown == b"got one\ngot two\nend\n"
    await wait(client, "reader", ended)


async def test_a_job_shows_exit_codes_and_termination_messages(client: Client) -> None:
    script = "echo because > /dev/termination-log; echo last words; exit 3"
    container = {"name": "main", "image": "shell", "args": [script]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    await client.create(Job.from_dict({"metadata": {"name": "job"}, "spec": {"backoffLimit": 0, "template": template}}))
    job = await client.wait_for(Job, "job", lambda job: job.status.failed == 1, timeout=TIMEOUT)
    assert job.status.failed == 1
    [pod] = [one async for one in client.list(Pod, label_selector="job-name=job")]
    terminated = pod.to_dict()["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"], terminated["message"]) == (3, "Error", "because\n")
    assert pod.status.phase == "Failed"
    assert await client.pods.logs(pod.metadata.name) == "last words\n"


async def test_init_containers_sidecars_and_restarts_follow_their_policies(client: Client) -> None:
    volumes: list[dict[str, Any]] = [{"name": "shared", "emptyDir": {}}]
    mount = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    init = [
        {"name": "first", "image": "shell", "args": ["echo one > /shared/order"], **mount},
        {"name": "side", "image": "shell", "restartPolicy": "Always", "args": ["echo two >> /shared/order; sleep 1000"], **mount},
    ]
    script = "if [ -e /shared/again ]; then cat /shared/order; else touch /shared/again; exit 1; fi"
    pod = shell_pod("order", script, restartPolicy="OnFailure", initContainers=init, container=mount, volumes=volumes)
    await client.create(pod)
    status = await wait(client, "order", ended)
    [main] = status["containerStatuses"]
    assert (status["phase"], main["restartCount"], main["lastState"]["terminated"]["exitCode"]) == ("Succeeded", 1, 1)
    assert await client.pods.logs("order", container="main") == "one\ntwo\n"
    assert await client.pods.logs("order", container="main", previous=True) == ""


async def test_volumes_in_memory_are_shared_and_volumes_replace_the_kubelets_files(client: Client) -> None:
    volumes: list[dict[str, Any]] = [
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": "names", "configMap": {"name": "names"}},
    ]
    await client.create(ConfigMap(metadata=ObjectMeta(name="names"), data={"hosts": "127.0.0.1 own\n", "resolver": "options own\n"}))
    mount = {"name": "memory", "mountPath": "/memory"}
    init = [{"name": "first", "image": "shell", "args": ["echo one > /memory/file"], "volumeMounts": [mount]}]
    paths = {"/etc/hosts": "hosts", "/etc/resolv.conf": "resolver"}
    mounts = [mount, *({"name": "names", "mountPath": path, "subPath": key} for path, key in paths.items())]
    script = "cat /memory/file /etc/hosts /etc/resolv.conf; stat -f -c %T /memory"
    pod = shell_pod("memory", script, restartPolicy="Never", initContainers=init, container={"volumeMounts": mounts}, volumes=volumes)
    await client.create(pod)
    assert (await wait(client, "memory", ended))["phase"] == "Succeeded"
    *lines, kind = (await client.pods.logs("memory", container="main")).splitlines()
    assert lines == ["one", "127.0.0.1 own", "options own"]
    if os.geteuid() == 0:  # other users may not mount
        assert kind == "tmpfs"


async def test_a_crashing_container_backs_off(client: Client) -> None:
    await client.create(shell_pod("crash", "echo run; exit 1"))
    status = await wait(
        client,
        "crash",
        lambda status: "CrashLoopBackOff" in json.dumps(status.get("containerStatuses")) and status["containerStatuses"][0]["restartCount"],
    )
    [main] = status["containerStatuses"]
    assert main["state"]["waiting"]["message"].startswith("back-off 10s restarting failed container=main pod=crash_")
    assert (main["lastState"]["terminated"]["reason"], status["phase"]) == ("Error", "Running")
    assert await client.pods.logs("crash", previous=True) == "run\n"


async def test_probes_decide_readiness_and_restarts(client: Client) -> None:
    probes = {
        "startupProbe": {"exec": {"command": ["test", "-e", "/up"]}, "periodSeconds": 1, "timeoutSeconds": 10, "failureThreshold": 30},
        "readinessProbe": {"exec": {"command": ["test", "-e", "/ready"]}, "periodSeconds": 1, "timeoutSeconds": 10, "failureThreshold": 1},
        "livenessProbe": {
            "exec": {"command": ["sh", "-c", "! test -e /sick"]},
            "periodSeconds": 1,
            "timeoutSeconds": 10,
            "failureThreshold": 1,
        },
    }
    await client.create(shell_pod("probed", "touch /up; sleep 1000", container=probes))
    await wait(client, "probed", lambda status: (status.get("containerStatuses") or [{}])[0].get("started"))
    assert not is_ready((await client.get(Pod, "probed")).to_dict()["status"])
    assert (await client.pods.exec("probed", ["touch", "/ready"])).exit_code == 0
    await wait(client, "probed", is_ready)
    await client.pods.exec("probed", ["touch", "/sick"])
    await wait(client, "probed", lambda status: status["containerStatuses"][0]["restartCount"] == 1)
    found = await reasons(client, "probed")
    assert found["Killing"] == "Container main failed liveness probe, will be restarted"
    assert found["Unhealthy"].startswith(("Liveness probe failed", "Readiness probe failed"))


async def test_the_grace_period_is_given_and_ends(client: Client, tmp_path: Path) -> None:
    volumes = [{"name": "out", "hostPath": {"path": str(tmp_path)}}]
    container = {
        "volumeMounts": [{"name": "out", "mountPath": "/out"}],
        "lifecycle": {
            "preStop": {"exec": {"command": ["sh", "-c", "echo hook >> /out/polite"]}},
            "postStart": {"exec": {"command": ["sh", "-c", "echo started >> /out/polite"]}},
        },
    }
    polite = "trap 'echo stopped >> /out/polite; exit 0' TERM; while true; do sleep 0.05; done"
    await client.create(shell_pod("polite", polite, container=container, volumes=volumes, terminationGracePeriodSeconds=30))
    await client.create(shell_pod("stubborn", "trap '' TERM; while true; do sleep 0.05; done"))
    for name in ("polite", "stubborn"):
        await wait(client, name, is_ready)
        await client.delete(Pod, name)
    for name in ("polite", "stubborn"):
        await client.wait_gone(Pod, name, timeout=15)
    assert (tmp_path / "polite").read_text() == "started\nhook\nstopped\n"


async def test_volumes_show_changes_of_their_sources(client: Client, tmp_path: Path) -> None:
    await client.create(ConfigMap(metadata=ObjectMeta(name="settings"), data={"color": "red"}))
    await client.create(Secret(metadata=ObjectMeta(name="keys"), data={"key": b"secret"}))
    capacity = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    name = f"disk-{client.namespace}"
    volume = {"metadata": {"name": name}, "spec": {**capacity, "hostPath": {"path": str(tmp_path / "disk")}}}
    await client.create(PersistentVolume.from_dict(volume))
    request = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
    await client.create(PersistentVolumeClaim.from_dict({"metadata": {"name": "disk"}, "spec": request}))
    volumes = [
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "keys", "secret": {"secretName": "keys", "defaultMode": 0o400}},
        {"name": "info", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}},
    ]
    mounts = [{"name": one["name"], "mountPath": f"/vol/{one['name']}"} for one in volumes]
    mounts.append({"name": "settings", "mountPath": "/etc/color", "subPath": "color"})
    script = "echo kept > /vol/disk/data; cat /vol/keys/key /etc/color; stat -L -c %a /vol/keys/key; sleep 1000"
    pod = shell_pod("volumes", script, node="worker", volumes=volumes, container={"volumeMounts": mounts})
    pod.metadata.labels = {"state": "old"}
    await client.create(pod)
    await wait(client, "volumes", is_ready)
    await until(lambda: client.pods.logs("volumes"), timeout=10)
    assert await client.pods.logs("volumes") == "secretred400\n"
    assert (tmp_path / "disk/data").read_text() == "kept\n"
    await client.patch(ConfigMap, "settings", {"data": {"color": "blue"}}, type="merge")
    await client.patch(Pod, "volumes", {"metadata": {"labels": {"state": "new"}}}, type="merge")

    async def shown() -> bool:
        result = await client.pods.exec("volumes", ["cat", "/vol/settings/color", "/vol/info/labels", "/etc/color"])
        return result.stdout == b'bluestate="new"red'

    await until(shown, timeout=20)


async def test_a_container_reaches_the_api_server_with_its_token(client: Client) -> None:
    script = """
import json, os, ssl, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount/"
context = ssl.create_default_context(cafile=folder + "ca.crt")
url = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}/apis/authentication.k8s.io/v1/selfsubjectreviews"
body = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).encode()
headers = {"Authorization": "Bearer " + open(folder + "token").read(), "Content-Type": "application/json"}
with urllib.request.urlopen(urllib.request.Request(url, body, headers), context=context) as response:
    print(json.load(response)["status"]["userInfo"]["username"])
"""
    container = {"command": ["python3", "-c"]}
    await client.create(shell_pod("caller", script, restartPolicy="Never", container=container))
    await wait(client, "caller", ended)
    assert await client.pods.logs("caller") == f"system:serviceaccount:{client.namespace}:default\n"


async def test_memory_beyond_the_limit_ends_a_container(client: Client) -> None:
    container = {"command": ["python3", "-S", "-c"], "resources": {"limits": {"memory": "64Mi"}}}
    pod = shell_pod("greedy", "import time; data = bytearray(100 << 20); time.sleep(1000)", restartPolicy="Never", container=container)
    await client.create(pod)
    status = await wait(client, "greedy", ended)
    terminated = status["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["reason"], terminated["exitCode"]) == ("OOMKilled", 137)


async def test_a_pod_that_outlives_its_deadline_fails(client: Client) -> None:
    await client.create(shell_pod("late", "sleep 1000", activeDeadlineSeconds=1))
    status = await wait(client, "late", ended)
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")


async def test_what_cannot_start_says_why_in_the_words_of_kubelet(client: Client) -> None:
    containers: list[dict[str, Any]] = [
        {"name": "unmapped", "image": "unmapped"},
        {"name": "never", "image": "unmapped", "imagePullPolicy": "Never"},
        {"name": "malformed", "image": "BAD"},
        {"name": "unset", "image": "idle", "envFrom": [{"configMapRef": {"name": "none"}}]},
        {"name": "root", "image": "idle", "securityContext": {"runAsNonRoot": True, "runAsUser": 0}},
        {"name": "absent", "image": "idle", "command": ["no-such-program"]},
        {"name": "nowhere", "image": "idle", "workingDir": "/no/such/folder"},
        {"name": "fine", "image": "idle"},
    ]
    spec = {"restartPolicy": "Always", "terminationGracePeriodSeconds": 0, "containers": containers}
    await client.create(Pod.from_dict({"metadata": {"name": "faults"}, "spec": spec}))

    def all_said(status: dict[str, Any]) -> bool:
        states = [one["state"] for one in status.get("containerStatuses") or ()]
        return len(states) == 8 and all("running" in one or one["waiting"]["reason"] != "ContainerCreating" for one in states)

    status = await wait(client, "faults", all_said)
    found = {one["name"]: (one["state"].get("waiting") or {}).get("reason", "") for one in status["containerStatuses"]}
    assert found["unmapped"] in ("ErrImagePull", "ImagePullBackOff")
    assert found["absent"] in ("RunContainerError", "CrashLoopBackOff")
    assert found["nowhere"] in ("RunContainerError", "CrashLoopBackOff")
    assert {name: found[name] for name in ("never", "malformed", "unset", "root", "fine")} == {
        "never": "ErrImageNeverPull",
        "malformed": "InvalidImageName",
        "unset": "CreateContainerConfigError",
        "root": "CreateContainerConfigError",
        "fine": "",
    }
    last = {one["name"]: (one["lastState"].get("terminated") or {}) for one in status["containerStatuses"]}
    assert (last["absent"]["reason"], last["absent"]["exitCode"]) == ("StartError", 128)


async def test_a_volume_that_cannot_be_mounted_keeps_the_pod_from_starting(client: Client) -> None:
    volumes = [{"name": "none", "configMap": {"name": "none"}}]
    await client.create(shell_pod("unmounted", "sleep 1000", volumes=volumes))

    async def failed() -> bool:
        text = 'MountVolume.SetUp failed for volume "none" : configmap "none" not found'
        return (await reasons(client, "unmounted")).get("FailedMount") == text

    await until(failed, timeout=20)
    assert (await client.get(Pod, "unmounted")).status.phase == "Pending"
    await client.create(ConfigMap(metadata=ObjectMeta(name="none")))
    await wait(client, "unmounted", is_ready)


async def listen_on_a_node_port() -> tuple[asyncio.Server, int]:
    """Listen on a port of the range for NodePorts that no program of this machine uses, the highest one first."""
    for port in range(32767, 29999, -1):
        with contextlib.suppress(OSError):
            return await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port), port
    raise RuntimeError("all NodePorts of this machine are in use")


async def test_a_node_port_that_is_taken_is_an_event_of_the_service(client: Client) -> None:
    server, port = await listen_on_a_node_port()
    async with server:
        spec = {"type": "NodePort", "selector": {"app": "x"}, "ports": [{"port": 1, "nodePort": port}]}
        await client.create(Service.from_dict({"metadata": {"name": "taken"}, "spec": spec}))

        async def reported() -> bool:
            return f"cannot listen on 127.0.0.1:{port}" in (await reasons(client, "taken")).get("FailedToListen", "")

        await until(reported, timeout=20)


async def test_a_host_port_leads_to_its_pod_and_the_next_pod_with_it_is_rejected(client: Client) -> None:
    server, port = await listen_on_a_node_port()
    server.close()
    await server.wait_closed()

    async def create(name: str, protocol: str = "TCP") -> None:
        container = {"name": "web", "image": "web", "ports": [{"containerPort": 8080, "hostPort": port, "protocol": protocol}]}
        spec = {"nodeName": "kubeloop-node", "terminationGracePeriodSeconds": 0, "containers": [container]}
        await client.create(Pod.from_dict({"metadata": {"name": name}, "spec": spec}))

    for name, protocol in (("first", "TCP"), ("udp", "UDP")):
        await create(name, protocol)
        await wait(client, name, is_ready)
    await create("second")
    status = await wait(client, "second", ended)
    message = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "NodePorts", f"Pod was rejected: {message}")

    async def has_event(name: str, reason: str, text: str) -> bool:
        return text in (await reasons(client, name)).get(reason, "")

    await until(lambda: has_event("second", "NodePorts", message), timeout=20)

    async def reported() -> bool:
        return await has_event("udp", "FailedToListen", f"cannot listen on 127.0.0.1:{port}: process pods have no host ports of UDP")

    await until(lambda: asyncio.to_thread(get, f"http://127.0.0.1:{port}/"), timeout=20)
    assert await asyncio.to_thread(get, f"http://127.0.0.1:{port}/") == "first"
    await until(reported, timeout=20)


async def test_an_image_or_a_secret_that_is_missing_is_an_event_of_each_attempt(client: Client) -> None:
    containers: list[dict[str, Any]] = [
        {"name": "unmapped", "image": "unmapped"},
        {"name": "unset", "image": "idle", "envFrom": [{"secretRef": {"name": "none"}}]},
    ]
    spec = {"terminationGracePeriodSeconds": 0, "containers": containers}
    await client.create(Pod.from_dict({"metadata": {"name": "retried"}, "spec": spec}))

    async def counts() -> dict[str, int]:
        return {one.message or "": one.count or 0 async for one in client.list(Event) if one.involved_object.name == "retried"}

    async def repeated() -> bool:
        found = await counts()
        return found.get("Error: ImagePullBackOff", 0) >= 1 and found.get('Error: secret "none" not found', 0) >= 2

    await until(repeated, timeout=25)
    found = await counts()
    assert found["Error: ErrImagePull"] >= 1
    assert found['Back-off pulling image "unmapped"'] >= 1
    assert found['Error: secret "none" not found'] <= 4, "an attempt each 10 s, not with each change of the status"


@pytest.mark.parametrize("path", ["/pods", "/exec/default/web/web?command=id", "/containerLogs/default/web/web", "/stats/summary"])
async def test_the_endpoint_of_a_node_refuses_strangers(client: Client, path: str) -> None:
    node = await client.get(Node, "kubeloop-node")
    port = node.to_dict()["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]

    def status() -> int:
        context = ssl._create_unverified_context()
        try:
            with urllib.request.urlopen(f"https://127.0.0.1:{port}{path}", context=context, timeout=5) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    assert await asyncio.to_thread(status) == 401
