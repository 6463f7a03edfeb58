"""MutatingAdmissionWebhook: calls webhooks that may change the object, one after the other.

Source: k8s.io/apiserver pkg/admission/plugin/webhook/mutating; Kubernetes documentation, "Dynamic Admission Control".
"""

from __future__ import annotations

import copy
import json
from typing import Any

from kubeloop.apiserver.admission import Attributes
from kubeloop.apiserver.admission.new_objects import check_metadata, replace_object, unfinished
from kubeloop.apiserver.outbound.failure import CallFailed
from kubeloop.apiserver.registry.decoding import conform, kind_of
from kubeloop.apiserver.webhooks.admission_review import JSON_PATCH, AdmissionReviewResponse
from kubeloop.apiserver.webhooks.dispatcher import Invocation, WebhookDispatcher
from kubeloop.endpoints import api_errors
from kubeloop.merge import PatchError, json_patch
from kubeloop.meta.errors import ApiError, DecodeError
from kubeloop.types import JSONObject


class _Round:
    """State of one write: the webhooks to call again if the object changes after their call, and the webhooks to call again now."""

    def __init__(self) -> None:
        self.asked: set[str] = set()
        self.due: set[str] = set()
        self.output: JSONObject | None = None

    def changed(self) -> None:
        """Mark all webhooks called so far for another call, because the object has changed."""
        self.due |= self.asked
        self.asked = set()


class MutatingWebhooks:
    """Plug-in MutatingAdmissionWebhook: calls the matching webhooks in the order of the names of their configurations.

    Guarantees
        A webhook sees the changes of the webhooks before it. A webhook with reinvocationPolicy IfNeeded is called once more if the object
        changed after its call.
        The changed object is defaulted and validated as if the client had sent it.
    """

    def __init__(self, asker: WebhookDispatcher) -> None:
        self._asker = asker

    async def validate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only mutates."""

    async def mutate(self, attributes: Attributes) -> None:
        hooks = await self._asker.hooks(attributes)
        if not hooks:
            return
        again = attributes.reinvocation.again
        memory: _Round = attributes.reinvocation.kept.setdefault("webhooks", _Round())
        if again and memory.output != attributes.obj:
            memory.changed()
        with unfinished(attributes):
            for hook in hooks:
                invocation = await self._asker.invocation(hook, attributes)
                if invocation is None or (again and hook.key not in memory.due):
                    continue
                if await self._mutated(invocation, attributes):
                    memory.changed()
                    attributes.reinvocation.wanted = True
                if hook.reinvoke:
                    memory.asked.add(hook.key)
        memory.output = copy.deepcopy(attributes.obj)

    async def _mutated(self, invocation: Invocation, attributes: Attributes) -> bool:
        """Call one webhook, and return whether it changed the object."""
        obj = await self._asker.versioned(invocation, attributes, attributes.obj)
        old = await self._asker.versioned(invocation, attributes, attributes.old)
        try:
            said = await self._asker.ask(invocation, attributes, obj, old)
            operations = _operations(said)
        except CallFailed as fault:
            self._asker.failed(invocation.hook, fault)
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
            patched = await self._asker.objects.convert(invocation.resource, patched, attributes.gvk)
            attributes.resource.strategy.default(patched)
        check_metadata(attributes, patched)
        replace_object(attributes.obj, patched)
        return True


def _operations(said: AdmissionReviewResponse) -> list[Any]:
    if not said.patch:
        return []
    try:
        found = json.loads(said.patch)
    except (ValueError, RecursionError) as fault:
        raise CallFailed(f"received undecodable patch in webhook response: {fault}") from None
    if not isinstance(found, list):
        met = "object" if isinstance(found, dict) else "string" if isinstance(found, str) else "number"
        raise CallFailed(
            f"received undecodable patch in webhook response: json: cannot unmarshal {met} into Go value of type jsonpatch.Patch"
        )
    if found and said.patch_type != JSON_PATCH:
        raise CallFailed(f'unsupported patch type "{said.patch_type}"')
    return found


def _patched(invocation: Invocation, attributes: Attributes, obj: JSONObject, operations: list[Any]) -> JSONObject:
    """Return the object after a patch, without unknown fields and with defaults."""
    if attributes.operation == "CONNECT":
        raise api_errors.not_implemented(f'changes by admission webhook "{invocation.hook.name}" of how a client is connected')
    try:
        tree = json_patch(obj, operations)
    except PatchError as fault:
        raise api_errors.internal_error(str(fault)) from None
    if not isinstance(tree, dict):
        raise api_errors.internal_error("json: cannot unmarshal array into Go value of type map[string]interface {}")
    wanted = invocation.kind

    def refuse(why: str) -> ApiError:
        return api_errors.internal_error(why)

    try:
        met = kind_of(tree, wanted)
    except DecodeError as fault:
        raise refuse(str(fault)) from None
    if met != wanted:
        raise api_errors.internal(f"converting ({met.version}.{met.kind}) to ({attributes.gvk.kind}): unknown conversion")
    patched = conform(tree, met, wanted, invocation.resource, refuse).obj
    if attributes.kind is None:
        invocation.resource.strategy.default(patched)
    return patched
