"""The same kubeconfig given to kubectl and to us: both ask the server in the same name, or both refuse it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kubeloop.config import Overrides, load_config
from kubeloop.meta import ConfigError
from kubeloop.transport import Transport
from tests.config.documents import V1, document, script, write
from tests.config.recorder import RecordedRequest, Recorder, recorder
from tests.faults.server import authority
from tests.kubectl.runner import kubectl_binary

JANE = authority().issue("jane", client=True)
JOHN = authority().issue("john", client=True)
CA = base64.b64encode(authority().certificate).decode()


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def credential(text: str) -> str:
    """A program that prints an ExecCredential whose status is ``text``."""
    return f"""echo '{{"apiVersion": "{V1}", "kind": "ExecCredential", "status": {text}}}'"""


CERTIFICATE = {"client-certificate-data": encoded(JANE.certificate), "client-key-data": encoded(JANE.key)}
PLUGIN = {"apiVersion": V1, "interactiveMode": "Never"}
ESCAPED_JANE = (JANE.certificate.decode().replace("\n", "\\n"), JANE.key.decode().replace("\n", "\\n"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files that the kubeconfigs below name by relative paths."""
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "ca.crt").write_bytes(authority().certificate)
    (tmp_path / "pki" / "john.crt").write_bytes(JOHN.certificate)
    (tmp_path / "pki" / "john.key").write_bytes(JOHN.key)
    (tmp_path / "token").write_text("from-file\n")
    script(tmp_path / "bin" / "token", credential('{"token": "from-plugin"}'))
    cert, key = ESCAPED_JANE
    script(tmp_path / "bin" / "cert", f"printf '%s' '{_answer(cert, key)}'")
    return tmp_path


def _answer(cert: str, key: str) -> str:
    status = f'{{"clientCertificateData": "{cert}", "clientKeyData": "{key}"}}'
    return f'{{"apiVersion": "{V1}", "kind": "ExecCredential", "status": {status}}}'


async def kubectl(file: Path, *args: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        kubectl_binary(),
        "--kubeconfig",
        str(file),
        *args,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={"HOME": str(file.parent), "PATH": os.environ.get("PATH", "")},
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def both(
    server: Recorder, file: Path, flags: list[str], overrides: Overrides | None, context: str | None = None
) -> tuple[RecordedRequest, RecordedRequest]:
    """What kubectl asked, and what we asked."""
    code, said = await kubectl(file, "get", "--raw", "/probe", *flags)
    assert code == 0, said
    async with Transport(load_config(file, context, overrides=overrides)) as transport:
        await transport.request("GET", "/probe")
    theirs, ours = server.asked
    # Credentials and trust are compared; what compression is called is each client's own.
    return replace(theirs, encodings=theirs.encodings and "some"), replace(ours, encodings="" if ours.encodings == "identity" else "some")


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        pytest.param({"token": "t"}, "Bearer t", id="a token"),
        pytest.param({"tokenFile": "token"}, "Bearer from-file", id="a token file, beside the kubeconfig"),
        pytest.param({"token": "t", "tokenFile": "token"}, "Bearer from-file", id="a token and a file: what the file says"),
        pytest.param({"token": "t", "tokenFile": "token", "as": "a"}, "Bearer from-file", id="and impersonation of a user"),
        pytest.param({"username": "me", "password": "p:w"}, "Basic bWU6cDp3", id="a name and a password"),
        pytest.param(CERTIFICATE, "jane", id="a client certificate"),
        pytest.param({"client-certificate": "pki/john.crt", "client-key": "pki/john.key"}, "john", id="a client certificate in files"),
        pytest.param({**CERTIFICATE, "token": "t"}, "Bearer t", id="a client certificate and a token"),
        pytest.param({"exec": {"command": "./bin/token", **PLUGIN}}, "Bearer from-plugin", id="a plugin, beside the kubeconfig"),
        pytest.param({"exec": {"command": "./bin/cert", **PLUGIN}}, "jane", id="a plugin that gives a certificate"),
        pytest.param({"exec": {"command": "./bin/token", **PLUGIN}, "token": "t"}, "Bearer t", id="a plugin that a token goes before"),
        pytest.param({"exec": {"command": "./bin/token", **PLUGIN}, **CERTIFICATE}, "jane", id="a plugin that a certificate goes before"),
        pytest.param(
            {"as": "ann", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"acme.com/it's 1%": ["x", "y"]}, "token": "t"},
            "Bearer t",
            id="impersonation of all there is",
        ),
    ],
)
async def test_kubectl_and_we_ask_as(folder: Path, user: dict[str, Any], expected: str) -> None:
    async with recorder() as server:
        file = write(folder / "config", document({"server": server.url, "certificate-authority": "pki/ca.crt"}, user))
        theirs, ours = await both(server, file, [], None)
    assert ours == theirs
    assert expected in (ours.header("authorization"), ours.certificate)


@pytest.mark.parametrize(
    ("cluster", "flags", "overrides"),
    [
        pytest.param(
            {"certificate-authority-data": CA, "tls-server-name": "api.example"}, [], None, id="a name for the server's certificate"
        ),
        pytest.param({"insecure-skip-tls-verify": True, "disable-compression": True}, [], None, id="no verification, no compression"),
        pytest.param({"certificate-authority-data": CA, "server": "/sub/path/?a=b#c"}, [], None, id="a path, and what no address has"),
        pytest.param(
            {"certificate-authority-data": "QUFB"}, ["--insecure-skip-tls-verify"], Overrides(insecure_skip_tls_verify=True), id="M169"
        ),
        pytest.param(
            {"certificate-authority-data": "QUFB", "tls-server-name": "no.example"},
            ["--certificate-authority=pki/ca.crt", "--server=URL", "--token=flag"],
            Overrides(certificate_authority="pki/ca.crt", server="URL", token="flag"),
            id="another authority, address and token",
        ),
        pytest.param(
            {"certificate-authority-data": CA},
            ["--as=ann", "--as-group=a", "--as-group=b", "--as-uid=9"],
            Overrides(impersonate="ann", impersonate_groups=("a", "b"), impersonate_uid="9"),
            id="another to act as",
        ),
        pytest.param({"certificate-authority-data": CA}, ["--user=other"], Overrides(user="other"), id="another user entry"),
    ],
)
async def test_kubectl_and_we_reach_the_server_with(
    folder: Path, monkeypatch: pytest.MonkeyPatch, cluster: dict[str, Any], flags: list[str], overrides: Overrides | None
) -> None:
    monkeypatch.chdir(folder)
    async with recorder() as server:
        content = document({**cluster, "server": server.url + cluster.get("server", "")}, {"token": "t"})
        content["users"].append({"name": "other", "user": {"token": "others"}})
        file = write(folder / "config", content)
        flags = [flag.replace("URL", server.url) for flag in flags]
        if overrides is not None and overrides.server:
            overrides = Overrides(certificate_authority="pki/ca.crt", server=server.url, token="flag")
        theirs, ours = await both(server, file, flags, overrides)
    assert ours == theirs


async def test_no_credential_is_shown_to_a_server_without_tls(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with recorder(tls=False) as server:
        file = write(folder / "config", document({"server": f"http://127.0.0.1:{server.port}"}, {"token": "hunter2", "as": "ann"}))
        theirs, ours = await both(server, file, [], None)
    assert ours == theirs
    assert ours.shown == (("impersonate-user", "ann"),)
    assert "token not sent, because server is not https" in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(
            document(user={"token": "t", "username": "u"}), "token and username and password are both set", id="two ways to log in"
        ),
        pytest.param(document(user={"as-groups": ["a"]}), "need a user to act as", id="groups to act as without a user"),
        pytest.param(
            document(user={"exec": {"command": "x", "apiVersion": V1}}), "interactiveMode is not set", id="a plugin of v1 without mode"
        ),
        pytest.param(document(user={"exec": {**PLUGIN, "command": ""}}), "exec.command is not set", id="a plugin without a command"),
        pytest.param(
            document(user={"exec": {**PLUGIN, "command": "x", "apiVersion": ""}}), "exec.apiVersion", id="a plugin without a version"
        ),
        pytest.param(
            document(user={"exec": {**PLUGIN, "command": "x", "env": [{"value": "v"}]}}),
            "a variable has no name",
            id="a variable without a name",
        ),
        pytest.param(
            document(user={"client-certificate-data": encoded(JANE.certificate)}), "client-key is not", id="a certificate without a key"
        ),
        pytest.param(document({"proxy-url": "ftp://p:1"}), "proxy-url", id="a proxy of another kind"),
        pytest.param(
            document({"insecure-skip-tls-verify": True, "certificate-authority-data": CA}), "remove one of them", id="a CA for nothing"
        ),
        pytest.param(document({"certificate-authority": "absent"}), "absent: cannot be read", id="a CA that is not there"),
        pytest.param(document(current_context="other"), 'there is no context "other"', id="a context that is not there"),
        pytest.param(document(apiVersion="v2"), 'apiVersion: "v2"', id="a version that is not known"),
        pytest.param(document(users=[{"name": "u"}, {"name": "u"}]), "occurs twice", id="a name twice"),
        pytest.param(document(current_context=7), "put the value in quotes", id="a number for a name"),
    ],
)
async def test_kubectl_and_we_refuse(tmp_path: Path, content: dict[str, Any], message: str) -> None:
    file = write(tmp_path / "config", content)
    with pytest.raises(ConfigError) as raised:
        load_config(file)
    assert message in str(raised.value)
    assert str(file) in str(raised.value)
    code, _ = await kubectl(file, "get", "--raw", "/probe", "--request-timeout=1ms")
    assert code != 0


async def test_a_plugin_gets_the_same_input_as_from_kubectl(folder: Path) -> None:
    script(folder / "bin" / "record-input", f'echo "$KUBERNETES_EXEC_INFO" >> {folder}/inputs\n' + credential('{"token": "t"}'))
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "here", "n": [1, 2]}}
    plugin = {**PLUGIN, "command": "./bin/record-input", "provideClusterInfo": True, "env": [{"name": "A", "value": "b"}]}
    async with recorder() as server:
        cluster = {"server": server.url, "certificate-authority": "pki/ca.crt", "tls-server-name": "api.example", "extensions": [extension]}
        file = write(folder / "config", document(cluster, {"exec": plugin}))
        theirs, ours = await both(server, file, [], None)
    assert ours == theirs
    inputs = [json.loads(line) for line in (folder / "inputs").read_text().splitlines() if line]
    assert inputs[0] == inputs[1]
    assert inputs[1]["spec"]["cluster"]["config"] == {"audience": "here", "n": [1, 2]}
