"""Audit, logs, limits and the end of ``kubeloop server``, by its flags."""

from __future__ import annotations

import json
import logging
import signal
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from kubeloop.cli.server import server
from kubeloop.cli.server_logging import JsonLogFormatter, TextLogFormatter
from kubeloop.config import load_config

pytestmark = pytest.mark.embedded

POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata, verbs: [list]}]\n"
SECRET_TOKEN = "never-to-be-seen"


def test_a_server_logs_audits_and_ends_at_a_signal_as_configured(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "tokens.csv").write_text(f"{SECRET_TOKEN},alice,1,system:masters\n")
    audit, kubeconfig = tmp_path / "audit.log", tmp_path / "kubeconfig"
    flags = [
        f"--audit-policy-file={tmp_path / 'policy.yaml'}",
        f"--audit-log-path={audit}",
        f"--token-auth-file={tmp_path / 'tokens.csv'}",
        "--logging-format=json",
        "-v=3",
        "--request-timeout=30s",
        "--max-requests-inflight=50",
        "--max-mutating-requests-inflight=50",
        "--shutdown-delay-duration=10ms",
        "--shutdown-watch-termination-grace-period=10ms",
    ]
    command = [sys.executable, "-m", "kubeloop", "server", "--no-controllers", "--kubeconfig", str(kubeconfig), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready ")
        config = load_config(kubeconfig)
        authority = config.ca
        assert authority is not None
        headers = {"Authorization": f"Bearer {SECRET_TOKEN}", "Audit-Id": "mine", "User-Agent": "test/1"}
        request = urllib.request.Request(f"{config.server}/api/v1/namespaces?limit=1", headers=headers)
        with urllib.request.urlopen(request, context=ssl.create_default_context(cadata=authority.read().decode()), timeout=60) as answer:
            assert answer.headers["Audit-Id"] == "mine"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0
    (event,) = [json.loads(line) for line in audit.read_text().splitlines()]
    assert (event["auditID"], event["user"]["username"], event["stage"]) == ("mine", "alice", "ResponseComplete")
    lines = [json.loads(line) for line in errors.splitlines()]
    (line,) = [line for line in lines if line["msg"] == "HTTP"]
    fields = {name: line[name] for name in ("verb", "URI", "userAgent", "audit-ID", "srcIP", "user", "apf_pl", "resp")}
    assert fields == {
        "verb": "LIST",
        "URI": "/api/v1/namespaces?limit=1",
        "userAgent": "test/1",
        "audit-ID": "mine",
        "srcIP": "127.0.0.1",
        "user": "alice",
        "apf_pl": "exempt",
        "resp": 200,
    }
    assert SECRET_TOKEN not in errors + audit.read_text()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        pytest.param(["--audit-log-path=x"], "--audit-policy-file FILE", id="a log without a policy"),
        pytest.param(["--audit-policy-file=nosuch"], "--audit-log-path FILE", id="a policy without a log"),
        pytest.param(["--audit-policy-file=nosuch", "--audit-log-path=-"], "cannot read audit policy nosuch", id="no policy"),
        pytest.param(["--request-timeout=0"], "is not a valid duration", id="no time at all"),
        pytest.param(["--logging-format=xml"], "xml", id="an unknown format"),
    ],
)
def test_flags_that_make_no_sense_are_an_error_of_one_line(flags: list[str], message: str) -> None:
    done = CliRunner().invoke(server, ["--no-controllers", *flags])
    assert done.exit_code != 0
    assert message in done.output
    assert "Traceback" not in done.output


def test_fields_follow_the_message_or_are_of_the_object() -> None:
    record = logging.LogRecord("a.b", logging.INFO, "", 0, "HTTP %s", ("x",), None)
    record.fields = {"URI": '/a"b', "resp": 200}
    assert TextLogFormatter("%(message)s").format(record) == 'HTTP x URI="/a\\"b" resp=200'
    shown = json.loads(JsonLogFormatter().format(record))
    assert {name: shown[name] for name in ("level", "logger", "msg", "URI", "resp")} == {
        "level": "info",
        "logger": "a.b",
        "msg": "HTTP x",
        "URI": '/a"b',
        "resp": 200,
    }
