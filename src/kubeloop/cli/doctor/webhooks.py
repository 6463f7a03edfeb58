"""Checks webhooks for the program's kinds: whether a backend of each could respond.

They are not called: a server does that, from its own network. Checked are ready endpoints of a Service, and a CA bundle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kubeloop.api.admissionregistration.v1 import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from kubeloop.api.apiextensions.v1 import CustomResourceDefinition
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.cli.doctor.findings import DoctorFinding, State
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.codec import to_dict
from kubeloop.meta import ApiError, Forbidden, GroupVersionResource, NotFound, Resource, kind_info
from kubeloop.types import JSONObject


async def webhooks(client: Client, kinds: Iterable[type[Resource]]) -> list[DoctorFinding]:
    """Return a finding for each webhook that is called for one of ``kinds``, or converts it."""
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
    """Return the webhook that converts between a kind's versions, in the form of a configuration."""
    resource = kind_info(kind).gvr.group_resource
    try:
        definition = await client.get(CustomResourceDefinition, str(resource))
    except (NotFound, Forbidden):  # reported already by the check of kinds
        return None
    conversion = to_dict(definition)["spec"].get("conversion") or {}
    if conversion.get("strategy") != "Webhook":
        return None
    return {"name": f"conversion of {resource}", "clientConfig": (conversion.get("webhook") or {}).get("clientConfig")}


def _concerns_any(hook: JSONObject, wanted: Iterable[GroupVersionResource]) -> bool:
    return any(_concerns(rule, gvr) for rule in hook.get("rules") or () for gvr in wanted)


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
        fix = "start what serves it, or take its configuration away: until then each write of these kinds is refused"
        fix = fix if state == "failed" else "start what serves it; its failures are ignored, so that nothing is checked now"
        return DoctorFinding("webhook", name, state, f"{place} has no ready endpoint", fix)
    if not where.get("caBundle"):
        fix = "set caBundle, or have it injected: without it the server trusts no certificate but those of public authorities"
        return DoctorFinding("webhook", name, "warning", f"{place}: {ready} ready, but no caBundle", fix)
    return DoctorFinding("webhook", name, "ok", f"{place}: {ready} ready")


def _ready(slice_: JSONObject) -> Iterator[JSONObject]:
    for endpoint in slice_.get("endpoints") or ():
        # Unknown counts as ready (discovery/v1 EndpointConditions).
        if (endpoint.get("conditions") or {}).get("ready", True):
            yield endpoint
