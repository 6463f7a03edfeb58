"""An extension API server for metrics.k8s.io: the usage of simulated nodes and pods, registered with the API server as an APIService.

It listens on loopback over TLS, and answers only the API server, which proves itself with the certificate of a front proxy. The API server
authenticates and authorizes users before it forwards their requests.

Source: Kubernetes documentation, "Configure the Aggregation Layer"; kubernetes-sigs/metrics-server.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import ssl
from typing import TYPE_CHECKING, Any

from kubeloop.api.core.v1 import ConfigMap, Node, Pod
from kubeloop.codec import to_dict
from kubeloop.controller import RunnableContext
from kubeloop.controlplane.simulation.metrics import (
    GROUP,
    RESOURCES,
    VERSION,
    api_group_list,
    api_resource_list,
    metrics_list,
    metrics_object,
    node_metrics,
    pod_metrics,
)
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.request_info import RequestInfo, request_info
from kubeloop.endpoints.responses import finish, status_answer
from kubeloop.meta import ApiError, GroupResource, KubeloopError, NotFound, Unstructured, parse_field_selector, parse_label_selector
from kubeloop.pki import CertificateAuthority
from kubeloop.serving.answer import Answer, Reply
from kubeloop.serving.listener import Listener, server_context
from kubeloop.serving.request import Request
from kubeloop.types import JSONObject

if TYPE_CHECKING:
    from kubeloop.controlplane.simulation.nodes import SimulatedNodes

_LOG = logging.getLogger("kubeloop.controlplane.metrics")
_NAMESPACE, _NAME = "kube-system", "kubeloop-metrics"
_AGGREGATED = "APIGroupDiscoveryList"
_MANAGER = "kubeloop-metrics"
_KINDS = {name: kind for name, kind, _ in RESOURCES}


class SimulatedMetrics:
    """Serves the usage of simulated nodes and of their pods until the manager stops; then the APIService is deleted.

    Args:
        simulated: The nodes; the server reads their caches.
    """

    def __init__(self, simulated: SimulatedNodes) -> None:
        self._simulated = simulated
        self._allowed: frozenset[str] = frozenset()

    async def run(self, context: RunnableContext) -> None:
        """Serve until the call is cancelled.

        Raises:
            KubeloopError: The server cannot listen, or must not register.
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
            await context.client.clock.sleep(float("inf"))
        finally:
            with contextlib.suppress(KubeloopError):
                await client.delete(Unstructured.from_dict(_api_service(listener.port, authority)))
            await listener.close()

    async def _handle(self, request: Request) -> Reply:
        try:
            answer = self._answer(request)
        except ApiError as error:
            answer = status_answer(error.status)
        finish(request, answer)
        return answer

    def _answer(self, request: Request) -> Answer:
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
        kind, items = _KINDS[info.resource], self._nodes(info) if info.resource == "nodes" else self._pods(info)
        if info.verb == "get":
            if not items:
                name = f"{info.namespace}/{info.name}" if info.namespace else info.name
                raise api_errors.not_found(GroupResource(GROUP, kind.lower()), name)
            return Answer(object=metrics_object(kind, items[0]))
        labels, fields = parse_label_selector(request.parameter("labelSelector")), request.parameter("fieldSelector")
        chosen = [one for one in items if labels.matches(one["metadata"].get("labels") or {})]
        if fields:
            selector = parse_field_selector(fields)
            chosen = [one for one in chosen if selector.matches(_selectable(one["metadata"]))]
        return Answer(object=metrics_list(kind, chosen))

    def _pods(self, info: RequestInfo) -> list[JSONObject]:
        lister = self._simulated.lister(Pod)
        if info.verb == "get":
            pods = [one for one in [lister.get(info.name, info.namespace)] if one is not None]
        else:
            pods = list(lister.each(info.namespace or None))
        return [metrics for pod in pods if (metrics := self._of_pod(to_dict(pod))) is not None]

    def _of_pod(self, pod: JSONObject) -> JSONObject | None:
        if (pod.get("spec") or {}).get("nodeName") not in self._simulated.nodes:
            return None
        return pod_metrics(pod, self._simulated.rules.simulation_of(pod), self._simulated.clock.wall())

    def _nodes(self, info: RequestInfo) -> list[JSONObject]:
        names = [info.name] if info.verb == "get" else list(self._simulated.nodes)
        result = []
        for name in names:
            node = self._simulated.lister(Node).get(name)
            if node is None or name not in self._simulated.nodes or self._simulated.is_down(name):
                continue
            pods = [metrics for pod in self._simulated.pods_of(name) if (metrics := self._of_pod(to_dict(pod))) is not None]
            result.append(node_metrics(to_dict(node), pods, self._simulated.templates[name].usage, self._simulated.clock.wall()))
        return result


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
