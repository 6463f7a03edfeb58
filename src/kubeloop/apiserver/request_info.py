"""What a request's method and path ask for: verb, group, version, resource, subresource, namespace, name.

Source: k8s.io/apiserver pkg/endpoints/request/requestinfo.go (RequestInfoFactory.NewRequestInfo).
"""

from __future__ import annotations

from dataclasses import dataclass

from kubeloop.meta.kinds import GroupResource, GroupVersion
from kubeloop.serving.request import Request

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

#: Segments below a namespace's name that are its subresources, not resources in it.
_OF_NAMESPACE = frozenset({"status", "finalize"})


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """``is_resource`` False: only ``verb`` (the lower-case method) and ``path`` mean anything.

    ``name_in_path`` tells ``/pods/x`` from ``/pods?fieldSelector=metadata.name=x``, whose ``name`` is filled for authorization.
    ``rest`` holds path segments after the subresource (``/pods/x/proxy/a/b``).
    """

    verb: str
    path: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    name_in_path: bool = False
    rest: tuple[str, ...] = ()

    @property
    def group_version(self) -> GroupVersion:
        return GroupVersion(self.group, self.version)

    @property
    def group_resource(self) -> GroupResource:
        return GroupResource(self.group, self.resource)


def request_info(request: Request) -> RequestInfo:
    """Never fails: what is not understood is a non-resource request, which no handler owns."""
    path = request.path
    plain = RequestInfo(request.method.lower(), path)
    parts = path.strip("/").split("/")
    if len(parts) < 3 or parts[0] not in ("api", "apis"):
        return plain
    group = ""
    rest = parts[1:]
    if parts[0] == "apis":
        group, rest = rest[0], rest[1:]
    if len(rest) < 2:
        return plain
    version, rest = rest[0], rest[1:]
    verb = _VERBS.get(request.method, "")
    watched = rest[0] == "watch"  # the old form /api/v1/watch/pods
    if watched:
        verb, rest = "watch", rest[1:]
    namespace = ""
    if len(rest) > 1 and rest[0] == "namespaces":
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _OF_NAMESPACE:
            rest = rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    named = bool(name)
    if not name and verb == "get":
        verb = "watch" if _truth(request, "watch") else "list"
        name = _name_of_selector(request.parameter("fieldSelector"))
    elif not name and verb == "delete":
        verb = "deletecollection"
    return RequestInfo(
        verb=verb,
        path=path,
        is_resource=True,
        group=group,
        version=version,
        resource=rest[0] if rest else "",
        subresource=rest[2] if len(rest) > 2 else "",
        namespace=namespace,
        name=name,
        name_in_path=named,
        rest=tuple(rest[3:]),
    )


def _truth(request: Request, name: str) -> bool:
    """A boolean parameter as upstream converts it: present and neither false nor 0 means true."""
    values = request.query.get(name)
    return values is not None and values[0].lower() not in ("false", "0")


def _name_of_selector(text: str) -> str:
    if "metadata.name=" not in text:
        return ""
    for term in text.split(","):
        field, equals, value = term.partition("=")
        if field == "metadata.name" and equals:
            return value.removeprefix("=")
    return ""
