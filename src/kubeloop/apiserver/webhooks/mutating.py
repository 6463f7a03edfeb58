"""MutatingAdmissionWebhook: webhooks that may change what is written, one after the other.

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
    """What is remembered of one write: which webhooks to ask again if something changes after them, and which are to be asked again."""

    def __init__(self) -> None:
        self.asked: set[str] = set()
        self.due: set[str] = set()
        self.output: JSONObject | None = None

    def changed(self) -> None:
        self.due |= self.asked
        self.asked = set()


class MutatingWebhooks:
    """Asks the webhooks that are concerned, in the order of their configurations' names.

    Guarantees
        A webhook sees what those before it made of the object. Whoever has reinvocationPolicy IfNeeded is asked once more when the object
        was changed after it.
        What it changes passes defaulting and validation as if the client had sent it.
    """

    def __init__(self, asker: WebhookDispatcher) -> None:
        self._asker = asker

    async def validate(self, attributes: Attributes) -> None:
        """Nothing is left to check."""

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
        """Whether the object is another afterwards."""
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
    """The object after a patch, as its kind has it: unknown fields are gone, defaults are there."""
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
