"""One webhook asked about one write: what it is shown, and what becomes of its answer. Shared by mutating and validating webhooks.

Source: k8s.io/apiserver pkg/admission/plugin/webhook/{mutating,validating}/dispatcher.go.
"""

from __future__ import annotations

import logging
from typing import Any

from kubeloop.apiserver import refusals
from kubeloop.apiserver.admission import Attributes
from kubeloop.apiserver.authorization import Authorizer
from kubeloop.apiserver.objects import Objects
from kubeloop.apiserver.registry import Registry
from kubeloop.apiserver.repeated_warnings import RepeatedWarnings
from kubeloop.apiserver.webhooks.caller import Caller
from kubeloop.apiserver.webhooks.configurations import Configurations, Hook
from kubeloop.apiserver.webhooks.failure import CallFailed, NotCallable
from kubeloop.apiserver.webhooks.matching import Invocation, Match, Matcher, is_exempt
from kubeloop.apiserver.webhooks.requests import name_of
from kubeloop.apiserver.webhooks.review import Verdict, denial, question, verdict
from kubeloop.apiserver.webhooks.versions import versioned
from kubeloop.timing import Clock

JSONObject = dict[str, Any]

_LOG = logging.getLogger(__name__)

_HARMLESS = ("None", "NoneOnDryRun")


class Asker:
    """What both kinds of admission webhooks need: which are concerned, objects in their versions, calls, and what failures mean."""

    def __init__(
        self,
        configurations: Configurations,
        registry: Registry,
        objects: Objects,
        caller: Caller,
        authorizer: Authorizer,
        clock: Clock,
        *,
        mutating: bool,
    ) -> None:
        self.objects = objects
        self._registry = registry
        self._authorizer = authorizer
        self._configurations = configurations
        self._matcher = Matcher(registry, objects)
        self._caller = caller
        self._mutating = mutating
        self._warnings = RepeatedWarnings(_LOG, clock)

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
        return found if await self._conditions_hold(hook, attributes, found) else None

    async def _conditions_hold(self, hook: Hook, attributes: Attributes, found: Match) -> bool:
        from kubeloop.apiserver.policies.conditions import ConditionsFault, conditions_hold
        from kubeloop.apiserver.policies.facts import Facts
        from kubeloop.apiserver.webhooks.condition_language import compiled

        facts = Facts(attributes, self._registry, self.objects, self._authorizer)
        await facts.prepare(found)
        conditions = [compiled(one["expression"]) for one in hook.conditions]
        try:
            return conditions_hold(conditions, facts.of_conditions(found, None), ignore_failure=hook.ignore_failure)
        except ConditionsFault as fault:
            name = attributes.name or ((attributes.obj or {}).get("metadata") or {}).get("name") or ""
            raise refusals.forbidden(attributes.resource.gvr.group_resource, name, str(fault)) from None

    async def versioned(self, invocation: Invocation, attributes: Attributes, obj: JSONObject | None) -> JSONObject | None:
        """``obj`` in the version that the webhook wants; the same tree where that is the request's own."""
        return await versioned(self.objects, invocation, attributes, obj)

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

    def failed(self, hook: Hook, fault: CallFailed) -> None:
        """A webhook that failed is passed over, if it was configured so.

        Raises:
            InternalError
        """
        why = f'failed calling webhook "{hook.name}": {fault}'
        if not hook.ignore_failure:
            self._warnings.say(f"{why}; the write is refused")
            raise refusals.internal_error(why)
        self._warnings.say(f"{why}; the write goes on")
