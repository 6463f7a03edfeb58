"""The parameters of policies: which kind they are of, and which objects a binding names.

Source: k8s.io/apiserver pkg/admission/plugin/policy/generic (policy_dispatcher.go: CollectParams, policy_source.go).
"""

from __future__ import annotations

from dataclasses import dataclass

from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.storage import prefix_end
from kubeloop.meta.errors import ApiError, KubeloopError
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.meta.selectors import Selector, selector_from
from kubeloop.types import JSONObject


class InvalidConfiguration(KubeloopError):
    """A policy or binding that cannot be evaluated as it stands; the text is Kubernetes'."""


def said(fault: KubeloopError) -> str:
    """What a client is told of a fault."""
    return fault.status.message if isinstance(fault, ApiError) else str(fault)


@dataclass(frozen=True, slots=True)
class ParamKind:
    api_version: str
    kind: str

    @property
    def gvk(self) -> GroupVersionKind:
        group, _, version = self.api_version.rpartition("/")
        return GroupVersionKind(group, version, self.kind)


@dataclass(frozen=True, slots=True)
class ParamRef:
    """By ``name`` or by ``selector``. ``must_exist``: a binding without parameters denies."""

    name: str
    namespace: str
    selector: Selector | None
    must_exist: bool


def param_kind(found: JSONObject | None) -> ParamKind | None:
    return None if found is None else ParamKind(found.get("apiVersion") or "", found.get("kind") or "")


def param_ref(found: JSONObject | None) -> ParamRef | None:
    if found is None:
        return None
    selector = found.get("selector")
    return ParamRef(
        found.get("name") or "",
        found.get("namespace") or "",
        None if selector is None else selector_from(selector),
        found.get("parameterNotFoundAction") == "Deny",
    )


class Params:
    """Finds parameters, as they are stored at that moment."""

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects

    def resource(self, kind: ParamKind) -> ServedResource:
        """
        Raises:
            InvalidConfiguration: nothing serves the kind.
        """
        found = self._registry.kind(kind.gvk)
        if found is None or not found.served:
            group, version, name = kind.gvk
            raise InvalidConfiguration(f"failed to find resource referenced by paramKind: '{group}/{version}, Kind={name}'")
        return found

    async def of(self, kind: ParamKind | None, ref: ParamRef | None, namespace: str) -> list[JSONObject | None]:
        """With what a policy is to be evaluated, once each: None without parameters. ``namespace``: that of the request.

        Raises:
            InvalidConfiguration
            ApiError: a webhook that converts failed.
        """
        if kind is None or ref is None:
            return [None]
        resource = self.resource(kind)
        where = ref.namespace or namespace
        if not resource.namespaced:
            if ref.namespace:
                raise InvalidConfiguration("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
            where = ""
        elif not where:
            raise InvalidConfiguration("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
        found = await self._found(resource, where, ref)
        if not found and ref.must_exist:
            raise InvalidConfiguration("no params found for policy binding with `Deny` parameterNotFoundAction")
        return [*found]

    async def _found(self, resource: ServedResource, namespace: str, ref: ParamRef) -> list[JSONObject]:
        if ref.name:
            one = await self._objects.get(resource, namespace, ref.name)
            return [] if one is None else [one.obj]
        assert ref.selector is not None
        prefix = self._objects.prefix(resource, namespace)
        stored = (await self._objects.storage.range(prefix, prefix_end(prefix))).items
        trees = [self._objects.tree(resource, kv) for kv in await self._objects.presented(resource, stored)]
        return [tree for tree in trees if ref.selector.matches(tree["metadata"].get("labels"))]
