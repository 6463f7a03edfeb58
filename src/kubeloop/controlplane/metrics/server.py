"""An extension API server for metrics.k8s.io, the usage of nodes and pods, which registers as an APIService.

It listens on loopback over TLS, and serves only the API server, which authenticates with its front-proxy certificate. The API server
authenticates and authorizes users before it forwards their requests.

Source: Kubernetes documentation, "Configure the Aggregation Layer"; kubernetes-sigs/metrics-server.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import ssl
from functools import partial
from typing import Any, Protocol

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import Client
from kubeloop.controller import RunnableContext
from kubeloop.controlplane.metrics.documents import (
    GROUP,
    RESOURCES,
    VERSION,
    api_group_list,
    api_resource_list,
    metrics_list,
    metrics_object,
)
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.request_info import RequestInfo, request_info
from kubeloop.endpoints.responses import finish, status_answer
from kubeloop.meta import (
    ApiError,
    GroupResource,
    KubeloopError,
    NotFound,
    Selector,
    Unstructured,
    parse_field_selector,
    parse_label_selector,
)
from kubeloop.pki import CertificateAuthority
from kubeloop.serving.answer import Answer, Reply
from kubeloop.serving.listener import Listener, server_context
from kubeloop.serving.request import Request
from kubeloop.tasks import Supervisor
from kubeloop.types import JSONObject

_LOG = logging.getLogger("kubeloop.controlplane.metrics")
_NAMESPACE, _NAME = "kube-system", "kubeloop-metrics"
_AGGREGATED = "APIGroupDiscoveryList"
_MANAGER = "kubeloop-metrics"
_KINDS = {name: kind for name, kind, _ in RESOURCES}


class UsageSource(Protocol):
    """Measures the usage of nodes and pods that a ``MetricsServer`` serves."""

    async def measure(self, client: Client) -> None:
        """Measure until the call is cancelled."""

    async def pods(self, info: RequestInfo, labels: Selector) -> list[JSONObject]:
        """Return the PodMetrics for a request: of the pod that it names, or of the pods of its namespace that ``labels`` select."""

    async def nodes(self, info: RequestInfo, labels: Selector) -> list[JSONObject]:
        """Return the NodeMetrics for a request: of the node that it names, or of the nodes that ``labels`` select."""


class MetricsServer:
    """Serves metrics.k8s.io until the manager stops, and then deletes the APIService.

    Args:
        source: Measures the usage of nodes and pods.
    """

    def __init__(self, source: UsageSource) -> None:
        self._source = source
        self._allowed: frozenset[str] = frozenset()

    async def run(self, context: RunnableContext) -> None:
        """Serve until the call is cancelled; return at once if the API server does not support extension servers.

        Raises:
            KubeloopError: The server cannot listen, or is not allowed to register.
        """
        client = context.client
        try:
            proxies = (await client.get(ConfigMap, "extension-apiserver-authentication", namespace="kube-system")).data
        except NotFound:
            _LOG.warning("metrics.k8s.io is not served: the API server publishes no extension-apiserver-authentication")
            return
        authority = CertificateAuthority.create("kubeloop-metrics-ca")
        self._allowed = frozenset(json.loads(proxies.get("requestheader-allowed-names") or "[]"))
        listener = Listener(self._handle, _tls(authority, proxies.get("requestheader-client-ca-file") or ""))
        await listener.bind()
        try:
            await listener.serve()
            for document in _registration(listener.port, authority):
                await client.apply(Unstructured.from_dict(document), field_manager=_MANAGER, force=True)
            async with Supervisor(client.clock, _LOG) as tasks:
                tasks.start(partial(self._source.measure, client), name="usage")
                await client.clock.sleep(float("inf"))
        finally:
            with contextlib.suppress(KubeloopError):
                await client.delete(Unstructured.from_dict(_api_service(listener.port, authority)))
            await listener.close()

    async def _handle(self, request: Request) -> Reply:
        try:
            answer = await self._answer(request)
        except ApiError as error:
            answer = status_answer(error.status)
        finish(request, answer)
        return answer

    async def _answer(self, request: Request) -> Answer:
        subject = (request.peer_certificate or {}).get("subject", ())
        names = {value for part in subject for key, value in part if key == "commonName"}
        if self._allowed and not names & self._allowed:
            raise api_errors.unauthorized()
        if request.path == "/apis" and _AGGREGATED in request.header("Accept"):
            return Answer(object=api_group_list(), content_type="application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
        if request.path == f"/apis/{GROUP}/{VERSION}":
            return Answer(object=api_resource_list())
        if request.path == "/openapi/v3":
            return Answer(object={"paths": {}})
        info = request_info(request)
        if (info.group, info.version) != (GROUP, VERSION) or info.resource not in _KINDS or info.subresource:
            raise api_errors.no_such_resource()
        if info.verb not in ("get", "list"):
            raise api_errors.verb_not_supported(info.group_resource, info.verb)
        kind, read = _KINDS[info.resource], self._source.nodes if info.resource == "nodes" else self._source.pods
        labels, fields = parse_label_selector(request.parameter("labelSelector")), request.parameter("fieldSelector")
        chosen = await read(info, labels)
        if info.verb == "get":
            if not chosen:
                name = f"{info.namespace}/{info.name}" if info.namespace else info.name
                raise api_errors.not_found(GroupResource(GROUP, kind.lower()), name)
            return Answer(object=metrics_object(kind, chosen[0]))
        if fields:
            selector = parse_field_selector(fields)
            chosen = [one for one in chosen if selector.matches(_selectable(one["metadata"]))]
        return Answer(object=metrics_list(kind, chosen))


def _selectable(metadata: JSONObject) -> dict[str, str]:
    return {f"metadata.{key}": str(metadata.get(key, "")) for key in ("name", "namespace")}


def _tls(authority: CertificateAuthority, proxies: str) -> ssl.SSLContext:
    issued = authority.issue(_NAME, dns_names=[f"{_NAME}.{_NAMESPACE}.svc"], ip_addresses=["127.0.0.1"], server=True)
    context = server_context(issued.certificate, issued.key, proxies.encode())
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _registration(port: int, authority: CertificateAuthority) -> list[dict[str, Any]]:
    service = {"type": "ExternalName", "externalName": "127.0.0.1"}
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": "system:aggregated-metrics-reader",
            "labels": {f"rbac.authorization.k8s.io/aggregate-to-{one}": "true" for one in ("view", "edit", "admin")},
        },
        "rules": [{"apiGroups": [GROUP], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]}],
    }
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": _NAME, "namespace": _NAMESPACE}, "spec": service},
        role,
        _api_service(port, authority),
    ]


def _api_service(port: int, authority: CertificateAuthority) -> dict[str, Any]:
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{VERSION}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "version": VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "caBundle": base64.b64encode(authority.certificate).decode(),
            "service": {"namespace": _NAMESPACE, "name": _NAME, "port": port},
        },
    }
