"""The audit events of one request. Source: audit.k8s.io/v1 Event; k8s.io/apiserver pkg/audit, pkg/endpoints/filters/audit.go."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

import msgspec

from kubeloop.apiserver.audit.policy import LEVELS, METADATA, REQUEST, REQUEST_RESPONSE, AuditDecision
from kubeloop.apiserver.handlers.scope import RequestScope
from kubeloop.endpoints.access import User
from kubeloop.endpoints.negotiation import JSON, PROTOBUF, YAML
from kubeloop.endpoints.request_info import RequestInfo
from kubeloop.serving.answer import Answer
from kubeloop.serving.request import Request
from kubeloop.types import JSONObject

# Redaction of the data of Secrets and of tokens, so that readers of the log learn no credentials. This deviates from kube-apiserver, which
# logs them at the levels Request and RequestResponse unless the policy prevents it.


#: Replaces each redacted value.
HIDDEN: Final = "<redacted>"

_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_DATA = frozenset({"data", "stringData"})
_AUTHENTICATION = "authentication.k8s.io"


def redact(info: RequestInfo, tree: Any) -> Any:
    """Redact the body of a request or response (an object, a list, a Table, a patch) in place, and return it."""
    if info.group == "" and info.resource == "secrets":
        return _secrets(tree)
    if info.group == "" and (info.resource, info.subresource) == ("serviceaccounts", "token"):
        _hide(tree, "status", "token")
    elif info.group == _AUTHENTICATION and info.resource == "tokenreviews":
        _hide(tree, "spec", "token")
        _without_applied(tree)
    return tree


def _secrets(tree: Any) -> Any:
    if isinstance(tree, list):  # a JSON patch: any value may contain secret data
        return [{**one, "value": HIDDEN} if isinstance(one, dict) and "value" in one else one for one in tree]
    if not isinstance(tree, dict):
        return HIDDEN
    for name in _DATA & tree.keys():
        values = tree[name]
        tree[name] = dict.fromkeys(values, HIDDEN) if isinstance(values, dict) else HIDDEN
    _without_applied(tree)
    for one in tree.get("items") or ():
        _secrets(one)
    for row in tree.get("rows") or ():
        if isinstance(row, dict) and isinstance(row.get("object"), dict):
            _secrets(row["object"])
    return tree


def _hide(tree: Any, part: str, name: str) -> None:
    inner = tree.get(part) if isinstance(tree, dict) else None
    if isinstance(inner, dict) and inner.get(name):
        inner[name] = HIDDEN


def _without_applied(tree: Any) -> None:
    """Redact the annotation in which ``kubectl apply`` stores the whole object."""
    metadata = tree.get("metadata") if isinstance(tree, dict) else None
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if isinstance(annotations, dict) and _APPLIED in annotations:
        annotations[_APPLIED] = HIDDEN


#: Receives one encoded event without a line break.
Sink = Callable[[bytes], None]

_METADATA, _REQUEST, _REQUEST_RESPONSE = (LEVELS.index(one) for one in (METADATA, REQUEST, REQUEST_RESPONSE))
#: Maximum characters of a User-Agent, as upstream.
_AGENT = 1024
#: Subresources whose response comes from a backend and is no object of the server.
_FOREIGN = frozenset({"proxy", "exec", "attach", "portforward", "log"})
_PATH_SAFE = "/:@!$&'()*+,;=~-._"
#: Control characters, line separators and direction marks that JSON does not escape, in UTF-8.
_UNSEEN = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]")
#: Maximum characters of a cached path or address.
_LONGEST_KNOWN = 512


class AuditRecord:
    """Collects the data of a request, and creates an event at each stage that its rule does not omit."""

    def __init__(self, scope: RequestScope, logged: AuditDecision, sink: Sink, received: datetime) -> None:
        """Create the record of a request.

        Args:
            scope: The request.
            logged: The audit level and stages of the request.
            sink: Receives the events.
            received: Time at which the request arrived.
        """
        self._scope = scope
        self._logged = logged
        self._sink = sink
        self._received = micro_time(received)
        self._object: JSONObject = _reference(scope)
        self._status: JSONObject = {}
        self._sent: Any = None
        self._answered: Any = None

    def sent(self, obj: JSONObject, default: Callable[[JSONObject], None] | None = None) -> None:
        """Record the decoded body of the request. ``default`` fills in defaults, in a copy."""
        metadata = obj.get("metadata")
        if isinstance(metadata, dict) and self._object:
            for name, field in (("namespace", "namespace"), ("name", "name"), ("uid", "uid"), ("resourceVersion", "resourceVersion")):
                if not self._object.get(name) and metadata.get(field):
                    self._object[name] = metadata[field]
        if self._logged.level < _REQUEST:
            return
        tree = msgspec.json.decode(msgspec.json.encode(obj))
        if default is not None:
            default(tree)
        self._sent = self._shown(tree)

    def sent_patch(self, body: bytes) -> None:
        """Record the body of a patch. The YAML of an apply is converted to JSON."""
        if self._logged.level < _REQUEST:
            return
        try:
            tree = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError):
            tree = _yaml(body)
        self._sent = redact(self._scope.info, tree) if tree is not None else None

    def answer(self, answer: Answer) -> None:
        """Record the response before it is encoded, because events contain its object as JSON."""
        tree: Any = answer.object
        is_status = tree is not None and tree.get("kind") == "Status" and tree.get("apiVersion") == "v1"
        if is_status and tree is not None:
            fields = ("status", "message", "reason", "details")
            self._status = {"metadata": {}} | {name: tree[name] for name in fields if tree.get(name) is not None}
        self._status["code"] = answer.status
        if self._logged.level < _REQUEST_RESPONSE:
            return
        info = self._scope.info
        if not is_status:
            if info.subresource in _FOREIGN or not (info.is_resource or info.path.startswith("/api")):
                return
            tree = _tree(answer)
        if tree is not None:
            self._answered = self._shown(tree) if not is_status else tree

    def event(self, stage: str, at: datetime | None = None, *, code: int = 0, message: str = "") -> None:
        """Create the event of a stage.

        Args:
            stage: The stage.
            at: Time of the stage; None: the arrival of the request.
            code: Status code of a stream, which has no recorded answer.
            message: Message if there is no answer.
        """
        if stage in self._logged.omit_stages:
            return
        if code:
            self._status["code"] = code
        if message:
            self._status = {"status": "Success", "message": message, "code": code}
        self._sink(_visible(msgspec.json.encode(self._event(stage, self._received if at is None else micro_time(at)))))

    def _event(self, stage: str, at: str) -> JSONObject:
        scope = self._scope
        event: JSONObject = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": LEVELS[self._logged.level],
            "auditID": scope.audit_id,
            "stage": stage,
            "requestURI": request_uri(scope.request),
            "verb": scope.info.verb,
            "user": _user(scope.authenticated),
        }
        if scope.impersonated is not None:
            event["impersonatedUser"] = _user(scope.impersonated)
            if scope.impersonation_constraint:
                event["authenticationMetadata"] = {"impersonationConstraint": scope.impersonation_constraint}
        event["sourceIPs"] = source_ips(scope.request)
        if agent := scope.request.header("User-Agent"):
            event["userAgent"] = agent if len(agent) <= _AGENT else f"{agent[:_AGENT]}...TRUNCATED"
        if self._object:
            event["objectRef"] = {name: self._object[name] for name in _REFERENCE if self._object.get(name)}
        if self._status:
            event["responseStatus"] = {"metadata": {}, **self._status}
        if self._sent is not None:
            event["requestObject"] = self._sent
        if self._answered is not None:
            event["responseObject"] = self._answered
        event["requestReceivedTimestamp"] = self._received
        event["stageTimestamp"] = at
        if scope.annotations:
            event["annotations"] = dict(sorted(scope.annotations.items()))
        return event

    def _shown(self, tree: Any) -> Any:
        if self._logged.omit_managed_fields:
            _without_managed_fields(tree)
        return redact(self._scope.info, tree)


_REFERENCE = ("resource", "namespace", "name", "uid", "apiGroup", "apiVersion", "resourceVersion", "subresource")


def _reference(scope: RequestScope) -> JSONObject:
    info = scope.info
    if not info.is_resource:
        return {}
    return {
        "resource": info.resource,
        "namespace": info.namespace,
        "name": info.name,
        "apiGroup": info.group,
        "apiVersion": info.version,
        "subresource": info.subresource,
    }


def _user(user: User | None) -> JSONObject:
    if user is None:
        return {}
    attributes: JSONObject = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    attributes["extra"] = {name: list(values) for name, values in user.extra.items()}
    return {name: value for name, value in attributes.items() if value}


def micro_time(moment: datetime) -> str:
    """Format a time as a MicroTime."""
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def _visible(line: bytes) -> bytes:
    """Escape characters in JSON that a terminal would interpret."""
    return _UNSEEN.sub(lambda result: f"\\u{ord(result[0].decode()):04x}".encode(), line)


def request_uri(request: Request) -> str:
    """Return the URI of a request without the tokens in its query."""
    path = _known_path(request.path) if len(request.path) <= _LONGEST_KNOWN else _escaped(request.path)
    query = request.query_string
    if "access_token" in query:
        pairs = query.split("&")
        query = "&".join(f"access_token={HIDDEN}" if one.startswith("access_token=") else one for one in pairs)
    return f"{path}?{query}" if query else path


@lru_cache(maxsize=1024)
def _known_path(path: str) -> str:
    return _escaped(path)


def _escaped(path: str) -> str:
    return quote(path, safe=_PATH_SAFE, errors="surrogateescape")


def source_ips(request: Request) -> list[str]:
    """Return the addresses of a request: the addresses that proxies report, then the peer's (apimachinery pkg/util/net SourceIPs)."""
    result = [ip for part in request.header("X-Forwarded-For").split(",") if (ip := _ip(part.strip()))]
    real = _ip(request.header("X-Real-Ip"))
    if real and real not in result:
        result.append(real)
    remote = _ip(request.remote)
    if remote and result[-1:] != [remote]:
        result.append(remote)
    return result


def _ip(text: str) -> str:
    return _known_ip(text) if text and len(text) <= _LONGEST_KNOWN else ""


@lru_cache(maxsize=1024)
def _known_ip(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return ""


def _tree(answer: Answer) -> Any:
    """Return a copy of the object in a response, or None if it has none."""
    if answer.object is not None:
        return msgspec.json.decode(msgspec.json.encode(answer.object))
    if not answer.body:
        return None
    if answer.content_type.startswith(JSON):
        return msgspec.json.decode(answer.body)
    if answer.content_type == PROTOBUF:
        from kubeloop.codec import protobuf
        from kubeloop.meta.errors import DecodeError, UnknownKind

        try:
            return protobuf.decode(answer.body)
        except (DecodeError, UnknownKind):
            return None
    return _yaml(answer.body) if answer.content_type == YAML else None


def _yaml(body: bytes) -> Any:
    from kubeloop.apiserver.registry.decoding import read_yaml
    from kubeloop.meta.errors import DecodeError

    try:
        return read_yaml(body)
    except DecodeError:
        return None


def _without_managed_fields(tree: Any) -> None:
    if not isinstance(tree, dict):
        return
    if isinstance(tree.get("metadata"), dict):
        tree["metadata"].pop("managedFields", None)
    for one in tree.get("items") or ():
        _without_managed_fields(one)
    for row in tree.get("rows") or ():
        if isinstance(row, dict):
            _without_managed_fields(row.get("object"))
