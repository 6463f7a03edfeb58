"""Creates the resources of a CustomResourceDefinition for the registry, one for each served version."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import Final

from kubeloop.apiserver.crd.conversion import ConversionWebhook, Post, call_no_webhook
from kubeloop.apiserver.crd.definition import (
    accepted_names,
    group_of,
    has_status_subresource,
    is_namespaced,
    scale_subresource,
    storage_version,
    versions_of,
)
from kubeloop.apiserver.crd.strategies import CustomResourceStrategy
from kubeloop.apiserver.registry.registry import by_priority
from kubeloop.apiserver.registry.resource import ConversionNeeded, ServedResource
from kubeloop.apiserver.registry.strategy import Strategy
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.encoding import decode, encode
from kubeloop.endpoints.tables.printer_columns import columns_of
from kubeloop.meta.kinds import GroupResource, GroupVersionKind, GroupVersionResource
from kubeloop.schema import TypeSchema
from kubeloop.tasks import result_of
from kubeloop.types import JSONObject

# Converts custom objects between versions through a webhook: defaults and prunes by the schemas of both versions, and caches the results.
#
# Source: apiextensions-apiserver pkg/apiserver (customresource_handler.go: storage decodes, defaults, converts, prunes).


_Key = tuple[bytes, str]
#: Number of cached results. Each has a few KiB.
_MOST_KNOWN = 4096


class WebhookConverter:
    """Converts objects of one definition from any version to any other.

    Guarantees
        While the result for an object and version is cached, the webhook is not called again for it. Concurrent callers share one call.
        All objects of one call that are not cached are sent in one review.
    """

    def __init__(self, webhook: ConversionWebhook, strategies: Mapping[str, Strategy]) -> None:
        """Create a converter with an empty cache. ``strategies`` maps the name of a version (``v1``) to its strategy."""
        self._webhook = webhook
        self._strategies = strategies
        self._known: OrderedDict[_Key, bytes] = OrderedDict()
        self._asked: dict[_Key, asyncio.Task[dict[_Key, bytes]]] = {}

    async def convert(self, objects: list[JSONObject], to: str, *, stored: bool = False) -> list[JSONObject]:
        """Return new objects in the API version ``to``. If ``stored`` is True, the defaults of their stored version are set first.

        Raises:
            ApiError: The webhook failed.
        """
        sources = [self._source(one, to, stored=stored) for one in objects]
        keys = [(source, to) for source in sources]
        value = {key: self._known[key] for key in keys if key in self._known}
        missing = [key for key in dict.fromkeys(keys) if key not in value and key not in self._asked]
        if missing:
            task = asyncio.create_task(self._ask(missing, to), name=f"conversion to {to}")
            task.add_done_callback(lambda ended: self._done(ended, missing))
            self._asked |= dict.fromkeys(missing, task)
        for task in {self._asked[key] for key in keys if key not in value}:
            converted = await result_of(task)
            value |= converted
        return [decode(value[key]) for key in keys]

    def known(self, obj: JSONObject, to: str) -> JSONObject:
        """Return the cached result of a conversion.

        Raises:
            ConversionNeeded: It is not in the cache.
        """
        value = self._known.get((self._source(obj, to, stored=False), to))
        if value is None:
            raise ConversionNeeded(obj, to)
        tree: JSONObject = decode(value)
        return tree

    def _source(self, obj: JSONObject, to: str, *, stored: bool) -> bytes:
        """Return the encoded object for the conversion request."""
        if obj.get("apiVersion") == to:
            return encode(obj)
        strategy = self._strategies.get(_version(obj))
        if strategy is None:
            raise api_errors.undefined_version(obj.get("apiVersion", ""))
        if stored:
            strategy.conform(obj)
            strategy.default(obj)
        return encode(obj)

    async def _ask(self, keys: list[_Key], to: str) -> dict[_Key, bytes]:
        trees: dict[_Key, JSONObject] = {key: decode(key[0]) for key in keys}
        foreign = [key for key, tree in trees.items() if tree.get("apiVersion") != to]
        made = await self._webhook.convert([trees[key] for key in foreign], to) if foreign else []
        target = self._strategies.get(to.rpartition("/")[2])
        for key, tree in zip(foreign, made, strict=True):
            if target is not None:
                target.conform(tree)
            trees[key] = tree
        return {key: encode(tree) for key, tree in trees.items()}

    def _done(self, task: asyncio.Task[dict[_Key, bytes]], keys: list[_Key]) -> None:
        for key in keys:
            self._asked.pop(key, None)
        if task.cancelled() or task.exception() is not None:
            return  # The waiters get the error. Reading it here avoids asyncio's warning if there is no waiter.
        for key, value in task.result().items():
            self._known[key] = value
        while len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)


def _version(obj: JSONObject) -> str:
    return str(obj.get("apiVersion", "")).rpartition("/")[2]


_VERBS: Final = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


def served_resources(crd: JSONObject, post: Post = call_no_webhook) -> list[ServedResource]:
    """Return a resource for each served version, under the accepted names. All share a converter and the storage version.

    ``post`` sends conversion reviews.
    """
    names, group = accepted_names(crd), group_of(crd)
    kind, plural = names["kind"], names["plural"]
    stored = GroupVersionKind(group, storage_version(crd), kind)
    resource, terminating = GroupResource(group, plural), bool(crd["metadata"].get("deletionTimestamp"))
    schemas: dict[str, TypeSchema] = {}
    strategies = {
        version["name"]: CustomResourceStrategy(version, resource, kind=kind, terminating=terminating, schemas=schemas)
        for version in versions_of(crd)
    }
    schemas |= {name: strategy.schema for name, strategy in strategies.items()}

    def convert(obj: JSONObject, to: str) -> JSONObject:
        """Convert an object by the strategy None: only apiVersion changes.

        As upstream, the defaults of the stored version are set, not those of the requested version.
        """
        came_from = strategies.get(str(obj.get("apiVersion", "")).rpartition("/")[2])
        if came_from is None:
            raise api_errors.undefined_version(obj.get("apiVersion", ""))
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
    value = ("status",) if has_status_subresource(version) else ()
    return (*value, "scale") if scale_subresource(version) is not None else value


def _deprecation(crd: JSONObject, version: JSONObject, kind: str) -> str:
    """Return the deprecation warning of a version: the text in the definition, or a text that names the best version to use instead."""
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
    """Return the storage version hash of discovery, by which clients notice a change of the storage version."""
    return base64.b64encode(hashlib.sha256("/".join(kind).encode()).digest()[:8]).decode()
