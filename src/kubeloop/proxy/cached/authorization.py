"""Whether a client may read what the cache has: the API server decides, since the cache is read as the proxy's own user.

ReflectorSource: Kubernetes documentation, "Authorization", SubjectAccessReview and SelfSubjectAccessReview.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final

from kubeloop.endpoints.access import User, access_of, forbidden
from kubeloop.endpoints.audit_id import AUDIT_ID
from kubeloop.meta.errors import ApiError
from kubeloop.proxy.identity import CACHE_SECONDS, ClientIdentity
from kubeloop.proxy.scope import ProxiedRequest
from kubeloop.proxy.upstream import Upstream
from kubeloop.serving.request import Request
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

_LOG = logging.getLogger("kubeloop.proxy")

#: Maximum number of cached decisions.
_CACHED: Final = 8192
_PATH: Final = "/apis/authorization.k8s.io/v1/"

#: Returns the user of a client, for messages.
Resolve = Callable[[Request, ClientIdentity], Awaitable[User]]


class ReadAuthorizer:
    """Asks the API server whether clients may read, and caches its decisions for 10 s.

    Guarantees
        Only a permission of the API server is a permission; a failure is none.

    Args:
        upstream: The API server.
        clock: Measures the age of decisions.
        resolve: Returns the user of a client.
    """

    def __init__(self, upstream: Upstream, clock: Clock, resolve: Resolve) -> None:
        self._upstream = upstream
        self._clock = clock
        self._resolve = resolve
        self._known: OrderedDict[bytes, tuple[float, bool, str]] = OrderedDict()
        self._warned = False

    async def check(self, scope: ProxiedRequest, audit_id: str = "") -> bool:
        """Check that the client of a request may send it.

        Args:
            scope: The request.
            audit_id: The ID of the request, under which the API server's audit log has the review. Empty: an ID of the API server.

        Returns:
            False if only the API server can check it: the client sent no credentials, which the API server may not accept, or the API
            server does not let the proxy ask. Then the request has to be forwarded.

        Raises:
            Forbidden: The client may not, in a kube-apiserver's words.
            ApiError: The API server sent no response, or did not accept the client's credentials.
        """
        info, caller, request = scope.info, scope.caller, scope.request
        if not caller.headers and not caller.as_proxy:
            return False
        parts = (
            _client_of(caller),
            info.verb,
            info.group,
            info.version,
            info.resource,
            info.namespace,
            info.name,
            request.parameter("labelSelector"),
            request.parameter("fieldSelector"),
        )
        # A digest: what clients send must not fill the memory, and their tokens must not stay in it.
        key = hashlib.sha256(repr(parts).encode()).digest()
        now = self._clock.now()
        known = self._known.get(key)
        if known is None or known[0] <= now:
            try:
                allowed, reason = await self._ask(scope, audit_id)
            except ApiError as error:
                if error.status.code not in (403, 404, 405):
                    raise
                self._warn(error)
                return False
            known = now + CACHE_SECONDS, allowed, reason
            self._known[key] = known
            if len(self._known) > _CACHED:
                self._known.popitem(last=False)
        if not known[1]:
            user = caller.user if caller.user is not None else await self._resolve(request, caller)
            raise forbidden(access_of(user, info), known[2])
        return True

    async def _ask(self, scope: ProxiedRequest, audit_id: str) -> tuple[bool, str]:
        """Return whether the API server allows the request, and its reason."""
        caller, user = scope.caller, scope.caller.user
        spec: JSONObject = {"resourceAttributes": _attributes(scope)}
        if user is None or (caller.as_proxy and not caller.headers):
            kind, headers, as_proxy = "SelfSubjectAccessReview", [*caller.headers], caller.as_proxy
        else:
            kind, headers, as_proxy = "SubjectAccessReview", [], True
            spec |= {"user": user.name, "groups": list(user.groups)}
            if user.uid:
                spec["uid"] = user.uid
            if user.extra:
                spec["extra"] = {name: list(values) for name, values in user.extra.items()}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
        if audit_id:
            headers.append((AUDIT_ID, audit_id))
        answer = await self._upstream.post(f"{_PATH}{kind.lower()}s", headers, review, as_proxy=as_proxy)
        status: Any = answer.get("status") or {}
        reason = status.get("reason")
        allowed = status.get("allowed") is True and not status.get("denied")
        return allowed, reason if isinstance(reason, str) and not allowed else ""

    def _warn(self, error: ApiError) -> None:
        if not self._warned:
            self._warned = True
            _LOG.warning(
                "the cache is not used for some clients, because the API server does not let the proxy ask whether they may read: %s", error
            )


def _client_of(caller: ClientIdentity) -> object:
    """Return a value whose representation is equal for requests of one client."""
    user = caller.user
    if user is not None:
        return user.name, user.groups, user.uid, tuple(sorted(user.extra.items()))
    return caller.headers


def _attributes(scope: ProxiedRequest) -> JSONObject:
    info = scope.info
    attributes: JSONObject = {
        "verb": info.verb,
        "group": info.group,
        "version": info.version,
        "resource": info.resource,
        "namespace": info.namespace,
        "name": info.name,
    }
    # Authorizers can allow a node only the pods that its field selector selects (AuthorizeWithSelectors, Kubernetes 1.34).
    for name in ("fieldSelector", "labelSelector"):
        if text := scope.request.parameter(name):
            attributes[name] = {"rawSelector": text}
    return attributes
