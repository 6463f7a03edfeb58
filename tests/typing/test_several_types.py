"""What a type checker sees of informers of several clusters, of dynamic kinds, and of handlers behind predicates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_type

from kubeloop.api.core.v1 import Pod
from kubeloop.cache import (
    DynamicInformers,
    DynamicRegistration,
    Head,
    Informer,
    InformerEvent,
    InformerFactory,
    MulticlusterInformer,
    MulticlusterInformerFactory,
    MulticlusterLister,
    MulticlusterRegistration,
    all_synced,
)
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.meta import Unstructured
from kubeloop.meta.kinds import GroupVersionKind


async def informers_of_several_clusters_are_typed_by_their_kind(clients: Mapping[str, Client]) -> None:
    async with MulticlusterInformerFactory(clients) as informers:
        pods = informers.for_kind(
            Pod, namespace=["a", "b"], label_selector={"app": "web"}, indexes={"name": lambda pod: [pod.metadata.name]}
        )
        assert_type(pods, MulticlusterInformer[Pod])
        assert_type(pods.lister, MulticlusterLister[Pod])
        assert_type(pods.lister.list(), list[tuple[str, Pod]])
        assert_type(pods.lister.get("east", "web-0", "shop"), Pod | None)
        assert_type(pods.on_event(added=on_pod, predicate=accepts, coalesce=True), MulticlusterRegistration[Pod])
        assert_type(pods.clusters["east"], Informer[Pod])
        informers.for_kind(Pod, name="x")  # type: ignore[call-arg]  # no such option: a checker must say so


async def dynamic_kinds_are_unstructured(informers: InformerFactory) -> None:
    kinds = DynamicInformers(informers, lambda kind: kind.gvk.group == "example.com", namespace=ALL_NAMESPACES)
    assert_type(kinds.kinds, Mapping[GroupVersionKind, Informer[Unstructured]])
    assert_type(kinds.on_event(added=lambda event: event.object.content), DynamicRegistration)
    await all_synced(informers, kinds, timeout=10)


async def on_pod(event: InformerEvent[Pod]) -> None:
    assert_type(event.object, Pod)


def accepts(head: Head) -> bool:
    return head.labels.get("app") == "web"


def test_the_functions_above_are_for_the_type_checker() -> None:
    assert accepts.__annotations__ == {"head": "Head", "return": "bool"}
