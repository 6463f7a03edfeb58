"""MutatingAdmissionWebhook: calls webhooks that may change the object, one after the other.

Source: k8s.io/apiserver pkg/admission/plugin/webhook/mutating; Kubernetes documentation, "Dynamic Admission Control".
"""

from __future__ import annotations

import copy
import json
from typing import Any

from kubeloop.apiserver.admission import Attributes
from kubeloop.apiserver.admission.new_objects import check_patched_metadata, hide_generated_metadata, replace_object
from kubeloop.apiserver.outbound.failure import CallFailed
from kubeloop.apiserver.registry.decoding import conform, kind_of
from kubeloop.apiserver.webhooks.admission_review import JSON_PATCH, AdmissionReviewResponse
from kubeloop.apiserver.webhooks.dispatcher import Invocation, WebhookDispatcher
from kubeloop.endpoints import api_errors
from kubeloop.merge import PatchError, json_patch
from kubeloop.meta.errors import ApiError, DecodeError
from kubeloop.types import JSONObject


class _ReinvocationContext:
    """State of one write: the webhooks to call again if the object changes after their call, and the webhooks to call again now."""

    def __init__(self) -> None:
        self.called: set[str] = set()
        self.due: set[str] = set()
        self.output: JSONObject | None = None

    def changed(self) -> None:
        """Mark all webhooks that were already called for another call, because the object has changed."""
        self.due |= self.called
        self.called = set()


class MutatingWebhooks:
    """Plug-in MutatingAdmissionWebhook: calls the matching webhooks in the order of the names of their configurations.

    Guarantees
        A webhook sees the changes of the webhooks before it. A webhook with reinvocationPolicy IfNeeded is called once more if the object
        changed after its call.
        The changed object is defaulted and validated as if the client had sent it.
    """

    def __init__(self, dispatcher: WebhookDispatcher) -> None:
        self._dispatcher = dispatcher

    async def validate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only mutates."""

    async def mutate(self, attributes: Attributes) -> None:
        hooks = await self._dispatcher.hooks(attributes)
        if not hooks:
            return
        again = attributes.reinvocation.again
        memory: _ReinvocationContext = attributes.reinvocation.state.setdefault("webhooks", _ReinvocationContext())
        if again and memory.output != attributes.obj:
            memory.changed()
        with hide_generated_metadata(attributes):
            for hook in hooks:
                invocation = await self._dispatcher.invocation(hook, attributes)
                if invocation is None or (again and hook.key not in memory.due):
                    continue
                if await self._mutated(invocation, attributes):
                    memory.changed()
                    attributes.reinvocation.requested = True
                if hook.reinvoke:
                    memory.called.add(hook.key)
        memory.output = copy.deepcopy(attributes.obj)

    async def _mutated(self, invocation: Invocation, attributes: Attributes) -> bool:
        """Call one webhook, and return whether it changed the object."""
        obj = await self._dispatcher.versioned(invocation, attributes, attributes.obj)
        old = await self._dispatcher.versioned(invocation, attributes, attributes.old)
        try:
            response = await self._dispatcher.call(invocation, attributes, obj, old)
            operations = _operations(response)
        except CallFailed as error:
            self._dispatcher.failed(invocation.hook, error)
            return False
        if not operations:
            return False
        if obj is None or attributes.obj is None:
            what = f'admission webhook "{invocation.hook.name}" attempted to modify the object'
            raise api_errors.internal_error(f"{what}, which is not supported for this operation")
        patched = _patched(invocation, attributes, obj, operations)
        if patched == obj:
            return False
        if invocation.resource is not attributes.resource and attributes.kind is None:
            patched = await self._dispatcher.objects.convert(invocation.resource, patched, attributes.gvk)
            attributes.resource.strategy.default(patched)
        check_patched_metadata(attributes, patched)
        replace_object(attributes.obj, patched)
        return True


def _operations(response: AdmissionReviewResponse) -> list[Any]:
    if not response.patch:
        return []
    try:
        result = json.loads(response.patch)
    except (ValueError, RecursionError) as error:
        raise CallFailed(f"received undecodable patch in webhook response: {error}") from None
    if not isinstance(result, list):
        reason = "object" if isinstance(result, dict) else "string" if isinstance(result, str) else "number"
        raise CallFailed(
            f"received undecodable patch in webhook response: json: cannot unmarshal {reason} into Go value of type jsonpatch.Patch"
        )
    if result and response.patch_type != JSON_PATCH:
        raise CallFailed(f'unsupported patch type "{response.patch_type}"')
    return result


def _patched(invocation: Invocation, attributes: Attributes, obj: JSONObject, operations: list[Any]) -> JSONObject:
    """Return the object after a patch, without unknown fields and with defaults."""
    if attributes.operation == "CONNECT":
        raise api_errors.not_implemented(f'changes by admission webhook "{invocation.hook.name}" of how a client is connected')
    try:
        tree = json_patch(obj, operations)
    except PatchError as error:
        raise api_errors.internal_error(str(error)) from None
    if not isinstance(tree, dict):
        raise api_errors.internal_error("json: cannot unmarshal array into Go value of type map[string]interface {}")
    requested = invocation.kind

    def refuse(why: str) -> ApiError:
        return api_errors.internal_error(why)

    try:
        reason = kind_of(tree, requested)
    except DecodeError as error:
        raise refuse(str(error)) from None
    if reason != requested:
        raise api_errors.internal(f"converting ({reason.version}.{reason.kind}) to ({attributes.gvk.kind}): unknown conversion")
    patched = conform(tree, reason, requested, invocation.resource, refuse).obj
    if attributes.kind is None:
        invocation.resource.strategy.default(patched)
    return patched
