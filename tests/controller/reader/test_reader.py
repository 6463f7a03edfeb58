"""Reads of a reconcile from memory; a read of uncached objects is an error with a hint (behaviours S223-S226)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kubeloop.api.core.v1 import ConfigMap, Namespace, Node, Secret, ServiceAccount
from kubeloop.cache import OutsideScope, UnreadPath
from kubeloop.client import Client
from kubeloop.controller import CacheReader, DeclarationError, KeyController, Manager, Owns, WatchedKind, to_same_name
from kubeloop.controller.reader.reader import CacheScope, KindCacheScope
from kubeloop.meta import KubeloopError, ObjectKey, ObjectMeta
from kubeloop.testing import HandlerServer

pytestmark = pytest.mark.embedded


class Reads(
    KeyController[ConfigMap],
    reads=[Node, Secret],
    owns=[Owns(ServiceAccount, metadata_only=True)],
    watches=[WatchedKind(Namespace, to=to_same_name, paths=("status.phase",))],
    indexes={Node: {"pool": "spec.podCIDR", "provider": "spec.providerID"}},
    name="reads",
):
    async def reconcile(self, key: ObjectKey) -> None: ...


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with HandlerServer() as server:
        yield server.client()


@pytest.fixture
async def controller(client: Client) -> AsyncIterator[Reads]:
    await client.create(Namespace(metadata=ObjectMeta(name="shop")))
    for namespace in ("shop", "default"):
        await client.create(ConfigMap(metadata=ObjectMeta(name="c", namespace=namespace), data={"in": namespace}))
    for name, cidr in (("n1", "10.0.0.0/24"), ("n2", "10.0.0.0/24"), ("n3", "10.0.3.0/24")):
        node = Node(metadata=ObjectMeta(name=name))
        node.spec.pod_cidr, node.spec.provider_id = cidr, f"of-{name}"
        await client.create(node)
    await client.create(Secret(metadata=ObjectMeta(name="s", namespace="shop", labels={"team": "web"})))
    await client.create(Secret(metadata=ObjectMeta(name="other", namespace="shop")))
    await client.create(ServiceAccount(metadata=ObjectMeta(name="a", namespace="shop")))
    found = Reads()
    scope = CacheScope(namespaces="shop", kinds={Secret: KindCacheScope(label_selector="team=web", field_selector="type=Opaque")})
    async with Manager(client, [found], scope=scope):
        yield found


def test_a_cached_object_is_read_and_is_the_callers_own(controller: Reads) -> None:
    """S223."""
    first = controller.cached.get(ConfigMap, "c", "shop")
    assert first is not None
    first.data["in"] = "changed"
    second = controller.cached.get(ConfigMap, "c", "shop")
    assert second is not None
    assert second.data == {"in": "shop"}
    assert controller.cached.by_key(ConfigMap, ObjectKey("", "shop", "none")) is None
    assert [one.metadata.name for one in controller.cached.list(Secret, "shop")] == ["s"]
    assert controller.cached.list(Secret, label_selector="team=web,tier=db") == []


def test_several_fields_are_anded_also_of_a_cluster_scoped_kind(controller: Reads) -> None:
    """S226."""
    alike = controller.cached.heads(Node, field_selector={"spec.podCIDR": "10.0.0.0/24"})
    assert sorted(head.name for head in alike) == ["n1", "n2"]
    (one,) = controller.cached.list(Node, field_selector={"spec.podCIDR": "10.0.0.0/24", "spec.providerID": "of-n2"})
    assert one.metadata.name == "n2"


def test_of_a_kind_of_which_only_metadata_is_kept_metadata_is_read(controller: Reads) -> None:
    found = controller.metadata_lister(ServiceAccount).get("a", "shop")
    assert found is not None
    assert found.metadata.name == "a"
    assert [head.name for head in controller.cached.heads(ServiceAccount)] == ["a"]


@pytest.mark.parametrize(
    ("read", "error", "message"),
    [
        pytest.param(
            lambda cached: cached.get(ConfigMap, "c", "default"),
            OutsideScope,
            'only, not of "default"',
            id="S224: a namespace that is not held",
        ),
        pytest.param(
            lambda cached: cached.list(ConfigMap, "default"),
            OutsideScope,
            'only, not of "default"',
            id="S224: a list of a namespace that is not",
        ),
        pytest.param(
            lambda cached: cached.get(Reads, "c"),
            DeclarationError,
            r"Reads has no informer for Reads; name it in owns=\[...\], watches=\[...\] or reads=\[Reads\]",
            id="S224: a kind that is not held",
        ),
        pytest.param(
            lambda cached: cached.list(Secret, label_selector="team=db"),
            OutsideScope,
            'Reads: the cache holds Secret objects with labels "team=web" only, and labels "team=db" may select others; '
            r"query less, widen the manager's scope .CacheScope.kinds=.Secret: KindCacheScope.*query the server: client.list.Secret",
            id="S224: labels that are not held",
        ),
        pytest.param(
            lambda cached: cached.heads(Secret, label_selector="a=b"), OutsideScope, "may select others", id="S224: other labels, of heads"
        ),
        pytest.param(
            lambda cached: cached.list(Secret, field_selector={"type": "kubernetes.io/tls"}),
            OutsideScope,
            'holds Secret objects with fields "type=Opaque" only',
            id="S224: fields that are not held",
        ),
        pytest.param(
            lambda cached: cached.get(ServiceAccount, "a", "shop"),
            DeclarationError,
            r"Reads keeps only the metadata of ServiceAccount objects; read it with metadata_lister\(ServiceAccount\)",
            id="S224: the whole of which only metadata is kept",
        ),
        pytest.param(
            lambda cached: cached.metadata_lister(Node),
            DeclarationError,
            r"keeps Node objects in full; read them with lister\(Node\)",
            id="metadata of objects that are kept in full",
        ),
        pytest.param(
            lambda cached: cached.list(Node, field_selector={"spec.other": "x"}), UnreadPath, "spec.other", id="a field that is not read"
        ),
    ],
)
def test_a_read_of_an_uncached_object(
    controller: Reads, read: Callable[[CacheReader], Any], error: type[KubeloopError], message: str
) -> None:
    with pytest.raises(error, match=message):
        read(controller.cached)


def test_what_can_be_read_is_known(controller: Reads) -> None:
    assert set(controller.cached.kinds) == {ConfigMap, Node, Secret, ServiceAccount, Namespace}
