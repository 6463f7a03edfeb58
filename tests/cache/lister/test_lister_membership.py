"""Whether an informer would be sent an object, judged from its document: as the server judges."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubeloop.api.core.v1 import Namespace, Pod, Secret
from kubeloop.cache.lister.readers import DocumentSelector
from kubeloop.client import Client
from kubeloop.codec import encode
from kubeloop.meta import ObjectMeta

DOCUMENT: dict[str, Any] = {
    "kind": "Thing",
    "apiVersion": "example.com/v1",
    "metadata": {"name": "a", "namespace": "ns", "labels": {"app": "web", "empty": ""}},
    "spec": {"size": 3, "on": True, "off": False, "list": [1], "text": "x,y"},
    "status": {},
}


@pytest.mark.parametrize(
    ("labels", "fields", "expected"),
    [
        pytest.param(None, None, True, id="no selector selects all"),
        pytest.param("app=web", None, True, id="a label"),
        pytest.param("app=db", None, False, id="another label"),
        pytest.param("empty=", None, True, id="an empty label"),
        pytest.param(None, "metadata.name=a", True, id="the name"),
        pytest.param(None, "spec.size=3", True, id="a number, as text"),
        pytest.param(None, "spec.on=true,spec.off=false", True, id="booleans, as text"),
        pytest.param(None, "spec.text=x\\,y", True, id="a value with a comma"),
        pytest.param(None, "spec.absent=", True, id="absent is empty"),
        pytest.param(None, "spec.absent!=x", True, id="absent is not something else"),
        pytest.param(None, "spec.unschedulable=false", True, id="absent is false where the server says so"),
        pytest.param(None, "spec.list=1", None, id="a list: only the server can tell"),
        pytest.param(None, "source=kubelet", None, id="a computed field: only the server can tell"),
        pytest.param(None, "regarding.name=a", None, id="a field of another version of the kind: only the server can tell"),
        pytest.param(None, "source=kubelet,metadata.name=b", False, id="one term that does not hold is enough"),
        pytest.param("app=db", "source=kubelet", False, id="labels that do not match are enough"),
    ],
)
def test_a_document_is_selected(labels: str | None, fields: str | None, expected: bool | None) -> None:
    assert DocumentSelector(labels, fields).of(msgspec.json.encode(DOCUMENT)) is expected


def test_labels_that_are_null_are_none() -> None:
    document = {**DOCUMENT, "metadata": {"name": "a", "labels": None}}
    assert DocumentSelector("!app", None).of(msgspec.json.encode(document)) is True


PODS = ["spec.nodeName=n1", "spec.nodeName=", "spec.restartPolicy=Always", "spec.schedulerName=default-scheduler", "spec.hostNetwork=false"]
SELECTORS = [
    *[(Pod, selector) for selector in [*PODS, "spec.serviceAccountName=default", "status.phase=Pending", "status.nominatedNodeName="]],
    *[(Secret, selector) for selector in ("type=Opaque", "type=kubernetes.io/tls", "metadata.name=s")],
    *[(Namespace, selector) for selector in ("status.phase=Active", "status.phase=Terminating")],
]


@pytest.mark.server
async def test_the_server_selects_the_same_objects(client: Client, namespace: str) -> None:
    spec = {"containers": [{"name": "c", "image": "x"}]}
    for name, more in (("bound", {"nodeName": "n1"}), ("free", {"schedulingGates": [{"name": "example.com/wait"}]})):
        await client.create(msgspec.convert({"metadata": {"name": name}, "spec": {**spec, **more}}, Pod))
    await client.create(Secret(metadata=ObjectMeta(name="s")))
    for kind, selector in SELECTORS:
        where, own = (None, {namespace}) if kind is Namespace else (namespace, {"bound", "free", "s"})
        everything: list[Any] = await client.list(kind, namespace=where)
        selected: list[Any] = await client.list(kind, namespace=where, field_selector=selector)
        membership = DocumentSelector(None, selector)
        judged = {each.metadata.name for each in everything if membership.of(encode(each))}
        assert judged & own == {each.metadata.name for each in selected} & own, selector
