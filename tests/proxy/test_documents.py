"""Responses that pass unchanged: small objects and lists are sent with one write, everything else as a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kubeloop.meta.errors import TransportError
from kubeloop.serving.answer import Aborted, Answer, StreamingResponse
from tests.proxy.rules.rule_texts import rule
from tests.proxy.samples import PODS, ScriptedAnswer, ScriptedProxy

SECRETS = rule(match=[{"resources": ["secrets"]}])
LARGE = b"x" * (64 << 10)


def proxy_of(*chunks: bytes | Exception) -> ScriptedProxy:
    return ScriptedProxy(lambda _: ScriptedAnswer(chunks=chunks), SECRETS)


@pytest.mark.parametrize("target", [f"{PODS}/web-0", PODS, f"{PODS}/web-0/status"])
async def test_an_object_of_unknown_length_is_sent_with_its_length(target: str) -> None:
    proxy = proxy_of(b'{"kind":', b'"Pod"}\n')
    reply = await proxy(target)
    assert isinstance(reply, Answer)
    assert (reply.body, reply.verbatim) == (b'{"kind":"Pod"}\n', True)
    assert proxy.upstream.answers[0].closed


@pytest.mark.parametrize("target", [f"{PODS}/web-0/log?follow=true", f"{PODS}/web-0/proxy/events", f"{PODS}?watch=true", "/metrics"])
async def test_what_may_be_a_stream_is_not_collected(target: str) -> None:
    reply = await proxy_of(b"a", b"b")(target)
    assert isinstance(reply, StreamingResponse)
    assert await read(reply) == [b"a", b"b"]


async def test_a_long_list_is_streamed_from_its_beginning() -> None:
    reply = await proxy_of(LARGE, b"y", b"z")(PODS)
    assert isinstance(reply, StreamingResponse)
    assert await read(reply) == [LARGE + b"y", b"z"]


async def test_a_body_that_breaks_off_at_its_beginning_is_a_bad_gateway() -> None:
    proxy = proxy_of(b"{", TransportError("gone"))
    reply = await proxy(f"{PODS}/web-0")
    assert isinstance(reply, Answer)
    assert (reply.status, proxy.upstream.answers[0].closed) == (502, True)


async def test_a_long_body_that_breaks_off_cuts_the_connection() -> None:
    reply = await proxy_of(LARGE, b"y", TransportError("gone"))(PODS)
    assert isinstance(reply, StreamingResponse)
    with pytest.raises(Aborted):
        await read(reply)


async def read(reply: StreamingResponse) -> Sequence[Any]:
    return [chunk async for chunk in reply.chunks]
