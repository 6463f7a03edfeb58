"""``client.on_write``: which writes of a client are reported to listeners."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import msgspec
import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import ConfigMap, Namespace, NamespaceSpec, Pod
from kubeloop.client import Client, DeleteOptions, Write, WriteOptions
from kubeloop.meta import Conflict, NotFound, ObjectMeta, Unstructured

pytestmark = pytest.mark.server

FINALIZER = "example.com/hold"


class WriteLog:
    def __init__(self, client: Client) -> None:
        self.writes: list[Write] = []
        self.remove = client.on_write(self.writes.append)

    @property
    def last(self) -> Write:
        return self.writes[-1]

    @property
    def lines(self) -> list[str]:
        return [f"{write.verb} {write.name}{' (gone)' if write.gone else ''}" for write in self.writes]


@pytest.fixture
async def write_log(client: Client) -> AsyncIterator[WriteLog]:
    write_log = WriteLog(client)
    yield write_log
    write_log.remove()


def config_map(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name), data=data)


def deployment(name: str) -> Deployment:
    container = {"name": "c", "image": "nginx"}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": template}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, Deployment)


async def test_each_stored_write_is_reported_with_the_document_that_the_server_answered(
    client: Client, write_log: WriteLog, namespace: str
) -> None:
    created = await client.create(config_map("a", x="1"))
    created.data["x"] = "2"
    await client.update(created)
    await client.patch(ConfigMap, "a", {"data": {"x": "3"}})
    assert write_log.lines == ["create a", "update a", "patch a"]
    assert [msgspec.json.decode(write.document or b"")["data"]["x"] for write in write_log.writes] == ["1", "2", "3"]
    write = write_log.last
    stored = (await client.get(ConfigMap, "a")).metadata
    assert (write.namespace, write.name, write.uid, write.resource_version) == (namespace, "a", stored.uid, stored.resource_version)
    assert (write.mapping.gvr.resource, write.mapping.namespaced) == ("configmaps", True)


async def test_a_status_write_is_reported_as_the_whole_object(client: Client, write_log: WriteLog) -> None:
    await client.create(deployment("web"))

    def observe(deployment: Deployment) -> None:
        deployment.status.observed_generation = 7

    await client.update_with_retry(Deployment, "web", observe, subresource="status")  # its controller may write in between
    document = msgspec.json.decode(write_log.last.document or b"")
    assert (write_log.last.verb, document["kind"], document["status"]["observedGeneration"]) == ("update", "Deployment", 7)
    assert document["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx"


async def test_an_answer_that_is_not_the_object_is_not_reported(client: Client, write_log: WriteLog) -> None:
    await client.create(deployment("web"))
    write_log.writes.clear()
    await client.set_scale(Deployment, "web", 0)
    await client.delete_collection(Deployment)
    assert write_log.writes == []


async def test_a_dry_run_is_not_reported(client: Client, write_log: WriteLog) -> None:
    await client.create(config_map("a"))
    write_log.writes.clear()
    dry = WriteOptions(dry_run=True)
    await client.create(config_map("b"), options=dry)
    await client.patch(ConfigMap, "a", {"data": {"x": "3"}}, options=dry)
    await client.update(await client.get(ConfigMap, "a"), options=dry)
    await client.delete(ConfigMap, "a", options=DeleteOptions(dry_run=True))
    assert write_log.writes == []


async def test_a_write_that_is_refused_is_not_reported(client: Client, write_log: WriteLog) -> None:
    old = await client.create(config_map("a"))
    await client.patch(ConfigMap, "a", {"data": {"x": "1"}})
    write_log.writes.clear()
    old.data["x"] = "2"
    with pytest.raises(Conflict):
        await client.update(old)
    with pytest.raises(NotFound):
        await client.delete(ConfigMap, "absent")
    assert write_log.writes == []


async def test_a_deletion_that_is_done_names_the_object_that_is_gone(client: Client, write_log: WriteLog, namespace: str) -> None:
    uid = (await client.create(config_map("a"))).metadata.uid
    await client.delete(ConfigMap, "a")
    write = write_log.last
    assert (write.verb, write.namespace, write.name, write.uid, write.document, write.gone) == ("delete", namespace, "a", uid, None, True)


async def test_a_deletion_that_waits_for_a_finalizer_is_a_change_and_taking_the_finalizer_ends_the_object(
    client: Client, write_log: WriteLog
) -> None:
    held = config_map("a")
    held.metadata.finalizers = [FINALIZER]
    await client.create(held)
    await client.delete(ConfigMap, "a")
    await client.patch(ConfigMap, "a", {"metadata": {"finalizers": None}})
    assert write_log.lines == ["create a", "delete a", "patch a (gone)"]


async def test_a_pod_with_a_grace_period_goes_on_existing_and_one_without_is_gone(client: Client, write_log: WriteLog) -> None:
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "nginx"}]}
    await client.create(msgspec.convert({"metadata": {"name": "a"}, "spec": spec}, Pod))
    await client.delete(Pod, "a", grace_period_seconds=30)
    await client.delete(Pod, "a", grace_period_seconds=0)
    assert write_log.lines == ["create a", "delete a", "delete a (gone)"]


async def test_a_namespace_lives_until_its_spec_has_no_finalizer(client: Client, write_log: WriteLog, namespace: str) -> None:
    name = f"{namespace}-ends"
    # The namespace controller removes its own finalizer at once; the other one holds the namespace until this test has patched it.
    await client.create(Namespace(metadata=ObjectMeta(name=name), spec=NamespaceSpec(finalizers=[FINALIZER])))
    deletion = await client.delete(Namespace, name)
    assert not deletion.gone
    answered = deletion.object
    assert answered is not None
    assert answered.spec.finalizers == [FINALIZER, "kubernetes"]
    assert write_log.lines == [f"create {name}", f"delete {name}"]
    await client.patch(Namespace, name, {"metadata": {"labels": {"seen": "yes"}}})
    assert write_log.lines[2:] == [f"patch {name}"]
    await client.transport.request(
        "PUT", f"/api/v1/namespaces/{name}/finalize", body=b'{"metadata":{"name":"%s"},"spec":{"finalizers":[]}}' % name.encode()
    )


async def test_writes_of_kinds_without_a_class_are_reported_alike(client: Client, write_log: WriteLog, namespace: str) -> None:
    kind = Unstructured.for_kind("v1", "ConfigMap")
    obj = await client.create(kind.from_dict({"metadata": {"name": "a", "namespace": namespace}, "data": {"x": "1"}}))
    obj["data"]["x"] = "2"
    await client.update(obj)
    await client.delete(obj)
    assert write_log.lines == ["create a", "update a", "delete a (gone)"]
    assert write_log.last.mapping.gvr.resource == "configmaps"


async def test_the_failures_of_a_listener_are_logged_with_one_traceback_and_counted_then(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(write: Write) -> None:
        raise RuntimeError(write.name)

    remove = client.on_write(broken)
    with caplog.at_level(logging.ERROR, "kubeloop.client"):
        for name in ("a", "b", "c"):
            await client.create(config_map(name))
        remove()
    records = [record for record in caplog.records if record.getMessage().startswith("a listener failed")]
    assert [bool(record.exc_info) for record in records] == [True, False, False]
    assert records[-1].getMessage().endswith("/c (RuntimeError); it has failed 3 times")


async def test_another_failure_of_a_listener_is_logged_with_its_traceback(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    def broken(write: Write) -> None:
        match write.name:
            case "a":
                raise KeyError(write.name)
            case "d" | "e":
                raise ValueError(write.name)

    remove = client.on_write(broken)
    with caplog.at_level(logging.ERROR, "kubeloop.client"):
        for name in ("a", "b", "c", "d", "e"):
            await client.create(config_map(name))
        remove()
    records = [record for record in caplog.records if record.getMessage().startswith("a listener failed")]
    assert [record.exc_info[0] if record.exc_info else None for record in records] == [KeyError, ValueError, None]
    assert records[1].getMessage().endswith("/d (ValueError); it has failed 2 times")


async def test_a_listener_that_was_removed_gets_nothing_and_an_error_of_a_listener_fails_no_write(
    client: Client, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(write: Write) -> None:
        raise RuntimeError("no")

    heard: list[str] = []
    removals = [client.on_write(broken), client.on_write(lambda write: heard.append(write.name))]
    with caplog.at_level(logging.ERROR, "kubeloop.client"):
        await client.create(config_map("a"))
    assert f"a listener failed on create of ConfigMap {namespace}/a" in caplog.text
    for remove in removals * 2:
        remove()
    await client.create(config_map("b"))
    assert heard == ["a"]
