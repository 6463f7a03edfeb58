"""What a read wants from the cache: its parameters, and the objects that it selects.

Requests that the cache cannot answer exactly as the API server would are forwarded: ``read_query`` returns None for them.
ReflectorSource: Kubernetes API concepts, "Resource versions".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from kubeloop.cache.blobs.head import Head
from kubeloop.endpoints.negotiation import JSON
from kubeloop.endpoints.request_info import RequestInfo
from kubeloop.meta.errors import ApiError
from kubeloop.meta.selectors import FieldOperator, FieldSelector, FieldTerm, Selector, parse_field_selector, parse_label_selector
from kubeloop.meta.strconv import decimal
from kubeloop.proxy.cached.objects import POD_FIELDS
from kubeloop.proxy.encodings import Form, form_of
from kubeloop.serving.request import Request, query_pairs

_TRUE: Final = ("true", "1")
_FALSE: Final = ("", "false", "0")
#: Paths whose parts the proxy may write into the paths of requests that it sends as itself. They have no escapes, no segments of dots
#: alone, and no characters that end a path.
_PLAIN_PATH: Final = re.compile(r"(?:/(?!\.\.?(?:/|\Z))[A-Za-z0-9._:~-]+)+")
#: Parameters of each verb. Others change the answer in ways that the cache does not know.
_KNOWN: Final = {
    "get": frozenset({"resourceVersion", "pretty"}),
    "list": frozenset(
        {"resourceVersion", "resourceVersionMatch", "limit", "labelSelector", "fieldSelector", "timeoutSeconds", "pretty", "watch"}
        | {"allowWatchBookmarks"}
    ),
    "watch": frozenset(
        {"resourceVersion", "resourceVersionMatch", "labelSelector", "fieldSelector", "timeoutSeconds", "pretty", "watch"}
        | {"allowWatchBookmarks", "sendInitialEvents"}
    ),
}


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """The parameters of a read that the cache can answer.

    Attributes:
        verb: get, list or watch.
        version: The resourceVersion; 0: any version of the cache.
        consistent: The client wants the newest state: it gave no resourceVersion.
        form: The form of the response: objects or metadata, in JSON.
        initial_events: A watch ends its initial events with a bookmark.
        bookmarks: A watch gets bookmarks.
        timeout: Seconds of a watch; 0: the proxy's default.
    """

    verb: Literal["get", "list", "watch"]
    version: int
    consistent: bool
    form: Form
    initial_events: bool = False
    bookmarks: bool = False
    timeout: int = 0

    @property
    def resumes(self) -> bool:
        """Whether a watch continues after a version, without the state first."""
        return self.verb == "watch" and self.version > 0 and not self.initial_events


def read_query(request: Request, info: RequestInfo) -> ReadQuery | None:
    """Return the parameters of a read; None if the request has to be forwarded."""
    verb = info.verb
    if request.method != "GET" or request.header("Upgrade") or info.subresource:
        return None
    if request.path != _path_of(info) or _PLAIN_PATH.fullmatch(request.path) is None:
        return None
    if (
        verb not in ("get", "list", "watch")
        or not _KNOWN[verb].issuperset(request.query)
        or any(len(values) != 1 for values in request.query.values())
    ):
        return None
    try:
        form = form_of(request.header("Accept"), verb)
    except ApiError:
        return None
    if form.media_type != JSON or form.is_table:
        return None
    version, match = request.parameter("resourceVersion"), request.parameter("resourceVersionMatch")
    number = decimal(version, signed=False) if version else 0
    if number is None:
        return None
    if verb == "get":
        # A kube-apiserver answers consistent gets from etcd as well: they cost it one key.
        return ReadQuery("get", number, False, form) if version else None
    if verb == "list":
        return _list_query(request, form, number, match)
    initial = request.parameter("sendInitialEvents")
    bookmarks = request.parameter("allowWatchBookmarks")
    timeout = request.parameter("timeoutSeconds") or "0"
    if bookmarks not in (*_TRUE, *_FALSE) or not _is_number(timeout):
        return None
    streams = initial in _TRUE
    if streams != (match == "NotOlderThan") or (match and not streams) or ("sendInitialEvents" in request.query and not streams):
        return None
    if streams and bookmarks not in _TRUE:
        return None
    return ReadQuery("watch", number, not version, form, streams, bookmarks in _TRUE, int(timeout))


def _list_query(request: Request, form: Form, number: int, match: str) -> ReadQuery | None:
    version = request.parameter("resourceVersion")
    limit, timeout = request.parameter("limit") or "0", request.parameter("timeoutSeconds") or "0"
    # A kube-apiserver ignores the limit of a list at "0", which comes from its cache. Other pages have tokens that only it can continue.
    if not _is_number(limit) or not _is_number(timeout) or (int(limit) and version != "0"):
        return None
    if match not in ("", "NotOlderThan") or (match and not version):
        return None
    return ReadQuery("list", number, not version, form)


@dataclass(frozen=True, slots=True)
class ObjectMatcher:
    """Decides by an object's head whether a read selects it.

    Attributes:
        namespace: The namespace; empty: all.
        labels: The label selector.
        fields: Terms of fields that heads have.
    """

    namespace: str
    labels: Selector
    fields: tuple[FieldTerm, ...]

    @property
    def everything(self) -> bool:
        """Whether it selects all objects of the resource."""
        return not self.namespace and self.labels.everything and not self.fields

    def __call__(self, head: Head) -> bool:
        if self.namespace and head.namespace != self.namespace:
            return False
        if not self.labels.everything and not self.labels.matches(head.labels):
            return False
        return all((_value(head, term) == term.value) is (term.operator is FieldOperator.EQUALS) for term in self.fields)


def matcher_of(query: str, namespace: str, *, is_pods: bool, namespaced: bool) -> ObjectMatcher | None:
    """Return what the selectors of a query select; None if only the API server can evaluate or refuse them.

    Args:
        query: The query string, without the selectors that the proxy's rules evaluate.
        namespace: The namespace of the request; empty: all.
        is_pods: The resource is the pods of Kubernetes, which have more fields to select by.
        namespaced: Objects have a namespace.
    """
    # As the API server parses it, which is what authorization and rules have seen: what it skips must select nothing here either.
    parameters = dict(query_pairs(query))
    try:
        labels = parse_label_selector(parameters.get("labelSelector", ""))
        fields = parse_field_selector(parameters["fieldSelector"]) if parameters.get("fieldSelector") else FieldSelector()
    except ValueError:
        return None
    known = {"metadata.name", *(("metadata.namespace",) if namespaced else ()), *(POD_FIELDS if is_pods else ())}
    if labels.nothing or any(term.field not in known for term in fields.terms):
        return None
    return ObjectMatcher(namespace, labels, fields.terms)


def _value(head: Head, term: FieldTerm) -> str:
    if term.field == "metadata.name":
        return head.name
    if term.field == "metadata.namespace":
        return head.namespace
    value = head.value(term.field)
    if term.field == "spec.hostNetwork":
        return "true" if value is True else "false"
    return value if isinstance(value, str) else ""


def _path_of(info: RequestInfo) -> str:
    """Return the one path that a client writes for a resource or object. Others are for the API server to judge."""
    parts = ["apis", info.group, info.version] if info.group else ["api", info.version]
    if info.namespace and info.resource != "namespaces":
        parts += ["namespaces", info.namespace]
    parts.append(info.resource)
    if info.name_in_path:
        parts.append(info.name)
    return "/" + "/".join(parts)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10
