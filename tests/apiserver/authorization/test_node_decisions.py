"""What the node authorizer allows a kubelet, request by request. Source: the plug-in of Kubernetes 1.36, node_authorizer.go."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubeloop.apiserver.authorization.node import NodeAuthorizer
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.storage import MemoryStorage
from kubeloop.apiserver.storage.watch_cache import WatchCache
from kubeloop.endpoints.access import Access, Decision, Rules, User
from kubeloop.meta.selectors import FieldOperator, FieldTerm

NODE = User("system:node:n1", ("system:nodes",))
MINE, OTHER = FieldTerm("spec.nodeName", FieldOperator.EQUALS, "n1"), FieldTerm("spec.nodeName", FieldOperator.EQUALS, "n2")
NOT_MINE = FieldTerm("spec.nodeName", FieldOperator.NOT_EQUALS, "n1")
NAMED = FieldTerm("metadata.name", FieldOperator.EQUALS, "n1")

UNRELATED = "no relationship found between node 'n1' and this object"
ONLY_GET = "can only get individual resources of this type"
POD_LIST = "can only list/watch pods with spec.nodeName field selector"
SLICE_LIST = "can only list/watch/deletecollection resourceslices with nodeName field selector"
SLICE_VERBS = "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection"

POD: dict[str, Any] = {
    "metadata": {"namespace": "shop", "name": "p"},
    "spec": {
        "nodeName": "n1",
        "serviceAccountName": "robot",
        "volumes": [{"name": "s", "secret": {"secretName": "s"}}, {"name": "c", "persistentVolumeClaim": {"claimName": "c"}}],
        "resourceClaims": [{"name": "d", "resourceClaimName": "d"}],
    },
}
STORED: dict[str, dict[str, Any]] = {
    "core/pods/shop/p": POD,
    "core/persistentvolumes/v": {"metadata": {"name": "v"}, "spec": {"claimRef": {"namespace": "shop", "name": "c"}}},
    "storage.k8s.io/volumeattachments/a": {"metadata": {"name": "a"}, "spec": {"nodeName": "n1"}},
    "resource.k8s.io/resourceslices/s": {"metadata": {"name": "s"}, "spec": {"nodeName": "n1"}},
}


@pytest.fixture
async def authorizer() -> AsyncIterator[NodeAuthorizer]:
    """The authorizer of a server where the pod ``p`` runs on node ``n1``."""
    storage = MemoryStorage()
    for key, obj in STORED.items():
        await storage.write(f"/registry/{key}", json.dumps(obj).encode(), expected=0)
    cache = WatchCache(storage)
    await cache.start()
    made = NodeAuthorizer(Objects(storage), cache)
    await made.prepare(NODE)
    yield made
    await cache.stop()


def ask(request: str, *fields: FieldTerm, user: User = NODE) -> Access:
    """The request of a text: verb, resource (GROUP:RESOURCE/SUBRESOURCE), and object (NAMESPACE/NAME) if there is one."""
    verb, resource, *rest = request.split()
    group, _, resource = resource.rpartition(":")
    resource, _, subresource = resource.partition("/")
    namespace, _, name = rest[0].rpartition("/") if rest else ("", "", "")
    return Access(user, verb, group, "v1", resource, subresource, namespace, name, fields=fields)


ALLOWED: list[tuple[str, tuple[FieldTerm, ...]]] = [
    ("get secrets shop/s", ()),
    ("list secrets shop/s", ()),
    ("watch secrets shop/s", ()),
    ("get persistentvolumeclaims shop/c", ()),
    ("update persistentvolumeclaims/status shop/c", ()),
    ("patch persistentvolumeclaims/status shop/c", ()),
    ("get persistentvolumes v", ()),
    ("get resource.k8s.io:resourceclaims shop/d", ()),
    ("get storage.k8s.io:volumeattachments a", ()),
    ("get serviceaccounts shop/robot", ()),
    ("create serviceaccounts/token shop/robot", ()),
    *((f"{verb} coordination.k8s.io:leases kube-node-lease/n1", ()) for verb in ("get", "update", "patch", "delete")),
    ("create coordination.k8s.io:leases kube-node-lease/", ()),
    *((f"{verb} storage.k8s.io:csinodes n1", ()) for verb in ("get", "update", "patch", "delete")),
    ("create storage.k8s.io:csinodes", ()),
    ("create resource.k8s.io:resourceslices", ()),
    *((f"{verb} resource.k8s.io:resourceslices s", ()) for verb in ("get", "update", "patch", "delete")),
    *((f"{verb} resource.k8s.io:resourceslices", (MINE,)) for verb in ("list", "watch", "deletecollection")),
    *((f"{verb} nodes", ()) for verb in ("create", "update", "patch")),
    ("update nodes/status n1", ()),
    ("patch nodes/status n1", ()),
    *((f"{verb} nodes n1", ()) for verb in ("get", "list", "watch")),
    ("get pods shop/p", ()),
    ("list pods", (MINE,)),
    ("list pods", (NAMED, MINE)),
    ("watch pods shop/p", ()),
    ("create pods shop/", ()),
    ("delete pods shop/q", ()),
    ("update pods/status shop/q", ()),
    ("patch pods/status shop/q", ()),
    ("create pods/eviction shop/q", ()),
    ("create events shop/", ()),
    ("list services", ()),
]


@pytest.mark.parametrize(
    ("request_text", "fields"), [pytest.param(*each, id=each[0] + "".join(f" {one}" for one in each[1])) for each in ALLOWED]
)
async def test_a_node_may(authorizer: NodeAuthorizer, request_text: str, fields: tuple[FieldTerm, ...]) -> None:
    assert authorizer.authorize(ask(request_text, *fields)) == Decision(True)


REFUSED: list[tuple[str, tuple[FieldTerm, ...], str]] = [
    ("get secrets shop/other", (), UNRELATED),
    ("get secrets else/s", (), UNRELATED),
    ("get secrets s", (), "can only read namespaced object of this type"),
    ("list secrets shop/", (), "No Object name found"),
    ("delete secrets shop/s", (), "can only read resources of this type"),
    ("get secrets/x shop/s", (), "cannot read subresource"),
    ("get configmaps shop/s", (), UNRELATED),
    ("list persistentvolumeclaims shop/c", (), ONLY_GET),
    ("update persistentvolumeclaims shop/c", (), ONLY_GET),
    ("get persistentvolumeclaims/status shop/c", (), "can only get/update/patch this type"),
    ("update persistentvolumeclaims/status shop/other", (), UNRELATED),
    ("get persistentvolumes other", (), UNRELATED),
    ("get persistentvolumes/status v", (), "cannot get subresource"),
    ("get resource.k8s.io:resourceclaims shop/other", (), UNRELATED),
    ("get storage.k8s.io:volumeattachments other", (), UNRELATED),
    ("get serviceaccounts shop/other", (), UNRELATED),
    ("list serviceaccounts shop/robot", (), "can only create tokens for individual service accounts"),
    ("get serviceaccounts/token shop/robot", (), "can only create tokens for individual service accounts"),
    ("create serviceaccounts/token shop/", (), "can only create tokens for individual service accounts"),
    ("create serviceaccounts shop/robot", (), "can only create token subresource of serviceaccount"),
    ("create serviceaccounts/token shop/other", (), UNRELATED),
    ("list coordination.k8s.io:leases kube-node-lease/n1", (), "can only get, create, update, patch, or delete a node lease"),
    ("create coordination.k8s.io:leases shop/n1", (), 'can only access leases in the "kube-node-lease" system namespace'),
    (
        "get coordination.k8s.io:leases kube-node-lease/n2",
        (),
        "can only access node lease with the same name as the requesting node",
    ),
    ("list storage.k8s.io:csinodes n1", (), "can only get, create, update, patch, or delete a CSINode"),
    ("get storage.k8s.io:csinodes/status n1", (), "cannot authorize CSINode subresources"),
    ("get storage.k8s.io:csinodes n2", (), "can only access CSINode with the same name as the requesting node"),
    ("get resource.k8s.io:resourceslices/status s", (), "cannot authorize ResourceSlice subresources"),
    *((f"{verb} resource.k8s.io:resourceslices other", (), UNRELATED) for verb in ("get", "update", "patch", "delete")),
    *((f"{verb} resource.k8s.io:resourceslices", (), SLICE_LIST) for verb in ("list", "watch", "deletecollection")),
    ("list resource.k8s.io:resourceslices", (OTHER,), SLICE_LIST),
    ("fly resource.k8s.io:resourceslices s", (), SLICE_VERBS),
    ("get nodes n2", (), "node 'n1' cannot read 'n2', only its own Node object"),
    ("list nodes", (), "node 'n1' cannot read all nodes, only its own Node object"),
    ("delete nodes n1", (), ""),
    ("get nodes/proxy n1", (), ""),
    ("get pods shop/q", (), UNRELATED),
    ("list pods", (), POD_LIST),
    ("watch pods", (OTHER,), POD_LIST),
    ("watch pods", (NOT_MINE,), POD_LIST),
    ("list pods", (NAMED,), POD_LIST),
    ("list pods shop/q", (), UNRELATED),
    ("update pods shop/p", (), ""),
    ("get pods/log shop/p", (), ""),
    ("create pods/exec shop/p", (), ""),
    ("create certificates.k8s.io:podcertificaterequests shop/r", (), ""),
    ("delete services shop/s", (), ""),
]


@pytest.mark.parametrize(
    ("request_text", "fields", "reason"), [pytest.param(*each, id=each[0] + "".join(f" {one}" for one in each[1])) for each in REFUSED]
)
async def test_a_node_may_not(authorizer: NodeAuthorizer, request_text: str, fields: tuple[FieldTerm, ...], reason: str) -> None:
    assert authorizer.authorize(ask(request_text, *fields)) == Decision(False, reason=reason)


@pytest.mark.parametrize(
    ("user", "reason"),
    [
        pytest.param(User("system:node:n1"), "", id="a name of a node without its group"),
        pytest.param(User("eve", ("system:nodes",)), "", id="the group of nodes with another name"),
        pytest.param(User("system:node:", ("system:nodes",)), 'unknown node for user "system:node:"', id="a node without a name"),
        pytest.param(User("system:node:n2", ("system:nodes",)), UNRELATED.replace("n1", "n2"), id="another node"),
    ],
)
async def test_the_rights_of_a_node_are_not_those_of(authorizer: NodeAuthorizer, user: User, reason: str) -> None:
    assert authorizer.authorize(ask("get secrets shop/s", user=user)) == Decision(False, reason=reason)


async def test_a_decision_knows_the_writes_before_it(authorizer: NodeAuthorizer) -> None:
    assert not authorizer.authorize(ask("get secrets shop/later")).allowed
    pod = {"metadata": {"namespace": "shop", "name": "q"}, "spec": {"nodeName": "n1", "imagePullSecrets": [{"name": "later"}]}}
    await authorizer._objects.storage.write("/registry/core/pods/shop/q", json.dumps(pod).encode(), expected=0)
    await authorizer.prepare(NODE)
    assert authorizer.authorize(ask("get secrets shop/later")).allowed


async def test_only_for_nodes_it_follows_pods_and_has_no_list_of_rules() -> None:
    storage = MemoryStorage()
    idle = NodeAuthorizer(Objects(storage), WatchCache(storage))  # a cache that was not started would let it wait
    await idle.prepare(User("eve"))
    assert not idle.authorize(ask("get secrets shop/s")).allowed
    assert idle.rules(User("eve"), "shop") == Rules()
    assert idle.rules(NODE, "shop") == Rules(incomplete=True, error="node authorizer does not support user rule resolution")
