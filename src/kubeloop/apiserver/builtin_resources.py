"""The registry of a fresh server: what a default Kubernetes 1.36 server serves, with the strategies of the built-in kinds."""

from __future__ import annotations

from kubeloop.apiserver.builtin import strategies
from kubeloop.apiserver.builtin.conversion import convert_autoscaler
from kubeloop.apiserver.builtin.facts import DEPRECATIONS
from kubeloop.apiserver.crd.strategy import DefinitionStrategy
from kubeloop.apiserver.event_conversion import convert_event
from kubeloop.apiserver.registry import Registry
from kubeloop.apiserver.resource import ServedResource
from kubeloop.apiserver.strategy import Strategy
from kubeloop.meta.kinds import GroupResource, GroupVersionKind
from kubeloop.schema import ResourceInfo, Schemas, TypeSchema
from kubeloop.timing import Clock

_EVENTS = GroupResource("", "events")
_DEFINITIONS = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")

#: Deletions that are done answer with the object (ReturnDeletedObject upstream; found by asking kube-apiserver).
_RETURN_DELETED = frozenset(
    GroupResource(group, resource)
    for group, resources in {
        "": "persistentvolumes persistentvolumeclaims pods podtemplates resourcequotas serviceaccounts services replicationcontrollers",
        "storage.k8s.io": "csidrivers csinodes storageclasses volumeattachments volumeattributesclasses",
        "resource.k8s.io": "deviceclasses resourceclaims resourceclaimtemplates resourceslices",
    }.items()
    for resource in resources.split()
)


def builtin_registry(schemas: Schemas, clock: Clock) -> Registry:
    """A new registry; strategies are new as well, so that two servers in one process share nothing."""
    registry = Registry()
    known: dict[GroupResource, Strategy] = {**strategies(), _DEFINITIONS: DefinitionStrategy(clock)}
    for info in schemas.resources():
        strategy = known[info.gvr.group_resource]
        if info.gvr.group_resource in _RETURN_DELETED:
            strategy.returns_deleted = True
        registry.add(_served(info, strategy, schemas))
    return registry


def _served(info: ResourceInfo, strategy: Strategy, schemas: Schemas) -> ServedResource:
    events, autoscalers = info.gvr.resource == "events", info.gvr.resource == "horizontalpodautoscalers"
    storage = GroupVersionKind("", "v1", "Event") if events else GroupVersionKind("autoscaling", "v2", info.kind) if autoscalers else None
    return ServedResource(
        gvr=info.gvr,
        kind=info.kind,
        singular=info.singular,
        namespaced=info.namespaced,
        verbs=info.verbs,
        schema=schemas.kind(info.gvk) or TypeSchema(type="object"),
        strategy=strategy,
        short_names=info.short_names,
        categories=info.categories,
        subresources=tuple(sub.name for sub in info.subresources),
        storage=storage,
        storage_resource=_EVENTS if events else None,
        list_kind=info.list_kind,
        deprecation_warning=DEPRECATIONS.get(info.gvr.group_resource, ""),
        convert=convert_event if events else convert_autoscaler if autoscalers else None,
    )
