"""Permissions that are derived from what controllers declare."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop import Controller, Model, Resource, Unstructured, custom_resource
from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.coordination.v1 import Lease
from kubeloop.api.core.v1 import ConfigMap, Node, Pod, Secret
from kubeloop.controller import KeyController, WatchedKind, to_same_name
from kubeloop.controller.errors import DeclarationError
from kubeloop.controller.permissions import Permission, lease_permissions, permissions_of, rules_of
from kubeloop.meta import ObjectKey, UnknownKind


class BoxStatus(Model):
    size: int = 0


@custom_resource("example.com/v1", plural="boxes")
class Box(Resource):
    status: BoxStatus | None = None


class Boxes(
    Controller[Box],
    owns=[Deployment],
    watches=[WatchedKind(Node, to=to_same_name)],
    reads=[ConfigMap],
    gets=[Lease],
    writes=[Secret],
    status_writes=[Pod],
    name="boxes",
):
    async def reconcile(self, box: Box) -> None: ...


class Reader(KeyController[ConfigMap], name="reader"):
    async def reconcile(self, key: ObjectKey) -> None: ...


def text(permissions: list[Permission]) -> list[str]:
    return [str(one) for one in permissions]


def test_each_declaration_brings_its_verbs() -> None:
    assert text(permissions_of([Boxes()], events=False)) == [
        "get, list, watch on configmaps",
        "get, list, watch on nodes",
        "get, patch, update on pods/status",
        "create, delete, get, patch, update on secrets",
        "create, delete, get, list, patch, update, watch on deployments.apps",
        "get on leases.coordination.k8s.io",
        "get, list, patch, update, watch on boxes.example.com",
        "update on boxes.example.com/finalizers",
        "get, patch, update on boxes.example.com/status",
    ]


def test_verbs_of_several_controllers_on_one_kind_are_one_permission_that_names_both() -> None:
    found = permissions_of([Boxes, Reader], events=False)
    (configs,) = [one for one in found if one.resource == "configmaps"]
    assert (configs.verbs, configs.why, configs.namespaced) == (("get", "list", "patch", "update", "watch"), "boxes, reader", True)
    assert [one.namespaced for one in found if one.resource == "nodes"] == [False]


def test_events_are_recorded_in_both_apis() -> None:
    assert text(permissions_of([Reader])) == [
        "get, list, patch, update, watch on configmaps",
        "create, patch, update on events",
        "create, patch, update on events.events.k8s.io",
    ]


def test_resources_of_a_group_that_need_the_same_share_a_rule() -> None:
    permissions = [Permission("", "pods", ("get",)), Permission("apps", "deployments", ("get",)), Permission("", "nodes", ("get",))]
    assert rules_of(permissions) == [
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
    ]
    assert rules_of(lease_permissions())[0]["resources"] == ["leases"]


def test_a_kind_that_only_a_server_knows_is_refused_with_the_way_out() -> None:
    loose = Unstructured.for_kind("example.com/v1", "Box")

    class Loose(Controller[Pod], reads=[loose], name="loose"):
        async def reconcile(self, pod: Pod) -> None: ...

    with pytest.raises(UnknownKind, match=r'controller "loose": only a server knows .* kubeloop generate models'):
        permissions_of([Loose])


class Applier(
    Controller[Box],
    owns=[Deployment, ConfigMap],
    writes=[Secret],
    write_verbs={Box: [], Deployment: ["create", "patch"], Secret: ["update"]},
    name="applier",
):
    async def reconcile(self, box: Box) -> None: ...


def test_declared_verbs_replace_the_default_ones_of_writes() -> None:
    assert text(permissions_of([Applier], events=False)) == [
        "create, delete, get, list, patch, update, watch on configmaps",
        "get, update on secrets",
        "create, get, list, patch, watch on deployments.apps",
        "get, list, watch on boxes.example.com",
        "update on boxes.example.com/finalizers",
        "get, patch, update on boxes.example.com/status",
    ]


@pytest.mark.parametrize(
    ("verbs", "message"),
    [
        pytest.param({Pod: ["create"]}, "write_verbs names Pod, which it does not write", id="of a kind that it does not write"),
        pytest.param({Box: ["get"]}, "write_verbs of Box must be a list of create, delete, patch, update", id="that do not write"),
        pytest.param({Box: "patch"}, "write_verbs of Box must be a list", id="as a text"),
        pytest.param([Box], "write_verbs must be as", id="without verbs"),
    ],
)
def test_invalid_declarations_of_verbs_are_refused(verbs: Any, message: str) -> None:
    def declare() -> None:
        class Wrong(Controller[Box], write_verbs=verbs):
            async def reconcile(self, box: Box) -> None: ...

        permissions_of([Wrong])

    with pytest.raises(DeclarationError, match=message):
        declare()
