"""What servers behind this one must know to believe who its clients are: ConfigMap kube-system/extension-apiserver-authentication.

Source: k8s.io/kubernetes pkg/controlplane/controller/clusterauthenticationtrust; documentation, "Configure the Aggregation Layer".
"""

from __future__ import annotations

import copy
import json
from typing import Any, Final

from kubeloop.apiserver.authentication.request_header import CONVENTIONAL, RequestHeaders
from kubeloop.apiserver.bootstrap import SYSTEM
from kubeloop.apiserver.ownership import SERVER
from kubeloop.apiserver.registry import Registry
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.apiserver.writing import Call, Writer
from kubeloop.meta.kinds import GroupVersionResource

JSONObject = dict[str, Any]

_CONFIGMAPS: Final = GroupVersionResource("", "v1", "configmaps")
_NAMESPACE: Final = "kube-system"
NAME: Final = "extension-apiserver-authentication"


def trust(clients: bytes, proxies: bytes, headers: RequestHeaders, names: tuple[str, ...]) -> dict[str, str]:
    """The ConfigMap's data. ``clients`` and ``proxies``: whose certificates are believed, PEM; ``names``: those of proxies, none: all."""
    data = {"client-ca-file": clients.decode()}
    if proxies:
        data |= {
            "requestheader-username-headers": _list(headers.names),
            "requestheader-group-headers": _list(headers.groups),
            "requestheader-extra-headers-prefix": _list(headers.extra_prefixes),
            "requestheader-client-ca-file": proxies.decode(),
            "requestheader-allowed-names": _list(names),
        }
        if headers.uids:
            data["requestheader-uid-headers"] = _list(headers.uids)
    return data


def with_conventional(headers: RequestHeaders) -> RequestHeaders:
    """With the headers in which this server, as a proxy, says who its client is."""

    def both(given: tuple[str, ...], own: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*given, *own)))

    return RequestHeaders(
        both(headers.names, CONVENTIONAL.names),
        both(headers.uids, CONVENTIONAL.uids),
        both(headers.groups, CONVENTIONAL.groups),
        both(headers.extra_prefixes, CONVENTIONAL.extra_prefixes),
    )


async def publish(registry: Registry, writer: Writer, data: dict[str, str]) -> None:
    """Write the ConfigMap where it is not so already.

    Raises:
        ApiError: it cannot be written now.
    """
    resource = registry.get(_CONFIGMAPS)
    if resource is None:
        return
    new = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": _NAMESPACE}, "data": data}
    found = await writer.objects.get(resource, _NAMESPACE, NAME)
    if found is not None and found.obj.get("data") == data:
        return

    async def replaced(old: JSONObject) -> JSONObject:
        return {**copy.deepcopy(old), "data": data}

    context = RequestContext(SYSTEM.name, SYSTEM.groups, _NAMESPACE)
    call = Call(resource, _NAMESPACE, NAME, SYSTEM, context, manager=SERVER)
    await writer.update(call, replaced, retry=True, create=lambda: new, create_always=True)


def _list(texts: tuple[str, ...]) -> str:
    return json.dumps(list(texts), separators=(",", ":"))
