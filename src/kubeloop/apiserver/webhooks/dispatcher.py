"""Calls one webhook about one write and evaluates its response. Mutating and validating webhooks share this code.

Source: k8s.io/apiserver pkg/admission/plugin/webhook/{mutating,validating}/dispatcher.go.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from kubeloop.apiserver.admission import Attributes
from kubeloop.apiserver.admission.matching import Match, Matcher, convert_to_match, is_exempt, matches_object, name_of
from kubeloop.apiserver.outbound.client import WebhookClient
from kubeloop.apiserver.outbound.failure import CallFailed, NotCallable
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.webhooks.admission_review import AdmissionReviewResponse, create_review, parse_response, rejection
from kubeloop.apiserver.webhooks.configurations import Configurations, Webhook
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.access import Authorizer
from kubeloop.meta.errors import ApiError
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

#: Seconds during which a repeated warning is only counted.
PERIOD: Final = 60.0
#: Maximum number of warnings that are remembered, and of the characters that identify and show each.
MOST: Final = 256
LONGEST: Final = 2000


class RepeatedWarnings:
    """Logs warnings at a limited rate.

    Guarantees
        The log has at most one line with the same text in ``PERIOD`` seconds; the next line says how many were left out.
        Memory is bounded: at most ``MOST`` texts of ``LONGEST`` characters, of which the least recently logged are dropped.

    Not guaranteed
        If a text does not occur again, the number of its suppressed lines is never logged.
    """

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        #: Text -> time of its last line and number of repetitions since; the least recently logged first.
        self._told: dict[str, tuple[float, int]] = {}

    def warn(self, text: str) -> None:
        """Log a warning, or count it if it was logged recently."""
        text = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
        now = self._clock.now()
        last, since = self._told.get(text, (now - PERIOD, 0))
        if now - last < PERIOD:
            self._told[text] = last, since + 1
            return
        self._told.pop(text, None)
        self._told[text] = now, 0
        if len(self._told) > MOST:
            del self._told[next(iter(self._told))]
        if since:
            self._log.warning("%s (and %d times in the %d s before)", text, since, now - last)
        else:
            self._log.warning("%s", text)


_LOG = logging.getLogger("kubeloop.apiserver.webhooks")

_HARMLESS = ("None", "NoneOnDryRun")


@dataclass(frozen=True, slots=True)
class Invocation(Match):
    """A webhook to call, and the version of the resource in which it sees the write."""

    hook: Webhook


async def invocation_of(hook: Webhook, matcher: Matcher, attributes: Attributes) -> Invocation | None:
    """Return the invocation of ``hook`` for a write, or None if its rules or selectors do not match.

    Raises:
        NotFound: The namespace whose labels would decide does not exist.
    """
    match = matcher.by_rules(hook.rules, attributes, equivalent=hook.equivalent)
    if match is None or not matches_object(hook.objects, attributes):
        return None
    if not await matcher.matches_namespace(hook.namespaces, attributes):
        return None
    return Invocation(match.resource, match.kind, hook)


class WebhookDispatcher:
    """Selects and calls webhooks, converts objects to their versions, and applies their failure policies."""

    def __init__(
        self,
        configurations: Configurations,
        registry: Registry,
        objects: Objects,
        client: WebhookClient,
        authorizer: Authorizer,
        clock: Clock,
        *,
        mutating: bool,
    ) -> None:
        """Create a dispatcher for one kind of configuration.

        Args:
            configurations: The webhooks.
            registry: The served resources.
            objects: Reads namespaces, and converts objects.
            client: Sends the reviews.
            authorizer: Decides the checks of the variable ``authorizer`` in match conditions.
            clock: The clock for repeated warnings.
            mutating: Whether the webhooks may change objects.
        """
        self.objects = objects
        self._registry = registry
        self._authorizer = authorizer
        self._configurations = configurations
        self._matcher = Matcher(registry, objects)
        self._client = client
        self._mutating = mutating
        self._warnings = RepeatedWarnings(_LOG, clock)

    async def hooks(self, attributes: Attributes) -> list[Webhook]:
        """Return all configured webhooks, or an empty list for writes that no webhook may reject."""
        hooks = await self._configurations.hooks()
        return [] if not hooks or is_exempt(attributes) else hooks

    async def invocation(self, hook: Webhook, attributes: Attributes) -> Invocation | None:
        """Return the invocation of a webhook for a write, or None if its rules, selectors or conditions do not match.

        Raises:
            NotFound: The namespace whose labels would decide does not exist.
            Forbidden: A match condition cannot be evaluated.
        """
        result = await invocation_of(hook, self._matcher, attributes)
        if result is None or not hook.conditions:
            return result
        return result if await self._conditions_hold(hook, attributes, result) else None

    async def _conditions_hold(self, hook: Webhook, attributes: Attributes, value: Match) -> bool:
        from kubeloop.apiserver.admission.activation import Activation
        from kubeloop.apiserver.expressions.compiler import compiled_condition
        from kubeloop.apiserver.expressions.evaluation import MatchConditionsError, conditions_hold

        activation = Activation(attributes, self._registry, self.objects, self._authorizer)
        await activation.prepare(value)
        conditions = [compiled_condition(one["expression"]) for one in hook.conditions]
        try:
            return conditions_hold(conditions, activation.of_conditions(value, None), ignore_failure=hook.ignore_failure)
        except MatchConditionsError as error:
            name = attributes.name or ((attributes.obj or {}).get("metadata") or {}).get("name") or ""
            raise api_errors.forbidden(attributes.resource.gvr.group_resource, name, str(error)) from None

    async def versioned(self, invocation: Invocation, attributes: Attributes, obj: JSONObject | None) -> JSONObject | None:
        """Return ``obj`` in the version that the webhook's rule matched, or ``obj`` itself if that is the version of the request."""
        return await convert_to_match(self.objects, invocation, attributes, obj)

    async def call(
        self, invocation: Invocation, attributes: Attributes, obj: JSONObject | None, old: JSONObject | None
    ) -> AdmissionReviewResponse:
        """Call a webhook, and add its warnings to those of the request.

        Args:
            invocation: The webhook and the version in which it sees the write.
            attributes: The write.
            obj: The object in that version; None for DELETE.
            old: The stored object in that version; None for CREATE.

        Returns:
            The response, which allows the write.

        Raises:
            CallFailed: The call failed, or the response is invalid.
            BadRequest: The request is a dry run and the webhook has side effects.
            ApiError: The webhook rejected the write; the error has the webhook's own status.
        """
        hook = invocation.hook
        if attributes.dry_run and hook.side_effects not in _HARMLESS:
            raise api_errors.bad_request(f'admission webhook "{hook.name}" does not support dry run')
        requested = create_review(attributes, hook.versions, invocation.kind, invocation.resource.gvr, obj, old, name_of(attributes))
        try:
            body = await self._client.post(hook.client_config, requested.tree, timeout=hook.timeout)
        except NotCallable as error:
            raise CallFailed(f"could not get REST client: {error}") from None
        except CallFailed as error:
            raise CallFailed(f"failed to call webhook: {error}") from None
        response = parse_response(requested, body, mutating=self._mutating)
        attributes.warnings.extend(response.warnings)
        if not response.allowed:
            raise rejection(hook.name, response.status)
        return response

    def failed(self, hook: Webhook, fault: CallFailed) -> None:
        """Apply the failure policy of a webhook whose call failed. The method returns normally if the policy is Ignore.

        Raises:
            InternalError: The policy is Fail.
        """
        why = f'failed calling webhook "{hook.name}": {fault}'
        if not hook.ignore_failure:
            self._warnings.warn(f"{why}; the write is refused")
            raise api_errors.internal_error(why)
        self._warnings.warn(f"{why}; the write goes on")


# ValidatingAdmissionWebhook: calls all matching webhooks concurrently.
#
# Source: k8s.io/apiserver pkg/admission/plugin/webhook/validating; Kubernetes documentation, "Dynamic Admission Control".


class ValidatingWebhooks:
    """Plug-in ValidatingAdmissionWebhook: calls the matching webhooks; the write continues if none rejects it.

    Guarantees
        All calls have ended before the write is rejected. The client gets the rejection of the first webhook in order.
    """

    def __init__(self, dispatcher: WebhookDispatcher) -> None:
        self._dispatcher = dispatcher

    async def mutate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only validates."""

    async def validate(self, attributes: Attributes) -> None:
        hooks = await self._dispatcher.hooks(attributes)
        if not hooks:
            return
        invocations = [await self._dispatcher.invocation(hook, attributes) for hook in hooks]
        concerned = [invocation for invocation in invocations if invocation is not None]
        outcomes = await asyncio.gather(*(self._ask(invocation, attributes) for invocation in concerned), return_exceptions=True)
        errors = [one for one in outcomes if one is not None]
        for other in errors[1:]:  # As upstream: the client gets the first error, and the log has the others.
            _LOG.warning("another webhook refuses the request too: %s", other, exc_info=None if isinstance(other, ApiError) else other)
        if errors:
            raise errors[0]

    async def _ask(self, invocation: Invocation, attributes: Attributes) -> None:
        obj = await self._dispatcher.versioned(invocation, attributes, attributes.obj)
        old = await self._dispatcher.versioned(invocation, attributes, attributes.old)
        try:
            await self._dispatcher.call(invocation, attributes, obj, old)
        except CallFailed as error:
            self._dispatcher.failed(invocation.hook, error)
