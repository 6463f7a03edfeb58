"""Texts for the person at the keyboard: one line for an object, its parts in full, and never a secret."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.api.apps.v1 import Deployment, DeploymentSpec, DeploymentStatus
from kubeloop.api.authentication.v1 import TokenRequest, TokenRequestStatus, TokenReview, TokenReviewSpec
from kubeloop.api.core.v1 import (
    ConfigMap,
    Container,
    Event,
    Namespace,
    NamespaceStatus,
    Node,
    NodeCondition,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    Secret,
    Service,
    ServiceSpec,
)
from kubeloop.client import Event as WatchEvent
from kubeloop.client import ObjectList
from kubeloop.codec import decode
from kubeloop.meta import Model, ObjectMeta, PartialObject, Resource, Unstructured

NAMED = ObjectMeta(name="web-0", namespace="shop")
NOW = datetime(2026, 11, 21, 19, 0, tzinfo=UTC)
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def tree(kind: str, **rest: Any) -> Unstructured:
    return Unstructured.from_dict({"apiVersion": "v1", "kind": kind, "metadata": {"name": "web-0", "namespace": "shop"}, **rest})


OBJECTS: list[Any] = [
    pytest.param(Pod(), "Pod(unnamed)", id="an object without a name"),
    pytest.param(Pod(metadata=ObjectMeta(generate_name="web-")), "Pod(web-*)", id="a name that the server will give"),
    pytest.param(
        Pod(metadata=NAMED, spec=PodSpec(node_name="node-7"), status=PodStatus(phase="Running")),
        "Pod(shop/web-0, Running, node-7)",
        id="a pod: its phase and its node",
    ),
    pytest.param(
        tree("Pod", spec={"nodeName": "node-7"}, status={"phase": "Running"}),
        "Pod(shop/web-0, Running, node-7)",
        id="the same as a tree",
    ),
    pytest.param(
        Pod(metadata=ObjectMeta(name="a", deletion_timestamp=NOW), status=PodStatus(phase="Running")),
        "Pod(a, Terminating, Running)",
        id="an object that is being deleted",
    ),
    pytest.param(
        Deployment(metadata=NAMED, spec=DeploymentSpec(replicas=3), status=DeploymentStatus(ready_replicas=2)),
        "Deployment(shop/web-0, 2/3 ready)",
        id="replicas",
    ),
    pytest.param(
        Node(metadata=ObjectMeta(name="n"), status=NodeStatus(conditions=[NodeCondition(type="Ready", status="False")])),
        "Node(n, not Ready)",
        id="a condition that sums it up",
    ),
    pytest.param(Namespace(metadata=ObjectMeta(name="n"), status=NamespaceStatus(phase="Active")), "Namespace(n, Active)", id="a phase"),
    pytest.param(
        Service(metadata=NAMED, spec=ServiceSpec(type="NodePort", cluster_ip="10.0.0.1")),
        "Service(shop/web-0, 10.0.0.1, NodePort)",
        id="a service's address",
    ),
    pytest.param(
        Event(metadata=NAMED, reason="Failed", message="no such image"),
        "Event(shop/web-0, Failed: no such image)",
        id="what an event says",
    ),
    pytest.param(
        ConfigMap(metadata=NAMED, data={str(n): "x" for n in range(7)}),
        "ConfigMap(shop/web-0, keys: 0, 1, 2, 3, 4 and 2 more)",
        id="names of keys",
    ),
    pytest.param(
        Secret(metadata=NAMED, type="Opaque", data={"password": b"hunter2"}, string_data={"user": "hunter2"}),
        "Secret(shop/web-0, Opaque, keys: password, user)",
        id="a secret: names of keys, no data",
    ),
    pytest.param(
        tree("Secret", data={"password": "aHVudGVyMg=="}), "Secret(shop/web-0, keys: password)", id="a secret as a tree: no data either"
    ),
    pytest.param(tree("Odd", status="x", spec=[1], data=3), "Odd(shop/web-0)", id="a tree of another form than usual"),
    pytest.param(PartialObject(metadata=NAMED), "PartialObject(shop/web-0)", id="metadata only"),
    pytest.param(
        WatchEvent("ADDED", Secret(metadata=NAMED, data={"a": b"hunter2"})),
        "Event(type='ADDED', object=Secret(shop/web-0, keys: a))",
        id="within an event",
    ),
    pytest.param(ObjectList([Secret(metadata=NAMED, data={"a": b"hunter2"})]), "[Secret(shop/web-0, keys: a)]", id="within a list"),
    pytest.param(
        ObjectList([Pod(metadata=ObjectMeta(name="a"))] * 12),
        "[" + "Pod(a), " * 10 + "and 2 more]",
        id="a long list",
    ),
]

PARTS: list[Any] = [
    pytest.param(PodSpec(), "PodSpec()", id="nothing set"),
    pytest.param(
        PodSpec(containers=[Container(name="web", image="nginx")], node_name="n"),
        "PodSpec(containers=[Container(image='nginx', name='web')], node_name='n')",
        id="what says nothing is left out",
    ),
    pytest.param(PodSpec(host_network=False), "PodSpec(host_network=False)", id="a falsehood that was said is shown"),
    pytest.param(
        ObjectMeta(name="a", creation_timestamp=NOW),
        "ObjectMeta(name='a', creation_timestamp=2026-11-21T19:00:00Z)",
        id="a time as Kubernetes writes it",
    ),
    pytest.param(
        ObjectMeta(annotations={LAST_APPLIED: '{"data": "hunter2"}', "x": "y"}),
        f"ObjectMeta(annotations={{'{LAST_APPLIED}': <19 characters>, 'x': 'y'}})",
        id="an annotation that holds the whole object with its secrets",
    ),
    pytest.param(TokenRequestStatus(token="hunter2"), "TokenRequestStatus(token=<secret>)", id="a token"),
    pytest.param(TokenReviewSpec(token="hunter2"), "TokenReviewSpec(token=<secret>)", id="another one"),
    pytest.param(ObjectMeta(labels={"a": "x" * 300}), "ObjectMeta(labels={'a': '" + "x" * 199 + "…'})", id="a long text is cut"),
]


@pytest.mark.parametrize(("value", "expected"), [*OBJECTS, *PARTS])
def test_repr(value: object, expected: str) -> None:
    assert repr(value) == expected
    assert "hunter2" not in repr(value)


def test_tokens_within_objects_are_not_shown() -> None:
    for value in (TokenRequest(status=TokenRequestStatus(token="hunter2")), TokenReview(spec=TokenReviewSpec(token="hunter2"))):
        assert "hunter2" not in repr(value) + repr([value]) + repr(value.status) + repr(value.spec)


def test_managed_fields_are_counted() -> None:
    document = b'{"metadata":{"name":"a","managedFields":[{"manager":"m","fieldsV1":{"f:x":{}}}]}}'
    metadata = decode(Pod, document).metadata
    assert repr(metadata) == "ObjectMeta(name='a', managed_fields=<1 entries>)"
    assert repr(metadata.managed_fields[0]) == "ManagedFieldsEntry(manager='m', fields_v1=<10 bytes>)"


class Printer:
    """As IPython's pretty printer, with lines of one word."""

    def __init__(self) -> None:
        self.out = ""

    def text(self, text: str) -> None:
        self.out += text

    def breakable(self) -> None:
        self.out += "\n"

    def group(self, indent: int, opened: str, closed: str) -> Any:
        import contextlib

        @contextlib.contextmanager
        def inside() -> Any:
            self.out += opened
            yield
            self.out += closed

        return inside()

    def pretty(self, value: object) -> None:
        if isinstance(value, list):
            for one in value:
                self.pretty(one)
        else:
            assert isinstance(value, Model)
            value._repr_pretty_(self, False)


PRETTY: list[Any] = [
    pytest.param(
        PodSpec(containers=[Container(name="web", image="nginx")], node_name="n"),
        "PodSpec(containers=Container(image='nginx',\nname='web'),\nnode_name='n')",
        id="a part: a line for each field",
    ),
    pytest.param(Pod(metadata=NAMED), "Pod(shop/web-0)", id="an object: its line"),
    pytest.param(TokenRequestStatus(token="hunter2"), "TokenRequestStatus(token=<secret>)", id="no secret"),
]


@pytest.mark.parametrize(("value", "expected"), PRETTY)
def test_ipython_shows(value: Model, expected: str) -> None:
    printer = Printer()
    value._repr_pretty_(printer, False)
    assert printer.out == expected


def test_a_list_is_a_table_in_a_notebook() -> None:
    made = ObjectList([Pod(metadata=ObjectMeta(name="<a>", namespace="shop", creation_timestamp=NOW), status=PodStatus(phase="Running"))])
    html = made._repr_html_()
    assert "<caption>Pod: 1</caption>" in html
    assert "<td>shop</td><td>&lt;a&gt;</td><td>Running</td><td>" in html
    assert "no objects" in ObjectList[Pod]()._repr_html_()
    assert "and 1 more" in ObjectList([Pod()] * 101)._repr_html_()


def test_all_kinds_show_themselves() -> None:
    import kubeloop.api.core.v1 as module

    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Resource) and value is not Resource:
            assert repr(value(metadata=NAMED)).startswith(f"{value.__name__}(shop/web-0")
