"""Checks that the server serves the program's kinds, that their schemas match the classes, and that their webhooks have a backend.

A webhook is not called, because only the server calls webhooks, from its network. The checks concern the ready endpoints of the webhook's
Service, and its CA bundle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kubeloop.api.admissionregistration.v1 import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from kubeloop.api.apiextensions.v1 import CustomResourceDefinition
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.cli.doctor.findings import DoctorFinding, State
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.client.discovery.discovery_client import discover_version
from kubeloop.client.discovery.resources import ApiResource, Failure
from kubeloop.codec import to_dict
from kubeloop.codegen.crd import definitions_of
from kubeloop.meta import ApiError, Forbidden, GroupVersion, GroupVersionResource, NotFound, Resource, kind_info
from kubeloop.types import JSONObject


async def webhooks(client: Client, kinds: Iterable[type[Resource]]) -> list[DoctorFinding]:
    """Return a finding for each webhook that is called for one of ``kinds``, or that converts between its versions."""
    kinds = list(kinds)
    wanted = {kind_info(kind).gvr for kind in kinds}
    found: list[DoctorFinding] = []
    try:
        for configuration in (ValidatingWebhookConfiguration, MutatingWebhookConfiguration):
            for one in await client.list(configuration, namespace=ALL_NAMESPACES):
                tree = to_dict(one)
                hooks = [hook for hook in tree.get("webhooks") or () if _concerns_any(hook, wanted)]
                found += [await _finding(client, hook) for hook in hooks]
        for kind in kinds:
            if not kind.__module__.startswith("kubeloop.api.") and (hook := await _conversion(client, kind)):
                found.append(await _finding(client, hook))
    except ApiError as error:
        return [*found, DoctorFinding("webhook", "all", "unknown", f"configurations cannot be read: {error}", "allow list on them")]
    return found


async def _conversion(client: Client, kind: type[Resource]) -> JSONObject | None:
    """Return the webhook that converts between a kind's versions, in the form of an item of ``webhooks``; None if there is none."""
    resource = kind_info(kind).gvr.group_resource
    try:
        definition = await client.get(CustomResourceDefinition, str(resource))
    except (NotFound, Forbidden):  # reported already by the check of kinds
        return None
    conversion = to_dict(definition)["spec"].get("conversion") or {}
    if conversion.get("strategy") != "Webhook":
        return None
    return {"name": f"conversion of {resource}", "clientConfig": (conversion.get("webhook") or {}).get("clientConfig")}


def _concerns_any(hook: JSONObject, resources: Iterable[GroupVersionResource]) -> bool:
    return any(_concerns(rule, gvr) for rule in hook.get("rules") or () for gvr in resources)


def _concerns(rule: JSONObject, gvr: GroupVersionResource) -> bool:
    def covers(name: str, value: str) -> bool:
        given = rule.get(name) or ()
        return "*" in given or value in given

    resources = {str(resource).partition("/")[0] for resource in rule.get("resources") or ()}
    return covers("apiGroups", gvr.group) and covers("apiVersions", gvr.version) and bool(resources & {"*", gvr.resource})


async def _finding(client: Client, hook: JSONObject) -> DoctorFinding:
    name, where = str(hook.get("name")), hook.get("clientConfig") or {}
    state: State = "warning" if hook.get("failurePolicy") == "Ignore" else "failed"
    service = where.get("service")
    if not isinstance(service, dict):
        return DoctorFinding("webhook", name, "unknown", f"is called at {where.get('url')}, by the server only")
    place = f'Service "{service.get("name")}" in namespace "{service.get("namespace")}"'
    selector = {"kubernetes.io/service-name": str(service.get("name"))}
    slices = await client.list(EndpointSlice, namespace=str(service.get("namespace")), label_selector=selector)
    ready = sum(1 for slice_ in slices for _ in _ready(to_dict(slice_)))
    if not ready:
        fix = "start what serves it, or delete its configuration: until then each write of these kinds is refused"
        fix = fix if state == "failed" else "start what serves it; its failures are ignored, so nothing is checked now"
        return DoctorFinding("webhook", name, state, f"{place} has no ready endpoint", fix)
    if not where.get("caBundle"):
        fix = "set caBundle, or have it injected: without it the server trusts only certificates of public authorities"
        return DoctorFinding("webhook", name, "warning", f"{place}: {ready} ready, but no caBundle", fix)
    return DoctorFinding("webhook", name, "ok", f"{place}: {ready} ready")


def _ready(slice_: JSONObject) -> Iterator[JSONObject]:
    for endpoint in slice_.get("endpoints") or ():
        # Unknown counts as ready (discovery/v1 EndpointConditions).
        if (endpoint.get("conditions") or {}).get("ready", True):
            yield endpoint


#: Maximum reported differences of one kind.
_MOST = 8
#: Keywords that do not affect validation.
_SILENT = frozenset(("description", "title", "example", "externalDocs"))
_APPLY = "apply the definition that belongs to this program: kubeloop generate crd MODULE | kubectl apply -f -"


async def definitions(client: Client, kinds: Iterable[type[Resource]]) -> list[DoctorFinding]:
    """Return a finding for each kind: whether the server serves it, and whether its schema there matches the class."""
    served: dict[GroupVersion, tuple[ApiResource, ...] | Failure] = {}
    found: list[DoctorFinding] = []
    for kind in dict.fromkeys(kinds):
        info = kind_info(kind)
        version = GroupVersion(info.gvk.group, info.gvk.version)
        if version not in served:
            served[version] = await discover_version(client.transport, version)
        found.append(await _kind(client, kind, served[version]))
    return found


async def _kind(client: Client, kind: type[Resource], served: tuple[ApiResource, ...] | Failure) -> DoctorFinding:
    info = kind_info(kind)
    name = f"{info.plural}.{info.gvk.group}" if info.gvk.group else str(info.plural)
    subject = f"{info.gvk.kind} ({info.gvk.api_version})"
    custom = not kind.__module__.startswith("kubeloop.api.")
    resource = None if isinstance(served, Failure) else next((one for one in served if one.gvr.resource == info.plural), None)
    if isinstance(served, Failure) and not served.absent:
        return DoctorFinding("kind", subject, "unknown", f"the server does not report whether it serves it: {served.why}")
    if resource is None:
        why = served.why if isinstance(served, Failure) else f"{info.gvk.api_version} has no {info.plural}"
        return DoctorFinding(
            "kind", subject, "failed", f"not served: {why}", _APPLY if custom else "is the server too old, or the API turned off?"
        )
    if resource.namespaced != info.namespaced:
        scopes = {True: "namespaced", False: "cluster-scoped"}
        said = f"{scopes[resource.namespaced]} at the server, {scopes[bool(info.namespaced)]} in the class"
        return DoctorFinding("kind", subject, "failed", said, "set namespaced=... in @custom_resource as the server does")
    if not custom:
        return DoctorFinding("kind", subject, "ok", "served")
    try:
        there = await client.get(CustomResourceDefinition, name)
    except NotFound:
        return DoctorFinding("kind", subject, "ok", "served, by another server than this one: its schema is not compared")
    except ApiError as error:
        return DoctorFinding(
            "kind", subject, "unknown", f"served; its definition cannot be read: {error}", "allow get on customresourcedefinitions"
        )
    return _compared(kind, subject, to_dict(there))


def _compared(kind: type[Resource], subject: str, there: JSONObject) -> DoctorFinding:
    (definition,) = definitions_of([kind])
    (mine,) = definition.document["spec"]["versions"]
    version = next(one for one in there["spec"]["versions"] if one["name"] == mine["name"])
    differences = list(version_differences(mine, version))
    if not differences:
        return DoctorFinding("kind", subject, "ok", "served, and its schema is that of the class")
    state: State = "failed" if any(bad for _, bad in differences) else "warning"
    told = [said for said, _ in sorted(differences, key=lambda difference: not difference[1])]
    more = f"; and {len(told) - _MOST} more" if len(told) > _MOST else ""
    return DoctorFinding("kind", subject, state, "; ".join(told[:_MOST]) + more, _APPLY)


def version_differences(mine: JSONObject, there: JSONObject) -> Iterator[tuple[str, bool]]:
    """Yield differences between a definition's version and the class, and whether the program cannot work with them.

    The program cannot work with a server that drops a field of the class, requires another type, or has no status subresource.
    """
    for name in ("status", "scale"):
        if name in (mine.get("subresources") or {}) and name not in (there.get("subresources") or {}):
            yield f"no subresource {name} at the server", True
    yield from schema_differences(_schema(mine), _schema(there))


def schema_differences(mine: JSONObject, there: JSONObject, path: str = "") -> Iterator[tuple[str, bool]]:
    """Yield differences between two structural schemas, and whether the program cannot work with them (see ``version_differences``).

    ``mine`` is the schema of the class, ``there`` the server's; ``path`` is their path for messages.
    """
    shown = path or "it"
    open_there = bool(there.get("x-kubernetes-preserve-unknown-fields")) and not there.get("properties")
    if open_there:
        return
    if _type(mine) != _type(there):
        yield f"{shown}: {_type(there)} at the server, {_type(mine)} in the class", True
        return
    own, other = mine.get("properties") or {}, there.get("properties") or {}
    for name, field in own.items():
        at = f"{path}.{name}" if path else name
        if at in ("apiVersion", "kind", "metadata"):
            continue
        if name in other:
            yield from schema_differences(field, other[name], at)
        elif not there.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{at}: not at the server, which drops it", True
    for name in other:
        at = f"{path}.{name}" if path else name
        if name not in own and at not in ("apiVersion", "kind", "metadata") and not mine.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{at}: not in the class", name in (there.get("required") or ())
    for inner in ("items", "additionalProperties"):
        if isinstance(mine.get(inner), dict) and isinstance(there.get(inner), dict):
            yield from schema_differences(mine[inner], there[inner], f"{path}[]")
    for word in sorted((mine.keys() | there.keys()) - _SILENT - {"properties", "items", "additionalProperties", "type"}):
        if _plain(word, mine.get(word)) != _plain(word, there.get(word)):
            yield f"{shown}: {word} is {there.get(word)!r} at the server, {mine.get(word)!r} in the class", False


def _schema(version: JSONObject) -> JSONObject:
    found: JSONObject = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return found


def _type(schema: JSONObject) -> str:
    return "integer or string" if schema.get("x-kubernetes-int-or-string") else str(schema.get("type") or "any type")


def _plain(word: str, value: Any) -> Any:
    """Normalise a value: the order of sets does not matter, and missing equals empty or false."""
    if word in ("required", "enum") and isinstance(value, list):
        return sorted(value, key=str)
    return value or (value if value == 0 and not isinstance(value, bool) else None)
