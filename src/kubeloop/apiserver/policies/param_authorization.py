"""Whoever writes a policy or a binding that uses parameters must be allowed to read these: a policy shows what is in them.

Source: pkg/registry/admissionregistration (authz.go of the four kinds).
"""

from __future__ import annotations

from typing import Final

from kubeloop.apiserver.admission import Attributes
from kubeloop.apiserver.policies.params import ParamKind, param_kind
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.request import api_errors
from kubeloop.apiserver.request.access import Access, Authorizer
from kubeloop.apiserver.request.users import MASTERS, User
from kubeloop.meta.field_error import forbidden
from kubeloop.meta.kinds import GroupKind, GroupResource, GroupVersionResource
from kubeloop.types import JSONObject

_GROUP: Final = "admissionregistration.k8s.io"
_POLICIES: Final = tuple(GroupResource(_GROUP, f"{kind}admissionpolicies") for kind in ("validating", "mutating"))
#: By the resource of bindings, that of their policies.
_BINDINGS: Final = {
    GroupResource(_GROUP, "validatingadmissionpolicybindings"): _POLICIES[0],
    GroupResource(_GROUP, "mutatingadmissionpolicybindings"): _POLICIES[1],
}


class ParamAuthorization:
    """Part of validation upstream: asked about what is well-formed, before anything else that only validates."""

    resources = frozenset({*_POLICIES, *_BINDINGS})

    def __init__(self, registry: Registry, objects: Objects, authorizer: Authorizer) -> None:
        self._registry = registry
        self._objects = objects
        self._authorizer = authorizer

    async def mutate(self, attributes: Attributes) -> None:
        """Nothing is changed."""

    async def validate(self, attributes: Attributes) -> None:
        """
        Raises:
            Invalid: the user may not read the parameters.
        """
        resource = attributes.resource.gvr.group_resource
        if attributes.obj is None or attributes.subresource or MASTERS in attributes.user.groups:
            return
        spec, before = attributes.obj.get("spec") or {}, (attributes.old or {}).get("spec") or {}
        if resource in _BINDINGS:
            if spec.get("paramRef") is None or _same(spec, before, "paramRef", "policyName"):
                return
            field, why = "spec.paramRef", await self._of_binding(spec, _BINDINGS[resource], attributes.user)
        else:
            if spec.get("paramKind") is None or _same(spec, before, "paramKind"):
                return
            field, why = "spec.paramKind", await self._of_policy(spec, attributes.user)
        if why:
            kind = GroupKind(_GROUP, attributes.gvk.kind)
            raise api_errors.invalid(kind, attributes.obj["metadata"]["name"], [forbidden(field, why)])

    async def _of_policy(self, spec: JSONObject, user: User) -> str:
        kind = param_kind(spec["paramKind"])
        assert kind is not None
        if await self._may(user, "get", self._where(kind), "*", "*"):
            return ""
        named = f"kind={kind.kind}, apiVersion={kind.api_version}"
        return f'user {_shown(user)} must have "get" permission on all objects of the referenced paramKind ({named})'

    async def _of_binding(self, spec: JSONObject, policies: GroupResource, user: User) -> str:
        ref = spec["paramRef"]
        name, namespace = ref.get("name") or "", ref.get("namespace") or ""
        verb = "get" if name else "list"
        policy = await self._policy(policies, spec.get("policyName") or "")
        kind = None if policy is None else param_kind((policy.get("spec") or {}).get("paramKind"))
        where = ("*", "*", "*") if kind is None else self._where(kind)
        if await self._may(user, verb, where, namespace, name):
            return ""
        lacks = f'user {_shown(user)} does not have "{verb}" permission'
        everything = f"to determine minimum required permissions and {lacks} for all groups, versions and resources"
        if policy is None:
            return f"unable to get policy {spec.get('policyName')} {everything}"
        if kind is not None and where[2] == "*":
            return f"unable to resolve paramKind &{{{kind.api_version} {kind.kind}}} {everything}"
        if policies == _POLICIES[1]:
            # Upstream's two words stand in each other's place.
            lacks = f'user {verb} does not have "{_shown(user)}" permission'
        return f"{lacks} on the object referenced by paramRef"

    async def _policy(self, policies: GroupResource, name: str) -> JSONObject | None:
        resource = self._registry.get(GroupVersionResource(policies.group, "v1", policies.resource))
        found = None if resource is None else await self._objects.get(resource, "", name)
        return None if found is None else found.obj

    def _where(self, kind: ParamKind) -> tuple[str, str, str]:
        """Group, version and resource; all resources of the version where none is of the kind."""
        served = self._registry.kind(kind.gvk)
        return kind.gvk.group, kind.gvk.version, "*" if served is None else served.gvr.resource

    async def _may(self, user: User, verb: str, where: tuple[str, str, str], namespace: str, name: str) -> bool:
        await self._authorizer.prepare(user)
        return self._authorizer.authorize(Access(user, verb, *where, "", namespace, name)).allowed


def _same(spec: JSONObject, before: JSONObject, *names: str) -> bool:
    return all(spec.get(name) == before.get(name) for name in names)


def _shown(user: User) -> str:
    """As Go prints the user."""
    extra = " ".join(f"{name}:[{' '.join(values)}]" for name, values in sorted(user.extra.items()))
    return f"&{{{user.name} {user.uid} [{' '.join(user.groups)}] map[{extra}]}}"
