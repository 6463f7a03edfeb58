"""The types of the client's streams, as a user's type checker sees them."""

from __future__ import annotations

import asyncio
from typing import assert_type

from kubeloop.client import Client
from kubeloop.client.streams import CopyResult, ExecResult, ExecSession, ForwardedPort, Log, LogLine, Output, PortForward
from kubeloop.transport import Response, Stream


async def kinds_of_answers(client: Client) -> None:
    """Never called: what counts is that it type-checks."""
    assert_type(await client.pods.logs("web"), str)
    async with client.pods.logs("web") as log:
        assert_type(log, Log)
        assert_type([line async for line in log], list[str])
        assert_type([chunk async for chunk in log.chunks()], list[bytes])
    async with client.pods.merged_logs(label_selector="app=web") as lines:
        assert_type([line async for line in lines], list[LogLine])
    result = assert_type(await client.pods.exec("web", ["ls"]), ExecResult)
    assert_type(result.check(), ExecResult)
    async with client.pods.exec_stream("web", ["sh"], stdin=True) as session:
        assert_type(session, ExecSession)
        assert_type([output async for output in session], list[Output])
        assert_type(await session.wait(), int)
    async with client.pods.attach("web") as attached:
        assert_type(attached, ExecSession)
    async with client.pods.port_forward("web", ":80", 8080) as forward:
        assert_type(forward, PortForward)
        assert_type(forward.ports, tuple[ForwardedPort, ...])
        assert_type(await forward.connect("http"), tuple[asyncio.StreamReader, asyncio.StreamWriter])
    assert_type(await client.pods.copy_to("web", "a", "b"), CopyResult)
    assert_type(await client.pods.copy_from("web", "a", "b"), CopyResult)
    assert_type(await client.pods.proxy("web"), Response)
    async with client.pods.proxy("web") as stream:
        assert_type(stream, Stream)


def test_the_names_of_the_package_are_all_there() -> None:
    import kubeloop.client.streams as streams

    assert all(getattr(streams, name).__name__ == name for name in streams.__all__)
    assert set(streams.__all__) <= set(dir(streams))
