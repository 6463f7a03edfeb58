"""Parameters of policies: their kind, and the objects that a binding refers to.

Source: k8s.io/apiserver pkg/admission/plugin/policy/generic (policy_dispatcher.go: CollectParams, policy_source.go).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kubeloop.apiserver.admission import Attributes
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.storage import prefix_end
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.access import MASTERS, Access, Authorizer, User
from kubeloop.meta.errors import ApiError, KubeloopError
from kubeloop.meta.field_error import forbidden
from kubeloop.meta.kinds import GroupKind, GroupResource, GroupVersionKind, GroupVersionResource
from kubeloop.meta.selectors import Selector, selector_from
from kubeloop.types import JSONObject


class InvalidConfiguration(KubeloopError):
    """A policy or binding is misconfigured and cannot be evaluated. The message is that of Kubernetes."""


def error_message(error: KubeloopError) -> str:
    """Return the message of an error for the client."""
    return error.status.message if isinstance(error, ApiError) else str(error)


@dataclass(frozen=True, slots=True)
class ParamKind:
    """The ``paramKind`` of a policy."""

    api_version: str
    kind: str

    @property
    def gvk(self) -> GroupVersionKind:
        """The kind with its group and version."""
        group, _, version = self.api_version.rpartition("/")
        return GroupVersionKind(group, version, self.kind)


@dataclass(frozen=True, slots=True)
class ParamRef:
    """The ``paramRef`` of a binding: by ``name`` or by ``selector``. ``must_exist`` denies requests if no parameter exists."""

    name: str
    namespace: str
    selector: Selector | None
    must_exist: bool


def parse_param_kind(value: JSONObject | None) -> ParamKind | None:
    """Parse a ``paramKind``; None stays None."""
    return None if value is None else ParamKind(value.get("apiVersion") or "", value.get("kind") or "")


def parse_param_ref(value: JSONObject | None) -> ParamRef | None:
    """Parse a ``paramRef``; None stays None."""
    if value is None:
        return None
    selector = value.get("selector")
    return ParamRef(
        value.get("name") or "",
        value.get("namespace") or "",
        None if selector is None else selector_from(selector),
        value.get("parameterNotFoundAction") == "Deny",
    )


class Params:
    """Reads the parameters of policies from storage."""

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects

    def resource(self, kind: ParamKind) -> ServedResource:
        """Return the resource of a kind of parameters.

        Raises:
            InvalidConfiguration: The server does not serve the kind.
        """
        result = self._registry.kind(kind.gvk)
        if result is None or not result.served:
            group, version, name = kind.gvk
            raise InvalidConfiguration(f"failed to find resource referenced by paramKind: '{group}/{version}, Kind={name}'")
        return result

    async def of(self, kind: ParamKind | None, ref: ParamRef | None, namespace: str) -> list[JSONObject | None]:
        """Return the parameters with which to evaluate a policy, once each; a single None evaluates it without parameters.

        Args:
            kind: The kind of the parameters. None: the policy has no parameters.
            ref: The reference of the binding. None: the binding has no reference.
            namespace: Namespace of the request.

        Raises:
            InvalidConfiguration: The reference does not fit the kind, or a required parameter does not exist.
            ApiError: A conversion webhook failed.
        """
        if kind is None or ref is None:
            return [None]
        resource = self.resource(kind)
        params_namespace = ref.namespace or namespace
        if not resource.namespaced:
            if ref.namespace:
                raise InvalidConfiguration("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
            params_namespace = ""
        elif not params_namespace:
            raise InvalidConfiguration("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
        value = await self._found(resource, params_namespace, ref)
        if not value and ref.must_exist:
            raise InvalidConfiguration("no params found for policy binding with `Deny` parameterNotFoundAction")
        return [*value]

    async def _found(self, resource: ServedResource, namespace: str, ref: ParamRef) -> list[JSONObject]:
        if ref.name:
            one = await self._objects.get(resource, namespace, ref.name)
            return [] if one is None else [one.obj]
        assert ref.selector is not None
        prefix = self._objects.prefix(resource, namespace)
        stored = (await self._objects.storage.range(prefix, prefix_end(prefix))).items
        trees = [self._objects.tree(resource, kv) for kv in await self._objects.to_requested_version(resource, stored)]
        return [tree for tree in trees if ref.selector.matches(tree["metadata"].get("labels"))]


# A user who writes a policy or binding with parameters needs the permission to read them, because a policy reveals their content.
#
# Source: pkg/registry/admissionregistration (authz.go of the four kinds).


_GROUP: Final = "admissionregistration.k8s.io"
_POLICIES: Final = tuple(GroupResource(_GROUP, f"{kind}admissionpolicies") for kind in ("validating", "mutating"))
#: Resource of bindings -> resource of their policies.
_BINDINGS: Final = {
    GroupResource(_GROUP, "validatingadmissionpolicybindings"): _POLICIES[0],
    GroupResource(_GROUP, "mutatingadmissionpolicybindings"): _POLICIES[1],
}


class ParamAuthorization:
    """Checks that the user who writes a policy or binding may read its parameters.

    It runs directly after validation, because upstream does this as a part of validation.
    """

    resources = frozenset({*_POLICIES, *_BINDINGS})

    def __init__(self, registry: Registry, objects: Objects, authorizer: Authorizer) -> None:
        self._registry = registry
        self._objects = objects
        self._authorizer = authorizer

    async def mutate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only validates."""

    async def validate(self, attributes: Attributes) -> None:
        """Check the permission.

        Raises:
            Invalid: The user may not read the parameters.
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
        kind = parse_param_kind(spec["paramKind"])
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
        kind = None if policy is None else parse_param_kind((policy.get("spec") or {}).get("paramKind"))
        gvr = ("*", "*", "*") if kind is None else self._where(kind)
        if await self._may(user, verb, gvr, namespace, name):
            return ""
        lacks = f'user {_shown(user)} does not have "{verb}" permission'
        everything = f"to determine minimum required permissions and {lacks} for all groups, versions and resources"
        if policy is None:
            return f"unable to get policy {spec.get('policyName')} {everything}"
        if kind is not None and gvr[2] == "*":
            return f"unable to resolve paramKind &{{{kind.api_version} {kind.kind}}} {everything}"
        if policies == _POLICIES[1]:
            # Upstream has these two words the wrong way round.
            lacks = f'user {verb} does not have "{_shown(user)}" permission'
        return f"{lacks} on the object referenced by paramRef"

    async def _policy(self, policies: GroupResource, name: str) -> JSONObject | None:
        resource = self._registry.get(GroupVersionResource(policies.group, "v1", policies.resource))
        stored = None if resource is None else await self._objects.get(resource, "", name)
        return None if stored is None else stored.obj

    def _where(self, kind: ParamKind) -> tuple[str, str, str]:
        """Return group, version and resource of a kind. The resource is ``*`` if the server does not serve the kind."""
        served = self._registry.kind(kind.gvk)
        return kind.gvk.group, kind.gvk.version, "*" if served is None else served.gvr.resource

    async def _may(self, user: User, verb: str, gvr: tuple[str, str, str], namespace: str, name: str) -> bool:
        await self._authorizer.prepare(user)
        return self._authorizer.authorize(Access(user, verb, *gvr, "", namespace, name)).allowed


def _same(spec: JSONObject, before: JSONObject, *names: str) -> bool:
    return all(spec.get(name) == before.get(name) for name in names)


def _shown(user: User) -> str:
    """Format a user as Go does."""
    extra = " ".join(f"{name}:[{' '.join(values)}]" for name, values in sorted(user.extra.items()))
    return f"&{{{user.name} {user.uid} [{' '.join(user.groups)}] map[{extra}]}}"
