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

#: What is the server's to say of an object.
_SYSTEMS = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "uid")


async def decode_review(exchange: Exchange) -> JSONObject:
    """The body, admitted.

    Raises:
        BadRequest; whatever admission raises.
    """
    options = write_options(exchange.request, "CreateOptions")
    media_type = media_type_of(exchange.request.header("Content-Type"))
    decoded = decode_object(await exchange.body(), media_type, exchange.resource, field_validation=options.field_validation)
    exchange.accept_problems(decoded, options, exchange.resource.kind)
    obj, metadata = decoded.obj, metadata_of(decoded.obj)
    set_namespace(metadata, exchange.namespace)
    for name in _SYSTEMS:
        metadata.pop(name, None)
    # A review is stored nowhere, but its answer says who asked.
    owners = exchange.parts.writer.owners
    scope = owners.scope(exchange.resource, "")
    owners.updated(scope, scope.empty, obj, exchange.manager(options))
    await ask_admission(exchange, obj, name=metadata_of(obj).get("name") or "", dry_run=options.dry_run)
    return obj


def answer_review(exchange: Exchange, obj: JSONObject) -> Answer:
    return exchange.parts.renderer.object(exchange.resource, exchange.accepted, exchange.request, obj, status=201)
