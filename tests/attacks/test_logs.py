"""Logs are read by people and programs that believe them: no client writes forged lines into them, and no secret is in them."""

from __future__ import annotations

import base64
import json
import logging
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kubeloop.cli.server_logging import JsonLogFormatter, TextLogFormatter
from kubeloop.config import ClusterConfig, load_config

pytestmark = pytest.mark.embedded

POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]\n"
STATIC = "a-token-of-the-file"
GOLD = "the-gold-of-a-secret"
FORGED = "FORGED-LINE"
SECRETS = "/api/v1/namespaces/default/secrets"


@dataclass
class Running:
    config: ClusterConfig
    process: subprocess.Popen[str]
    audit: Path

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", "Authorization": f"Bearer {STATIC}"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"{self.config.server}{path}", data, sent, method=method)
        try:
            with urllib.request.urlopen(request, context=self.config.ssl_context(None), timeout=60) as answer:
                body = answer.read()
                return json.loads(body) if body.startswith(b"{") else None
        except urllib.error.HTTPError as refused:
            with refused:
                refused.read()
            return None

    def end(self) -> str:
        """All that was logged."""
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=120)
        return errors + self.audit.read_text()


@pytest.fixture(params=["text", "json"])
def running(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "tokens.csv").write_text(f"{STATIC},alice,1,system:masters\n")
    kubeconfig, audit = tmp_path / "kubeconfig", tmp_path / "audit.log"
    flags = [f"--kubeconfig={kubeconfig}", f"--token-auth-file={tmp_path / 'tokens.csv'}", f"--logging-format={request.param}", "-v=10"]
    flags += [f"--audit-policy-file={tmp_path / 'policy.yaml'}", f"--audit-log-path={audit}", "--no-controllers"]
    with subprocess.Popen(
        [sys.executable, "-m", "kubeloop", "server", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready ")
            yield Running(load_config(kubeconfig), process, audit)
        finally:
            process.kill()


def test_no_client_writes_lines_and_no_secret_is_read_in_the_logs(running: Running) -> None:
    forged = f"x%0d%0a{FORGED}%1b[2J%c2%9b2J%e2%80%a8{FORGED}"
    for path in (f"/{forged}", f"/api/v1/namespaces/default/configmaps/{forged}", "/api/v1/namespaces/%ff%fe", f"/healthz?x={forged}"):
        running.ask("GET", path, User_Agent=f"x\x9b2J{FORGED}", Impersonate_User=f"jane\x9b2J{FORGED}", Audit_Id=f"a {FORGED}")
    encoded = base64.b64encode(GOLD.encode()).decode()
    running.ask("POST", SECRETS, {"metadata": {"name": "gold"}, "stringData": {"gold": GOLD}})
    running.ask("GET", f"{SECRETS}/gold")
    running.ask("PUT", f"{SECRETS}/gold", {"metadata": {"name": "gold"}, "data": {"gold": encoded, "more": encoded}})
    running.ask("PUT", f"{SECRETS}/gold", {"metadata": {"name": "gold"}, "data": {"gold": encoded}, "type": GOLD})
    running.ask("GET", SECRETS)
    merge = "application/merge-patch+json"
    running.ask("PATCH", f"{SECRETS}/gold", {"data": {"other": encoded}}, Content_Type=merge)
    running.ask(
        "PATCH", f"{SECRETS}/gold", [{"op": "add", "path": "/data/x", "value": encoded}], Content_Type="application/json-patch+json"
    )
    running.ask("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
    issued = running.ask("POST", "/api/v1/namespaces/default/serviceaccounts/robot/token", {"spec": {}})["status"]["token"]
    running.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": issued}})
    running.ask("GET", "/api/v1/namespaces", Authorization=f"Bearer {issued}")
    running.ask("GET", "/api/v1/namespaces", Authorization=f"Bearer {issued}broken")
    running.ask("GET", f"/api/v1/namespaces?access_token={issued}", Authorization="")
    key = running.config.credentials.client_key
    assert key is not None
    written = running.end()
    assert "Traceback" not in written
    lines = written.split("\n")
    assert any(FORGED in line for line in lines), "the requests were logged"
    assert not [line for line in lines if line.startswith(FORGED)]
    assert not [char for char in "\r\x1b\x9b\u2028\x7f" if char in written]
    hidden = {"a static token": STATIC, "an issued token": issued, "data": encoded, "a key": key.read().decode().splitlines()[1]}
    assert [what for what, text in hidden.items() if text in written] == []
    assert GOLD not in written.replace(f'"type":"{GOLD}"', "").replace(f'value: \\"{GOLD}\\"', "")


@pytest.mark.parametrize("formatter", [TextLogFormatter("%(levelname)s %(message)s"), JsonLogFormatter()], ids=["text", "json"])
def test_a_record_is_one_line_and_what_a_terminal_would_obey_is_escaped(formatter: logging.Formatter) -> None:
    try:
        raise ValueError(f"a\n{FORGED}\x1b[2J")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "%s failed", (f"/a\r\n{FORGED}\x9b\u2028\u202e\ud800",), sys.exc_info())
    record.fields = {"userAgent": f"a\n{FORGED}\x7f"}
    shown = formatter.format(record)
    assert not [line for line in shown.split("\n") if line.startswith(FORGED)]
    assert not [char for char in "\r\x1b\x9b\x7f\u2028\u202e\ud800" if char in shown]
    shown.encode()
