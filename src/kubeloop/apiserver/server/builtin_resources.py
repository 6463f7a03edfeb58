"""The registry of a fresh server: what a default Kubernetes 1.36 server serves, with the strategies of the built-in kinds."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from kubeloop.apiserver.builtin import strategies
from kubeloop.apiserver.builtin.catalogue import DEPRECATIONS
from kubeloop.apiserver.builtin.conversion import convert_autoscaler, convert_event
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.registry.strategy import Strategy
from kubeloop.meta.kinds import GroupResource, GroupVersionKind
from kubeloop.schema import ResourceInfo, Schemas, TypeSchema
from kubeloop.timing import Clock

_EVENTS = GroupResource("", "events")
_DEFINITIONS = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")


def builtin_registry(schemas: Schemas, clock: Clock) -> Registry:
    """Return a new registry. Its strategies are new too, so that two servers in one process share nothing."""
    registry = Registry()
    known: dict[GroupResource, Callable[[], Strategy]] = {**strategies(), _DEFINITIONS: cache(partial(_of_definitions, clock))}
    for info in schemas.resources():
        registry.add(_served(info, known[info.gvr.group_resource], schemas))
    return registry


def _of_definitions(clock: Clock) -> Strategy:
    from kubeloop.apiserver.crd.strategies import DefinitionStrategy

    return DefinitionStrategy(clock)


def _served(info: ResourceInfo, strategy_source: Callable[[], Strategy], schemas: Schemas) -> ServedResource:
    events, autoscalers = info.gvr.resource == "events", info.gvr.resource == "horizontalpodautoscalers"
    storage = GroupVersionKind("", "v1", "Event") if events else GroupVersionKind("autoscaling", "v2", info.kind) if autoscalers else None
    return ServedResource(
        gvr=info.gvr,
        kind=info.kind,
        singular=info.singular,
        namespaced=info.namespaced,
        verbs=info.verbs,
        schema=schemas.kind(info.gvk) or TypeSchema(type="object"),
        strategy_source=strategy_source,
        short_names=info.short_names,
        categories=info.categories,
        subresources=tuple(sub.name for sub in info.subresources),
        storage=storage,
        storage_resource=_EVENTS if events else None,
        list_kind=info.list_kind,
        deprecation_warning=DEPRECATIONS.get(info.gvr.group_resource, ""),
        convert=convert_event if events else convert_autoscaler if autoscalers else None,
    )
