"""Scopes: the types of the fields that a write through one path can own, in each version, and the fields that it cannot change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from kubeloop.apiserver.registry.objects import converted
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.merge.fields import FieldSet, MergeType, MissingVersion, TypeMismatch, builtin_types, custom_type
from kubeloop.merge.fields.checks import check
from kubeloop.merge.fields.field_set import Filter, excluding
from kubeloop.merge.fields.managers import Versions
from kubeloop.meta.errors import DecodeError
from kubeloop.meta.kinds import GroupResource, GroupVersionKind
from kubeloop.schema import TypeSchema, strict
from kubeloop.types import JSONObject

# Fields that a write through one path does not change and therefore never owns: status on the main resource, spec on ``/status``.
#
# Source: GetResetFields of the strategies in k8s.io/kubernetes pkg/registry and k8s.io/apiextensions-apiserver pkg/registry. The strategies
# of ``/ephemeralcontainers`` and ``/resize`` of pods define such filters too, but upstream does not use them: a manager owns everything
# that it sent.


#: Path from the root of the object to a field; it includes the fields below.
Path = tuple[str, ...]

_STATUS: Final[tuple[Path, ...]] = (("status",),)
_SPEC: Final[tuple[Path, ...]] = (("spec",),)
_SPEC_AND_METADATA: Final[tuple[Path, ...]] = (("metadata",), ("spec",))

_REQUESTS = GroupResource("certificates.k8s.io", "certificatesigningrequests")

#: Kinds whose main resource resets other fields than ``status``.
_ON_MAIN: Final[dict[GroupResource, tuple[Path, ...]]] = {
    _REQUESTS: (("spec",), ("status",)),
    GroupResource("certificates.k8s.io", "podcertificaterequests"): (),
}

#: Kinds whose ``/status`` resets other fields than ``spec``.
_ON_STATUS: Final[dict[GroupResource, tuple[Path, ...]]] = {
    GroupResource("", "pods"): (("spec",), ("metadata", "deletionTimestamp"), ("metadata", "ownerReferences")),
    GroupResource("apps", "deployments"): (("spec",), ("metadata", "labels")),
    _REQUESTS: (("spec",), ("status", "conditions")),
    **{
        GroupResource(group, resource): _SPEC_AND_METADATA
        for group, resource in (
            ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
            ("apiregistration.k8s.io", "apiservices"),
            ("flowcontrol.apiserver.k8s.io", "flowschemas"),
            ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
            ("internal.apiserver.k8s.io", "storageversions"),
            ("networking.k8s.io", "servicecidrs"),
            ("resource.k8s.io", "devicetaintrules"),
            ("resource.k8s.io", "resourceclaims"),
            ("resource.k8s.io", "resourcepoolstatusrequests"),
            ("scheduling.k8s.io", "podgroups"),
            ("storage.k8s.io", "volumeattachments"),
            ("storagemigration.k8s.io", "storageversionmigrations"),
        )
    },
}

#: Other subresources, by resource and name.
_ON_OTHERS: Final[dict[tuple[GroupResource, str], tuple[Path, ...]]] = {
    (_REQUESTS, "approval"): (("spec",), ("status", "certificate")),
    (GroupResource("", "namespaces"), "finalize"): _STATUS,
}


def reset_fields(resource: ServedResource, subresource: str) -> tuple[Path, ...]:
    """Return the paths that a write through ``subresource`` (empty for the main resource) does not change."""
    group_resource = resource.gvr.group_resource
    if not subresource:
        result = _ON_MAIN.get(group_resource)
        if result is not None:
            return result
        return _STATUS if "status" in resource.subresources else ()
    if subresource == "status":
        return _SPEC_AND_METADATA if resource.custom else _ON_STATUS.get(group_resource, _SPEC)
    return _ON_OTHERS.get((group_resource, subresource), ())


SCALE = GroupVersionKind("autoscaling", "v1", "Scale")
TOKEN_REQUEST = GroupVersionKind("authentication.k8s.io", "v1", "TokenRequest")


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of writes through one path of one version of a resource.

    ``filters`` (by API version) remove the fields that the path cannot change. ``empty`` is the object before its creation, which must not
    be changed: it has the fields that Go writes for an empty struct, which no creator owns. ``checked`` says that stored objects must be
    checked, because the definition of a custom resource may have changed.
    """

    gvk: GroupVersionKind
    subresource: str
    versions: Versions
    filters: Mapping[str, Filter]
    empty: JSONObject
    checked: bool = False

    @property
    def api_version(self) -> str:
        """The API version of the path."""
        return self.gvk.api_version


class Scopes:
    """Creates scopes and caches them until the definition of a custom resource changes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: dict[tuple[GroupVersionKind, str], tuple[ServedResource, Scope]] = {}

    def of(self, resource: ServedResource, subresource: str) -> Scope:
        """Return the scope of a resource or one of its subresources."""
        key = resource.gvk, subresource
        result = self._known.get(key)
        if result is None or result[0].schema is not resource.schema:
            result = self._known[key] = resource, self._make(resource, subresource)
        return result[1]

    def _make(self, resource: ServedResource, subresource: str) -> Scope:
        versions: _CustomVersions | _BuiltinVersions
        if resource.custom:
            versions = _CustomVersions(resource)
        else:
            # The same objects in all versions, also in another group (Events).
            served = [one for one in self._registry if one.storage_prefix == resource.storage_prefix and one.kind == resource.kind]
            versions = _BuiltinVersions({one.gvk.api_version: one for one in served} | {resource.gvk.api_version: resource})
        filters: dict[str, Filter] = {}
        if paths := reset_fields(resource, subresource):
            keep = excluding(FieldSet.from_paths(*(tuple(f"f:{name}" for name in path) for path in paths)))
            # Upstream uses all versions, except on the main path of a custom resource: there it uses the version of the request alone.
            alone = resource.custom and not subresource
            filters = dict.fromkeys((resource.gvk.api_version,) if alone else versions.names, keep)
        return Scope(resource.gvk, subresource, versions, filters, _empty(resource.gvk, custom=resource.custom), resource.custom)


class _CustomVersions:
    """All versions in the definition of a custom resource, served or not."""

    def __init__(self, resource: ServedResource) -> None:
        self._resource = resource
        self._schemas: Mapping[str, TypeSchema] = resource.extra.get("schemas") or {resource.gvk.api_version: resource.schema}
        self._types: dict[str, MergeType] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the API versions."""
        return tuple(self._schemas)

    def type_of(self, api_version: str) -> MergeType:
        """Return the type of an API version."""
        result = self._types.get(api_version)
        if result is None:
            result = self._types[api_version] = custom_type(self._schema(api_version))
        return result

    def convert(self, obj: JSONObject, api_version: str) -> JSONObject:
        """Convert an object to a version. Raises TypeMismatch if ``obj`` has fields that the version lacks: as upstream, none is pruned."""
        self._schema(api_version)
        if str(obj.get("apiVersion") or "") in ("", api_version):
            return obj
        resource, (group, _, version) = self._resource, api_version.rpartition("/")
        if resource.convert is not None:
            made = {**obj, "apiVersion": api_version, "kind": resource.kind}
        else:
            made = converted(resource, obj, GroupVersionKind(group, version, resource.kind))
        check(made, self.type_of(api_version))
        return made

    def _schema(self, api_version: str) -> TypeSchema:
        result = self._schemas.get(api_version)
        if result is None:
            raise TypeMismatch(f"request to convert CR to an invalid group/version: {api_version}")
        return result


class _BuiltinVersions:
    """The versions of a built-in resource."""

    def __init__(self, resources: Mapping[str, ServedResource]) -> None:
        self._resources = resources

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the API versions."""
        return tuple(self._resources)

    def type_of(self, api_version: str) -> MergeType:
        """Return the type of an API version."""
        return _builtin(self._served(api_version).gvk)

    def convert(self, obj: JSONObject, api_version: str) -> JSONObject:
        """Convert an object to an API version."""
        index = str(obj.get("apiVersion") or "")
        target = self._served(api_version)
        if index in ("", api_version):
            return obj
        source = self._served(index)
        # Through the Go type, because pruning leaves nulls. Defaults are not set: a field that one version lacks must stay absent.
        try:
            return converted(source, strict.conform(obj, source.gvk).obj, target.gvk)
        except DecodeError as error:
            raise TypeMismatch(f"failed to convert object: {error}") from None

    def _served(self, api_version: str) -> ServedResource:
        result = self._resources.get(api_version)
        if result is None:
            raise MissingVersion(api_version)
        return result


def _builtin(gvk: GroupVersionKind) -> MergeType:
    result = builtin_types().of_kind(gvk)
    if result is None:
        raise LookupError(f"there is no schema for {gvk}")
    return result


class _OneVersion:
    """A kind with a single version that is never stored."""

    def __init__(self, gvk: GroupVersionKind) -> None:
        self._gvk = gvk

    def type_of(self, api_version: str) -> MergeType:
        """Return the type of the version."""
        if api_version != self._gvk.api_version:
            raise MissingVersion(api_version)
        return _builtin(self._gvk)

    def convert(self, obj: JSONObject, api_version: str) -> JSONObject:
        """Return the object itself."""
        if api_version != self._gvk.api_version:
            raise MissingVersion(api_version)
        return obj


@cache
def scale_scope() -> Scope:
    """Return the scope of ``/scale``, which is the same for all resources."""
    return Scope(SCALE, "scale", _OneVersion(SCALE), {}, _empty(SCALE, custom=False))


@cache
def token_request_scope() -> Scope:
    """Return the scope of ``/token`` of service accounts."""
    return Scope(TOKEN_REQUEST, "token", _OneVersion(TOKEN_REQUEST), {}, _empty(TOKEN_REQUEST, custom=False))


def _empty(gvk: GroupVersionKind, *, custom: bool) -> JSONObject:
    bare = {"apiVersion": gvk.api_version, "kind": gvk.kind}
    return bare if custom else strict.conform(bare, gvk).obj
