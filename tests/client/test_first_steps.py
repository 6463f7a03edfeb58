"""The first things that a user does with a client; numbers are rows of the reference table of what users of client-go try."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from kubeloop.api import find
from kubeloop.api.batch.v1 import Job
from kubeloop.api.core.v1 import Container, Node, Pod, PodSpec
from kubeloop.client import Client
from kubeloop.codec import decode, encode, read_yaml, to_dict, write_yaml
from kubeloop.meta import DeadlineError, GroupVersionKind, NotFound, ObjectMeta, Resource, Scheme, UnknownKind, custom_resource, kind_info
from kubeloop.transport import Transport
from tests.faults import SILENCE, FaultServer
from tests.kubectl.runner import Kubectl
from tests.servers import ServerUnderTest

JOB = GroupVersionKind("batch", "v1", "Job")


@custom_resource("first.example.com/v1", plural="steps")
class Step(Resource):
    size: int = 0


@pytest.mark.server
async def test_61_core_and_named_groups_have_their_own_paths(client: Client, namespace: str) -> None:
    assert (await client.mapping(Job)).path(namespace, "a") == f"/apis/batch/v1/namespaces/{namespace}/jobs/a"
    assert (await client.mapping(Pod)).path(namespace, "a") == f"/api/v1/namespaces/{namespace}/pods/a"
    with pytest.raises(NotFound):
        await client.get(Job, "a")


def test_62_a_scheme_answers_in_both_directions_and_refuses_what_it_does_not_know() -> None:
    scheme = Scheme(finders=[find])
    assert scheme.class_of(JOB) is Job
    assert kind_info(Job).gvk == JOB
    assert (JOB in scheme, GroupVersionKind("batch", "v1", "Jab") in scheme) == (True, False)
    with pytest.raises(UnknownKind, match="no class is known for batch/v1, Kind=Jab"):
        scheme.class_of(GroupVersionKind("batch", "v1", "Jab"))


@pytest.mark.server
async def test_63_each_node_has_a_name_an_architecture_and_a_system(client: Client, namespace: str) -> None:
    await client.create(Node(metadata=ObjectMeta(name=namespace)))
    try:
        info = {"architecture": "arm64", "operatingSystem": "linux"}
        await client.patch(Node, namespace, {"status": {"nodeInfo": info}}, subresource="status")
        lines = [
            f"{node.metadata.name} {node.status.node_info.architecture} {node.status.node_info.operating_system}"
            async for node in client.list(Node)
        ]
        assert f"{namespace} arm64 linux" in lines
    finally:
        await client.delete(Node, namespace)


@pytest.mark.server
async def test_64_a_pod_that_was_created_is_there_for_everybody(
    client: Client, namespace: str, server: ServerUnderTest, tmp_path: Path
) -> None:
    spec = PodSpec(scheduler_name="absent", containers=[Container(name="c", image="nginx")])
    await client.create(Pod(metadata=ObjectMeta(name="my-pod"), spec=spec))
    kubectl = Kubectl(Path(server.kubeconfig), tmp_path, namespace)
    assert await asyncio.to_thread(kubectl, "get", "pod", "my-pod", "-o", "name") == "pod/my-pod\n"


async def test_65_a_timeout_ends_a_request_without_an_answer() -> None:
    async with FaultServer(SILENCE) as server, Client(Transport(server.config())) as client:
        with pytest.raises(DeadlineError, match=r"no answer within 0\.05 s .get pods"):
            await client.transport.request("GET", "/api/v1/namespaces/default/pods/a", timeout=0.05)


def read(text: str | bytes, scheme: Scheme) -> Resource:
    """One object of whichever class the scheme has for its kind."""
    [tree] = read_yaml(text)
    return decode(scheme.class_of(GroupVersionKind.from_api_version(tree["apiVersion"], tree["kind"])), msgspec.json.encode(tree))


def test_66_objects_come_back_from_json_and_yaml_as_they_were() -> None:
    container = Container(name="c", command=["sh", "-c", "yes: no"])
    pod = Pod(metadata=ObjectMeta(name="p", labels={"a": "1"}), spec=PodSpec(containers=[container]))
    scheme = Scheme(finders=[find])
    assert encode(pod).startswith(b'{"apiVersion":"v1","kind":"Pod"')
    assert read(encode(pod), scheme) == pod
    assert read(write_yaml(to_dict(pod)), scheme) == pod


def test_67_a_kind_of_ones_own_is_decoded_to_its_class() -> None:
    scheme = Scheme([Step], finders=[find])
    step = read("apiVersion: first.example.com/v1\nkind: Step\nmetadata: {name: a}\nsize: 3\n", scheme)
    assert isinstance(step, Step)
    assert (step.metadata.name, step.size) == ("a", 3)
