"""ValidatingAdmissionWebhook: webhooks that may refuse what is written, all asked at the same time.

Source: k8s.io/apiserver pkg/admission/plugin/webhook/validating; Kubernetes documentation, "Dynamic Admission Control".
"""

from __future__ import annotations

import asyncio
import logging

from kubeloop.apiserver.admission import Attributes
from kubeloop.apiserver.webhooks.dispatcher import WebhookDispatcher
from kubeloop.apiserver.webhooks.failure import CallFailed
from kubeloop.apiserver.webhooks.matching import Invocation
from kubeloop.meta.errors import ApiError

_LOG = logging.getLogger("kubeloop.apiserver.webhooks")


class ValidatingWebhooks:
    """Asks the webhooks that are concerned; the write goes on when none of them refuses it.

    Guarantees
        All are asked, and have answered or failed, before the write is refused; the refusal is that of the first in order.
    """

    def __init__(self, asker: WebhookDispatcher) -> None:
        self._asker = asker

    async def mutate(self, attributes: Attributes) -> None:
        """Nothing is changed."""

    async def validate(self, attributes: Attributes) -> None:
        hooks = await self._asker.hooks(attributes)
        if not hooks:
            return
        found = [await self._asker.invocation(hook, attributes) for hook in hooks]
        concerned = [invocation for invocation in found if invocation is not None]
        said = await asyncio.gather(*(self._ask(invocation, attributes) for invocation in concerned), return_exceptions=True)
        errors = [one for one in said if one is not None]
        for other in errors[1:]:  # as upstream: the client is answered the first, and the log has the others
            _LOG.warning("another webhook refuses the request too: %s", other, exc_info=None if isinstance(other, ApiError) else other)
        if errors:
            raise errors[0]

    async def _ask(self, invocation: Invocation, attributes: Attributes) -> None:
        obj = await self._asker.versioned(invocation, attributes, attributes.obj)
        old = await self._asker.versioned(invocation, attributes, attributes.old)
        try:
            await self._asker.ask(invocation, attributes, obj, old)
        except CallFailed as fault:
            self._asker.failed(invocation.hook, fault)
