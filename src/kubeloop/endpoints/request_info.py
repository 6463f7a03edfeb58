"""The meaning of a request's method and path: verb, group, version, resource, subresource, namespace, name.

Source: k8s.io/apiserver pkg/endpoints/request/requestinfo.go (RequestInfoFactory.NewRequestInfo).
"""

from __future__ import annotations

import msgspec

from kubeloop.meta.kinds import GroupResource, GroupVersion
from kubeloop.meta.names import path_segment
from kubeloop.meta.selectors import FieldOperator, parse_field_selector, parse_label_selector
from kubeloop.meta.strconv import decimal
from kubeloop.serving.request import Request

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

#: First path segments that name the verb, as in the deprecated form ``/api/v1/watch/pods``.
PREFIXES = frozenset({"watch", "proxy"})
#: Verbs whose requests may choose objects by selectors.
_SELECTING = frozenset({"list", "watch", "deletecollection"})

#: Segments below a namespace's name that are its subresources, not resources in it.
_OF_NAMESPACE = frozenset({"status", "finalize"})


class RequestInfo(msgspec.Struct, frozen=True):
    """The verb, resource and object of a request.

    If ``is_resource`` is false, only ``verb`` (the HTTP method in lower case) and ``path`` are set.
    ``name_in_path`` distinguishes ``/pods/x`` from ``/pods?fieldSelector=metadata.name=x``, where ``name`` is set only for authorization.
    ``field_selector`` is the selector for authorization. It is empty if the path names the verb (``/api/v1/watch/pods``), because such a
    request may ignore its selector. ``rest`` holds the path segments after the subresource (``/pods/x/proxy/a/b``).
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
    field_selector: str = ""

    @property
    def group_version(self) -> GroupVersion:
        return GroupVersion(self.group, self.version)

    @property
    def group_resource(self) -> GroupResource:
        return GroupResource(self.group, self.resource)


def request_info(request: Request) -> RequestInfo:
    """Parse the method, path and query of a request. Never fails: every path without a resource is a non-resource request."""
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
    prefixed = rest[0] in PREFIXES
    if prefixed:
        verb, rest = rest[0], rest[1:]
    namespace = ""
    if len(rest) > 1 and rest[0] == "namespaces":
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _OF_NAMESPACE:
            rest = rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    named = bool(name)
    if not name and verb == "get":
        verb = "watch" if _truth(request, "watch") else "list"
        name = _selected_name(request)
    elif not name and verb == "delete":
        verb = "deletecollection"
    return RequestInfo(
        verb=verb,
        path=path,
        is_resource=True,
        group=group,
        version=version,
        resource=rest[0] if rest else "",
        subresource=rest[2] if len(rest) > 2 and verb != "proxy" else "",
        namespace=namespace,
        name=name,
        name_in_path=named,
        rest=tuple(rest[3:]),
        field_selector=request.parameter("fieldSelector") if verb in _SELECTING and not prefixed else "",
    )


def _truth(request: Request, name: str) -> bool:
    """Return a boolean parameter as upstream converts it: true if the parameter is present and is neither ``false`` nor ``0``."""
    values = request.query.get(name)
    return values is not None and values[0].lower() not in ("false", "0")


def _selected_name(request: Request) -> str:
    """Return the name that the field selector requires, or an empty text if it requires none or if a list parameter is malformed."""
    text = request.parameter("fieldSelector")
    if "metadata.name" not in text:
        return ""
    numbers = (values[0] for one in ("limit", "timeoutSeconds") if (values := request.query.get(one)))
    if any(decimal(value) is None for value in numbers):
        return ""
    try:
        terms = parse_field_selector(text).terms
        parse_label_selector(request.parameter("labelSelector"))
    except ValueError:
        return ""
    name = next((one.value for one in terms if one.field == "metadata.name" and one.operator is FieldOperator.EQUALS), "")
    return "" if path_segment(name) else name
