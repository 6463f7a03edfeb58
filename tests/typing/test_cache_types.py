"""What a type checker sees of the informer's API. The assertions are the checker's; running them only makes sure that they are reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import assert_type

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import Pod
from kubeloop.cache import (
    ByLabel,
    DeltaFifo,
    EventType,
    Head,
    Informer,
    InformerEvent,
    InformerFactory,
    Lister,
    ObjectStore,
    Owner,
    Registration,
    Sorted,
)
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.meta import ObjectKey, PartialObject, Unstructured


async def informers_are_typed_by_their_kind(client: Client) -> None:
    async with InformerFactory(client, resync=30) as informers:
        pods = informers.for_kind(Pod, namespace="shop", label_selector={"app": "web"}, indexes={"node": "spec.nodeName"})
        assert_type(pods, Informer[Pod])
        assert_type(pods.lister, Lister[Pod])
        assert_type(pods.lister.get("web-0", "shop"), Pod | None)
        assert_type(pods.lister.list(label_selector="app=web"), list[Pod])
        assert_type(pods.lister.by_index("node", "n1"), list[Pod])
        assert_type(pods.lister.heads(), list[Head])
        assert_type(pods.lister.head("web-0", "shop"), Head | None)
        assert_type(informers.for_kind(Deployment, namespace=ALL_NAMESPACES), Informer[Deployment])
        assert_type(informers.for_kind(Pod, fields=["spec.nodeName"], managed_fields=True, namespace=ALL_NAMESPACES), Informer[Pod])
        assert_type(informers.metadata(Pod, namespace=ALL_NAMESPACES).lister.get("web-0", "shop"), PartialObject | None)
        assert_type(pods.lister.unstructured("web-0", "shop"), Unstructured | None)
        assert_type(pods.on_event(added=on_pod, updated=on_pod_later), Registration[Pod])
        assert_type(await informers.wait_synced(), None)


def on_pod(event: InformerEvent[Pod]) -> None:
    assert_type(event.type, EventType)
    assert_type(event.key, ObjectKey)
    assert_type(event.object, Pod)
    assert_type(event.old_object, Pod | None)
    assert_type(event.head.labels, Mapping[str, str])
    assert_type(event.head.owner_references, tuple[Owner, ...])


async def on_pod_later(event: InformerEvent[Pod]) -> None:
    assert_type(event.object.metadata.name, str)


def a_function_that_indexes_gets_the_typed_object(informers: InformerFactory) -> None:
    informers.for_kind(Pod, indexes={"images": lambda pod: [pod.metadata.name]}, namespace=ALL_NAMESPACES)
    informers.for_kind(
        Pod,
        indexes={"age": Sorted(lambda pod: pod.metadata.generation), "team": ByLabel("team")},
        queue=DeltaFifo,
        namespace=ALL_NAMESPACES,
    )


def a_bare_store_is_typed_by_what_it_holds(store: ObjectStore[Pod]) -> None:
    assert_type(store.get_by_key("shop/web-0"), Pod | None)
    assert_type(store.by_index("node", "n1"), list[Pod])
    assert_type(store.list_keys(), list[str])
    assert_type(ObjectStore[int](str, {"even": lambda number: str(number % 2 == 0)}).list(), list[int])


def test_the_checked_functions_are_functions() -> None:
    checked: list[Callable[..., object]] = [
        informers_are_typed_by_their_kind,
        on_pod,
        on_pod_later,
        a_function_that_indexes_gets_the_typed_object,
        a_bare_store_is_typed_by_what_it_holds,
    ]
    assert all(map(callable, checked))
