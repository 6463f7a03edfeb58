"""From a CustomResourceDefinition to the resources that the registry serves, one for each served version."""

from __future__ import annotations

import base64
import hashlib
from functools import partial
from typing import Final

from kubeloop.apiserver import refusals
from kubeloop.apiserver.crd.columns import columns_of
from kubeloop.apiserver.crd.converter import WebhookConverter
from kubeloop.apiserver.crd.custom import CustomStrategy
from kubeloop.apiserver.crd.definition import (
    JSONObject,
    accepted_names,
    group_of,
    has_status_subresource,
    is_namespaced,
    scale_subresource,
    storage_version,
    versions_of,
)
from kubeloop.apiserver.discovery.version_order import by_priority
from kubeloop.apiserver.resource import ServedResource
from kubeloop.apiserver.webhooks.conversion import ConversionWebhook, Post, calls_nobody
from kubeloop.meta.kinds import GroupResource, GroupVersionKind, GroupVersionResource

_VERBS: Final = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


def served_resources(crd: JSONObject, post: Post = calls_nobody) -> list[ServedResource]:
    """Under the accepted names. All versions share a converter, and storage in the storage version. ``post`` asks webhooks."""
    names, group = accepted_names(crd), group_of(crd)
    kind, plural = names["kind"], names["plural"]
    stored = GroupVersionKind(group, storage_version(crd), kind)
    resource, terminating = GroupResource(group, plural), bool(crd["metadata"].get("deletionTimestamp"))
    strategies = {version["name"]: CustomStrategy(version, resource, kind=kind, terminating=terminating) for version in versions_of(crd)}
    schemas = {name: strategy.schema for name, strategy in strategies.items()}
    for strategy in strategies.values():
        strategy.schemas = schemas

    def convert(obj: JSONObject, to: str) -> JSONObject:
        """Strategy None: only apiVersion changes. Defaults are those of the version it comes from, as upstream decodes storage."""
        came_from = strategies.get(str(obj.get("apiVersion", "")).rpartition("/")[2])
        if came_from is None:
            raise refusals.undefined_version(obj.get("apiVersion", ""))
        came_from.conform(obj)
        came_from.default(obj)
        converted = {**obj, "apiVersion": f"{group}/{to}"}
        target = strategies.get(to)
        if target is not None:
            target.conform(converted)
        return converted

    conversion = crd["spec"].get("conversion") or {}
    by_webhook = conversion.get("strategy") == "Webhook"
    converter = WebhookConverter(ConversionWebhook(conversion, post), strategies) if by_webhook else None
    by_api_version = {f"{group}/{name}": schema for name, schema in schemas.items()}
    return [
        ServedResource(
            gvr=GroupVersionResource(group, version["name"], plural),
            kind=kind,
            singular=names.get("singular") or kind.lower(),
            namespaced=is_namespaced(crd),
            verbs=_VERBS,
            schema=strategies[version["name"]].schema,
            strategy_source=partial(strategies.__getitem__, version["name"]),
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            subresources=_subresources(version),
            storage=stored,
            list_kind=names.get("listKind") or f"{kind}List",
            scale=strategies[version["name"]].scale,
            columns=columns_of(version),
            custom=True,
            deprecation_warning=_deprecation(crd, version, kind),
            convert=None if by_webhook else convert,
            converter=converter,
            extra={"definition": crd, "version": version, "storage_version_hash": _hash(stored), "schemas": by_api_version},
        )
        for version in versions_of(crd)
        if version.get("served")
    ]


def _subresources(version: JSONObject) -> tuple[str, ...]:
    found = ("status",) if has_status_subresource(version) else ()
    return (*found, "scale") if scale_subresource(version) is not None else found


def _deprecation(crd: JSONObject, version: JSONObject, kind: str) -> str:
    """The definition's own text, or one that names the best version to use instead."""
    if not version.get("deprecated"):
        return ""
    if version.get("deprecationWarning"):
        return str(version["deprecationWarning"])
    group, name = group_of(crd), version["name"]
    current = {one["name"] for one in versions_of(crd) if one.get("served") and not one.get("deprecated")}
    order = by_priority([name, *current])
    better = f"; use {group}/{order[0]} {kind}" if order[0] != name else ""
    return f"{group}/{name} {kind} is deprecated{better}"


def _hash(kind: GroupVersionKind) -> str:
    """As discovery shows it, to tell clients that the stored version changed."""
    return base64.b64encode(hashlib.sha256("/".join(kind).encode()).digest()[:8]).decode()
