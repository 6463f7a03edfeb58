"""The types of the scripted kubelet, as a user's type checker sees them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import assert_type

from kubeloop.api.core.v1 import Pod
from kubeloop.client import Client
from kubeloop.testing import (
    CommandHandler,
    ContainerLog,
    KubeletRequest,
    LocalCluster,
    PortHandler,
    ScriptedKubelet,
    Terminal,
    run_process,
)


async def script(cluster: LocalCluster, client: Client) -> None:
    """Never called: what counts is that it type-checks."""
    async with ScriptedKubelet(cluster) as kubelet, ScriptedKubelet(client, node="n", namespace="shop"):
        assert_type(kubelet, ScriptedKubelet)
        assert_type(await kubelet.run_pod("web-0"), Pod)
        assert_type(await kubelet.end_pod("web-0", exit_code=1), Pod)
        assert_type(kubelet.on_logs("web-0", ["a"]), ContainerLog)
        assert_type(kubelet.files("web-0"), Path)
        assert_type(kubelet.requests, list[KubeletRequest])
        assert_type(kubelet.last.target, tuple[str, str, str])
        kubelet.on_exec("web-0", ["ls"], stdout=b"a", run=run_process)
        kubelet.on_exec("web-0", run=_handler)
        await kubelet.on_port_forward("web-0", 80, _serve)
    command: CommandHandler = _handler
    port: PortHandler = _serve
    del command, port


async def _handler(command: list[str], terminal: Terminal) -> int:
    assert_type(await terminal.input(), bytes)
    return len(command)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def test_the_names_of_the_package_are_all_there() -> None:
    import kubeloop.testing as testing

    assert all(getattr(testing, name) is not None for name in testing.__all__)
    assert {"ContainerLog", "KubeletRequest", "ScriptedKubelet", "Terminal", "run_process"} <= set(testing.__all__)
