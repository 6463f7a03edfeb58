"""Owner references: one controller, owners in reach, no doubles (behaviour S230)."""

import pytest

from kubeloop.api.apps.v1 import Deployment, ReplicaSet
from kubeloop.api.core.v1 import ConfigMap, Namespace, Node
from kubeloop.controller.ownership import OwnershipError, controller_of, is_controlled_by, set_controller_reference, set_owner_reference
from kubeloop.meta import ObjectMeta, Resource


def deployment(name: str = "web", uid: str = "u1", namespace: str = "shop") -> Deployment:
    return Deployment(metadata=ObjectMeta(name=name, namespace=namespace, uid=uid))


def replica_set(namespace: str = "shop") -> ReplicaSet:
    return ReplicaSet(metadata=ObjectMeta(name="web-1", namespace=namespace))


def test_the_controller_is_named_by_kind_name_and_uid() -> None:
    owned = replica_set()
    set_controller_reference(deployment(), owned)
    reference = controller_of(owned)
    assert reference is not None
    assert (reference.api_version, reference.kind, reference.name, reference.uid) == ("apps/v1", "Deployment", "web", "u1")
    assert reference.controller
    assert reference.block_owner_deletion
    assert is_controlled_by(owned, deployment())
    assert not is_controlled_by(owned, deployment(uid="u2"))


def test_setting_it_twice_changes_nothing_and_a_recreated_owner_replaces_its_predecessor() -> None:
    owned = replica_set()
    set_controller_reference(deployment(), owned)
    set_controller_reference(deployment(), owned)
    set_controller_reference(deployment(uid="u2"), owned)
    assert [reference.uid for reference in owned.metadata.owner_references] == ["u2"]


def test_a_second_controller_is_refused() -> None:
    owned = replica_set()
    set_controller_reference(deployment(), owned)
    with pytest.raises(
        OwnershipError, match=r"already controlled by Deployment web \(uid u1\); it cannot be controlled by Deployment other"
    ):
        set_controller_reference(deployment("other", "u9"), owned)


@pytest.mark.parametrize(
    ("owner", "owned", "reason"),
    [
        pytest.param(deployment(namespace="bank"), replica_set(), 'in namespace "shop"', id="an owner in another namespace is refused"),
        pytest.param(
            deployment(),
            Node(metadata=ObjectMeta(name="n")),
            "cluster-scoped",
            id="a cluster-scoped object with a namespaced owner is refused",
        ),
        pytest.param(deployment(uid=""), replica_set(), "create it first", id="an owner that does not exist yet is refused"),
    ],
)
def test_refused(owner: Resource, owned: Resource, reason: str) -> None:
    with pytest.raises(OwnershipError, match=reason):
        set_controller_reference(owner, owned)
    assert owned.metadata.owner_references == []


def test_a_cluster_scoped_owner_may_own_anything() -> None:
    owned = ConfigMap(metadata=ObjectMeta(name="c", namespace="shop"))
    set_controller_reference(Namespace(metadata=ObjectMeta(name="shop", uid="n1")), owned)
    assert controller_of(owned) is not None


def test_an_owner_that_is_no_controller_stands_beside_the_controller_and_does_not_take_its_place() -> None:
    owned = replica_set()
    set_controller_reference(deployment(), owned)
    set_owner_reference(deployment("other", "u9"), owned)
    set_owner_reference(deployment(), owned)
    assert [(reference.uid, reference.controller) for reference in owned.metadata.owner_references] == [("u1", True), ("u9", None)]
