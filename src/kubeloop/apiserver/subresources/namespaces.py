"""``/finalize`` of namespaces: whoever emptied a namespace takes its finalizer away, and the last one to go lets the namespace go.

Source: k8s.io/kubernetes pkg/registry/core/namespace (FinalizeREST, namespaceFinalizeStrategy).
"""

from __future__ import annotations

import copy

from kubeloop.apiserver.answers import Answer
from kubeloop.apiserver.decoding import decode_object, media_type_of
from kubeloop.apiserver.object_meta import check_name, metadata_of
from kubeloop.apiserver.options import write_options
from kubeloop.apiserver.request_scope import RequestScope
from kubeloop.apiserver.strategy import RequestContext, Strategy
from kubeloop.meta.field_error import FieldError
from kubeloop.types import JSONObject


class FinalizeStrategy(Strategy):
    """As the namespace's own strategy, except that ``spec.finalizers`` may change and status may not."""

    def __init__(self, base: Strategy) -> None:
        self._base = base
        self.standard_finalizers = base.standard_finalizers

    def default(self, obj: JSONObject) -> None:
        self._base.default(obj)

    def prepare_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> None:
        obj["status"] = copy.deepcopy(old.get("status", {}))

    def validate_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return self._base.validate_update(context, obj, old)

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return self._base.validate_name(name, prefix)


async def finalize(exchange: RequestScope) -> Answer:
    from dataclasses import replace

    options = write_options(exchange.request, "UpdateOptions")
    resource = exchange.resource
    decoded = decode_object(await exchange.body(), media_type_of(exchange.request.header("Content-Type")), resource)
    exchange.accept_problems(decoded, options, resource.kind)
    check_name(metadata_of(decoded.obj), exchange.info.name)

    async def change(_: JSONObject) -> JSONObject:
        return copy.deepcopy(decoded.obj)

    call = exchange.call(dry_run=options.dry_run, manager=exchange.manager(options))
    finalizing = FinalizeStrategy(resource.strategy)
    call.resource = replace(resource, strategy_source=lambda: finalizing)
    outcome = await exchange.parts.writer.update(call, change, check_uid=True)
    return exchange.parts.renderer.object(resource, exchange.accepted, exchange.request, outcome.obj, stored=outcome.stored)
