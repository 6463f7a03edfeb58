"""``/finalize`` of namespaces: whoever emptied a namespace takes its finalizer away, and the last one to go lets the namespace go.

Source: k8s.io/kubernetes pkg/registry/core/namespace (FinalizeREST, namespaceFinalizeStrategy).
"""

from __future__ import annotations

import copy

from kubeloop.apiserver.handlers.scope import RequestScope
from kubeloop.apiserver.registry.decoding import decode_object, media_type_of
from kubeloop.apiserver.registry.object_meta import check_name, metadata_of
from kubeloop.apiserver.registry.options import write_options
from kubeloop.apiserver.registry.strategy import Strategy
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.meta.field_error import FieldError
from kubeloop.serving.answer import Answer
from kubeloop.types import JSONObject


class FinalizeStrategy(Strategy):
    """As the namespace's own strategy, except that ``spec.finalizers`` may change and status may not."""

    def __init__(self, base: Strategy) -> None:
        self._base = base
        self.standard_finalizers = base.standard_finalizers

    def default(self, obj: JSONObject) -> None:
        self._base.default(obj)

    def prepare_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        obj["status"] = copy.deepcopy(old.get("status", {}))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return self._base.validate_update(context, obj, old)

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return self._base.validate_name(name, prefix)


async def finalize(scope: RequestScope) -> Answer:
    from dataclasses import replace

    options = write_options(scope.request, "UpdateOptions")
    resource = scope.resource
    decoded = decode_object(await scope.body(), media_type_of(scope.request.header("Content-Type")), resource)
    scope.accept_problems(decoded, options, resource.kind)
    check_name(metadata_of(decoded.obj), scope.info.name)

    async def change(_: JSONObject) -> JSONObject:
        return copy.deepcopy(decoded.obj)

    finalizing = FinalizeStrategy(resource.strategy)
    finalized = replace(resource, strategy_source=lambda: finalizing)
    write = scope.write(resource=finalized, dry_run=options.dry_run, manager=scope.manager(options))
    outcome = await scope.services.writer.update(write, change, check_uid=True)
    return scope.services.renderer.object(resource, scope.accepted, scope.request, outcome.obj, stored=outcome.stored)
