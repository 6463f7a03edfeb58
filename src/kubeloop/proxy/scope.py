"""One request on its way through the proxy: what it asks for, its client, and the rules that apply to it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

import msgspec

from kubeloop.endpoints import api_errors
from kubeloop.endpoints.access import User
from kubeloop.endpoints.request_info import PREFIXES, RequestInfo
from kubeloop.proxy.continuity import ListScope
from kubeloop.proxy.identity import ClientIdentity
from kubeloop.proxy.rules import RewriteContext, RuleSelection, RuleSet
from kubeloop.serving.request import Request

#: Subresources that return the object itself: rules for the object apply to them.
OF_OBJECT: Final = frozenset({"", "status", "ephemeralcontainers", "resize", "finalize", "approval"})
#: Subresources that open a connection; opening one is no write of the object.
CONNECTING: Final = frozenset({"exec", "attach", "portforward", "proxy", "log"})
#: Maximum characters of the selectors of a request: some 2,000 names. Parsing them takes up to 30 ms.
MAX_SELECTORS: Final = 16 << 10
#: Maximum characters of a text of a client that is remembered as it is.
_LONGEST: Final = 256
READS: Final = frozenset({"get", "list", "watch"})
#: The verbs of the Kubernetes API that the proxy knows.
VERBS: Final = READS | {"create", "update", "patch", "delete", "deletecollection"}


@dataclass(frozen=True, slots=True)
class ProxiedRequest:
    """A request with its client.

    Attributes:
        request: The request.
        info: What it asks for.
        caller: The client, as the API server gets to know it.
        user: The client's user. Anonymous, if no rule depends on users and the API server authenticates the client.
    """

    request: Request
    info: RequestInfo
    caller: ClientIdentity
    user: User

    def select(self, rules: RuleSet, *, verb: str = "", subresource: str | None = None) -> RuleSelection | None:
        """Return the rules that apply to the request, or None.

        Args:
            rules: All rules.
            verb: Another verb than the request's: responses of writes show objects as ``get`` does.
            subresource: Another subresource than the request's: empty for the object that it belongs to.
        """
        info = self.info
        context = RewriteContext(
            self.user,
            verb or info.verb,
            info.group,
            info.version,
            info.resource,
            info.subresource if subresource is None else subresource,
            info.namespace,
            info.name,
            self.request.header("User-Agent"),
        )
        return rules.select(context)

    def list_scope(self) -> ListScope:
        """Return the objects that the client lists or watches."""
        request, info = self.request, self.info
        return ListScope(
            self.user.name if self.caller.user is not None else str(hash(self.caller.headers)),
            _short(request.header("User-Agent")),
            request.remote,
            info.group,
            info.resource,
            _short(info.namespace),
            _short(request.parameter("labelSelector")),
            _short(request.parameter("fieldSelector")),
        )


def object_info(info: RequestInfo) -> RequestInfo:
    """Return what a request asks for, with the name of the object alone: a path of a proxy can have a scheme and a port around it.

    Source: k8s.io/apimachinery pkg/util/net/port_split.go (SplitSchemeNamePort).
    """
    if info.subresource != "proxy" or ":" not in info.name:
        return info
    words = info.name.split(":")
    return msgspec.structs.replace(info, name=words[1] if len(words) == 3 else words[0])


def check_selectors(request: Request) -> None:
    """Refuse selectors whose evaluation would keep other clients waiting.

    Raises:
        ApiError: 400: they are too long.
    """
    if len(request.query_string) > MAX_SELECTORS:
        length = sum(len(value) for name in ("labelSelector", "fieldSelector") for value in request.query.get(name, ()))
        if length > MAX_SELECTORS:
            raise api_errors.bad_request(f"the selectors have {length} characters; the proxy evaluates at most {MAX_SELECTORS}")


def check_path(request: Request, info: RequestInfo) -> None:
    """Refuse paths that two programs could read differently, so that no rule can be avoided by the spelling of a path.

    Raises:
        ApiError: 404: the path has an empty, ``.`` or ``..`` segment, or a character that paths of the Kubernetes API do not have.
            400: it is one of the deprecated paths that name a verb.
    """
    path = request.path
    if not path.startswith(("/api/", "/apis/")) and path not in ("/api", "/apis"):
        # A path that only looks like another one before it is cleaned, such as //api/v1/secrets.
        if _is_ambiguous(path):
            raise api_errors.no_such_resource()
        return
    checked = path
    if info.subresource == "proxy":
        # What follows belongs to the pod, service or node behind it. A load balancer before the API server could resolve dots, though.
        checked = "/".join(path.split("/")[: len(path.split("/")) - len(info.rest)])
    if _is_ambiguous(checked) or _DOTS.search(path) is not None:
        raise api_errors.no_such_resource()
    parts = path.split("/")
    at = 3 if parts[1] == "api" else 4
    if len(parts) > at and parts[at] in PREFIXES:
        raise api_errors.bad_request(f"the proxy does not serve the deprecated path /{parts[at]}/; use the parameter watch=true")
    if info.is_resource and info.verb not in VERBS:
        raise api_errors.method_not_allowed()


#: An empty segment, a ``.`` or ``..``, a backslash or a control character.
_AMBIGUOUS: Final = re.compile(r"//|\\|[\x00-\x1f\x7f]|(?:\A|/)\.\.?(?:/|\Z)")


#: A segment ``.`` or ``..``.
_DOTS: Final = re.compile(r"/\.\.?(?:/|\Z)")


def _short(text: str) -> str:
    """Return a text, or the digest of a long one: what clients send must not fill the memory that remembers lists."""
    return text if len(text) <= _LONGEST else hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _is_ambiguous(path: str) -> bool:
    return _AMBIGUOUS.search(path) is not None
