"""One webhook asked about one write: what it is shown, and what becomes of its answer. Shared by mutating and validating webhooks.

Source: k8s.io/apiserver pkg/admission/plugin/webhook/{mutating,validating}/dispatcher.go.
"""

from __future__ import annotations

import copy
import logging
from typing import Any

from kubeloop.apiserver import refusals
from kubeloop.apiserver.admission import Attributes
from kubeloop.apiserver.objects import Objects
from kubeloop.apiserver.registry import Registry
from kubeloop.apiserver.webhooks.caller import Caller
from kubeloop.apiserver.webhooks.conditions import conditions_hold
from kubeloop.apiserver.webhooks.configurations import Configurations, Hook
from kubeloop.apiserver.webhooks.failure import CallFailed, NotCallable
from kubeloop.apiserver.webhooks.matching import Invocation, Matcher, is_exempt
from kubeloop.apiserver.webhooks.review import Verdict, denial, question, verdict

JSONObject = dict[str, Any]

_LOG = logging.getLogger(__name__)

_HARMLESS = ("None", "NoneOnDryRun")


class Asker:
    """What both kinds of admission webhooks need: which are concerned, objects in their versions, calls, and what failures mean."""

    def __init__(self, configurations: Configurations, registry: Registry, objects: Objects, caller: Caller, *, mutating: bool) -> None:
        self.objects = objects
        self._configurations = configurations
        self._matcher = Matcher(registry, objects)
        self._caller = caller
        self._mutating = mutating

    async def hooks(self, attributes: Attributes) -> list[Hook]:
        """All that are configured; none for writes that no webhook may be asked about."""
        hooks = await self._configurations.hooks()
        return [] if not hooks or is_exempt(attributes) else hooks

    async def invocation(self, hook: Hook, attributes: Attributes) -> Invocation | None:
        """None: the webhook is not concerned.

        Raises:
            NotFound, Forbidden (a condition that cannot be evaluated).
        """
        found = await self._matcher.invocation(hook, attributes)
        if found is None or not hook.conditions:
            return found
        obj, old = await self.versioned(found, attributes, attributes.obj), await self.versioned(found, attributes, attributes.old)
        asked = question(attributes, ["v1"], found.kind, found.resource.gvr, obj, old, name_of(attributes))
        return found if conditions_hold(hook, attributes, asked.tree["request"]) else None

    async def versioned(self, invocation: Invocation, attributes: Attributes, obj: JSONObject | None) -> JSONObject | None:
        """``obj`` in the version that the webhook wants; the same tree where that is the request's own."""
        if obj is None or invocation.resource is attributes.resource or attributes.kind is not None:
            return obj
        # Some converters share parts with what they are given, and then prune them.
        found = await self.objects.convert(attributes.resource, copy.deepcopy(obj), invocation.kind)
        if not invocation.resource.custom:
            invocation.resource.strategy.default(found)
        return found

    async def ask(self, invocation: Invocation, attributes: Attributes, obj: JSONObject | None, old: JSONObject | None) -> Verdict:
        """The webhook's verdict; its warnings are passed on.

        Raises:
            CallFailed: it could not be asked, or its answer is none.
            BadRequest: a dry run of a webhook that has side effects. ApiError: it said no, with its own status.
        """
        hook = invocation.hook
        if attributes.dry_run and hook.side_effects not in _HARMLESS:
            raise refusals.bad_request(f'admission webhook "{hook.name}" does not support dry run')
        asked = question(attributes, hook.versions, invocation.kind, invocation.resource.gvr, obj, old, name_of(attributes))
        try:
            body = await self._caller.post(hook.client_config, asked.tree, timeout=hook.timeout)
        except NotCallable as fault:
            raise CallFailed(f"could not get REST client: {fault}") from None
        except CallFailed as fault:
            raise CallFailed(f"failed to call webhook: {fault}") from None
        said = verdict(asked, body, mutating=self._mutating)
        attributes.warnings += said.warnings
        if not said.allowed:
            raise denial(hook.name, said.status)
        return said

    @staticmethod
    def failed(hook: Hook, fault: CallFailed) -> None:
        """A webhook that failed is passed over, if it was configured so.

        Raises:
            InternalError
        """
        why = f'failed calling webhook "{hook.name}": {fault}'
        if not hook.ignore_failure:
            _LOG.warning("%s; the write is refused", why)
            raise refusals.internal_error(why)
        _LOG.warning("%s; the write goes on", why)


def name_of(attributes: Attributes) -> str:
    """The name in the request; once the object is complete also one that was generated for it."""
    if attributes.name or attributes.obj is None:
        return attributes.name
    metadata = attributes.obj.get("metadata") or {}
    return str(metadata.get("name") or "")
