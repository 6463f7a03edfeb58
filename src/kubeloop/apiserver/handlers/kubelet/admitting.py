"""Admission of connections: plug-ins and webhooks may refuse an exec, attach, port-forward or proxied request, seen as its options.

Source: k8s.io/apiserver pkg/endpoints/handlers/rest.go (ConnectResource).
"""

from __future__ import annotations

from typing import Final

from kubeloop.apiserver.handlers.connect_admission import ask_admission
from kubeloop.apiserver.handlers.kubelet.options import truth
from kubeloop.apiserver.handlers.scope import RequestScope
from kubeloop.meta.integers import decimal
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.serving.request import Request
from kubeloop.types import JSONObject

_KINDS: Final = {
    ("pods", "exec"): "PodExecOptions",
    ("pods", "attach"): "PodAttachOptions",
    ("pods", "portforward"): "PodPortForwardOptions",
    ("pods", "proxy"): "PodProxyOptions",
    ("services", "proxy"): "ServiceProxyOptions",
    ("nodes", "proxy"): "NodeProxyOptions",
}


async def admit(scope: RequestScope) -> None:
    """Raises whatever admission raises. A dry run is not asked about: it is refused anyway."""
    if "dryRun" in scope.request.query:
        return
    info = scope.info
    kind = GroupVersionKind("", "v1", _KINDS[info.resource, info.subresource])
    obj = {"kind": kind.kind, "apiVersion": "v1", **_options(scope.request, info.subresource)}
    await ask_admission(scope, obj, kind=kind)


def _options(request: Request, subresource: str) -> JSONObject:
    """The options as Go writes them: what is false or empty is left out."""
    query = request.query
    if subresource == "proxy":
        path = request.path.partition("/proxy")[2]
        return {"path": path} if path else {}
    if subresource == "portforward":
        given = [decimal(part) for value in query.get("ports", ()) for part in value.split(",")]
        ports = [port for port in given if port is not None]
        return {"ports": ports} if ports else {}
    found: JSONObject = {name: True for name in ("stdin", "stdout", "stderr", "tty") if truth(request, name)}
    if container := request.parameter("container"):
        found["container"] = container
    if subresource == "exec":
        found["command"] = list(query.get("command", ())) or None
    return found
