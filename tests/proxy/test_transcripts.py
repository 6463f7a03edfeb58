"""The short form of ``make test-proxy``: one transcript of kubectl through a proxy prints what it prints without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubectl.runner import Kubectl
from tests.kubectl.test_transcripts import FOLDER
from tests.kubectl.transcript import Command, Session, parse
from tests.proxy.in_front import proxied
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server


@pytest.mark.parametrize("proxy_mode", [pytest.param("1", id="without rules"), pytest.param("rules", id="with idle rules")])
def test_kubectl_prints_what_it_prints_without_a_proxy(
    server: ServerUnderTest, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy_mode: str
) -> None:
    monkeypatch.setenv("KUBELOOP_TEST_PROXY", proxy_mode)
    for name in ("home", "work", "proxy"):
        (tmp_path / name).mkdir()
    parts = parse((FOLDER / "delete.txt").read_text())
    with proxied(server.kubeconfig, tmp_path / "proxy") as kubeconfig:
        kubectl = Kubectl(kubeconfig, tmp_path / "home", namespace)
        played = list(Session(kubectl.kubeconfig, kubectl.namespace, kubectl.home, tmp_path / "work").play(parts))
    outputs = [(one.line, one.output) for one in parts if isinstance(one, Command)]
    assert [(one.line, one.output) for one in played if isinstance(one, Command)] == outputs
