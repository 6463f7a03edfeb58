"""A request for an API of another server: passed on with who asks, answered with what comes back.

Source: kube-aggregator pkg/apiserver/handler_proxy.go; k8s.io/apiserver pkg/util/proxy (NewRequestForProxy).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import quote

from kubeloop.apiserver.aggregation.backend import TIMEOUT, Backends, CallFailed, speaking_for
from kubeloop.apiserver.aggregation.registered import Registered
from kubeloop.apiserver.answers import Answer, Reply, StreamingResponse, text
from kubeloop.apiserver.authentication import User
from kubeloop.apiserver.kubelet.backends import SAFE
from kubeloop.apiserver.kubelet.options import encoded
from kubeloop.apiserver.kubelet.reverse import reverse
from kubeloop.apiserver.kubelet.upgrading import is_upgrade, pass_on
from kubeloop.apiserver.webhooks.failure import NotCallable
from kubeloop.meta.errors import ApiError
from kubeloop.serving.request import Request

_LOG = logging.getLogger("kubeloop.apiserver.aggregation")


async def proxied(
    request: Request, user: User, audit_id: str, service: Registered, backends: Backends, failed: Callable[[], None]
) -> Reply:
    """What the server behind ``service`` answers to ``user``, or why there is no answer. ``failed`` is called when it cannot be reached.

    Never an ApiError: refusals of this kind are plain text, as with Kubernetes.
    """
    if not service.available:
        return _refused("service unavailable")
    try:
        place = await backends.place(service)
    except NotCallable as fault:
        return text(f"{fault}\n", 500)
    except CallFailed as fault:
        _LOG.warning("service of %s: %s", service.name, fault)
        return _refused("service unavailable")
    query = encoded([(name, value) for name, values in request.query.items() for value in values])
    place = replace(place, path=quote(request.path, safe=SAFE, errors="surrogateescape"), query=query)
    rewrite = speaking_for(user, place, audit_id)
    try:
        if is_upgrade(request):
            return await pass_on(request, place, rewrite)
        # Discovery documents are cheap, and everybody waits for them.
        async with asyncio.timeout(TIMEOUT if len(request.path.strip("/").split("/")) == 3 else None):
            answer = await reverse(request, place, rewrite, redirects=False)
    except TimeoutError:
        failed()
        return _refused("error trying to reach service: context deadline exceeded")
    except ApiError as refusal:
        failed()
        return _refused(refusal.status.message)
    if isinstance(answer, Answer | StreamingResponse):
        answer.headers = [(name, value) for name, value in answer.headers if name.lower() != "audit-id"]  # this server says its own
    return answer


def _refused(why: str) -> Answer:
    return text(f"{why}\n", 503)
