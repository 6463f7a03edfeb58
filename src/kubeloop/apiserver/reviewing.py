"""What all reviews have in common: they are decoded, admitted and answered like new objects, and never stored."""

from __future__ import annotations

from typing import Any

from kubeloop.apiserver.answers import Answer
from kubeloop.apiserver.asking_admission import ask_admission
from kubeloop.apiserver.decoding import decode_object, media_type_of
from kubeloop.apiserver.exchange import Exchange
from kubeloop.apiserver.object_meta import metadata_of, set_namespace
from kubeloop.apiserver.options import write_options

JSONObject = dict[str, Any]


async def decode_review(exchange: Exchange) -> JSONObject:
    """The body, admitted.

    Raises:
        BadRequest; whatever admission raises.
    """
    options = write_options(exchange.request, "CreateOptions")
    obj = decode_object(await exchange.body(), media_type_of(exchange.request.header("Content-Type")), exchange.resource).obj
    exchange.audit_sent(obj)
    set_namespace(metadata_of(obj), exchange.namespace)
    # A review is stored nowhere, but its answer says who asked.
    owners = exchange.parts.writer.owners
    scope = owners.scope(exchange.resource, "")
    owners.updated(scope, scope.empty, obj, exchange.manager(options))
    await ask_admission(exchange, obj, name=metadata_of(obj).get("name") or "", dry_run=options.dry_run)
    return obj


def answer_review(exchange: Exchange, obj: JSONObject) -> Answer:
    return exchange.parts.renderer.object(exchange.resource, exchange.accepted, exchange.request, obj, status=201)
