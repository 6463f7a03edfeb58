"""Plugins written in Python: what they are asked is what a client tells, and clients understand their answers."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from kubeloop.config import ClusterConfig, Credentials, ExecPlugin, ExecRequest, Pem, RequestAuthenticator
from kubeloop.config.plugins.credential import exec_info, read_credential
from kubeloop.meta import ConfigError
from tests.config.documents import V1

PLUGIN = ExecPlugin(command="x", provide_cluster_info=True, cluster_config=b'{"audience":"here"}')
CLUSTER = ClusterConfig(
    server="https://h:1", tls_server_name="a.example", ca=Pem(data=b"-----BEGIN X"), proxy_url="socks5://p:1", disable_compression=True
)
VARIABLE = "KUBERNETES_EXEC_INFO"


def test_a_plugin_reads_what_a_client_tells() -> None:
    asked = ExecRequest.from_environment({VARIABLE: exec_info(PLUGIN, CLUSTER, interactive=True).decode()})
    assert (asked.api_version, asked.interactive, asked.settings) == (V1, True, {"audience": "here"})
    assert asked.cluster is not None
    for field in ("server", "tls_server_name", "insecure_skip_tls_verify", "proxy_url", "disable_compression"):
        assert getattr(asked.cluster, field) == getattr(CLUSTER, field)
    assert asked.cluster.ca is not None
    assert asked.cluster.ca.read() == b"-----BEGIN X"
    assert asked.cluster.credentials == Credentials()


def test_without_cluster_information_there_is_no_cluster() -> None:
    info = exec_info(ExecPlugin(command="x"), CLUSTER, interactive=False).decode()
    assert ExecRequest.from_environment({VARIABLE: info}) == ExecRequest(api_version=V1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "is not set; this program is run by Kubernetes clients", id="nothing"),
        pytest.param("{", "cannot be read", id="no JSON"),
        pytest.param('{"apiVersion": "v1", "kind": "Pod"}', 'it is "Pod" of "v1"', id="something else"),
        pytest.param(f'{{"apiVersion": "{V1}", "kind": "ExecCredential", "spec": {{"cluster": {{}}}}}}', "cannot be read", id="no server"),
    ],
)
def test_a_text_that_is_no_request_is_a_configuration_error(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ExecRequest.from_environment({VARIABLE: text})
    assert message in str(raised.value)


def test_a_client_understands_the_answer() -> None:
    expires = datetime(2030, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    answer = ExecRequest(api_version=V1).answer(token="t", certificate=(b"chain", b"key"), expires=expires)
    found = read_credential(answer.encode(), ExecPlugin(command="x"), "here")
    assert (found.token, found.certificate, found.expires) == ("t", (b"chain", b"key"), datetime(2030, 1, 1, tzinfo=UTC))


def test_an_answer_without_a_credential_or_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="give a token"):
        ExecRequest(api_version=V1).answer()
    with pytest.raises(ValueError, match="time zone"):
        ExecRequest(api_version=V1).answer(token="t", expires=datetime(2030, 1, 1))  # noqa: DTZ001 - a naive time is refused


async def test_a_whole_plugin_in_three_lines(tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text(
        "from kubeloop.config import ExecRequest\n"
        "asked = ExecRequest.from_environment()\n"
        "print(asked.answer(token='for-' + asked.cluster.server.rpartition('/')[2]))\n"
    )
    plugin = ExecPlugin(command=sys.executable, args=(str(tmp_path / "plugin.py"),), provide_cluster_info=True)
    config = ClusterConfig(server="https://h", credentials=Credentials(exec=plugin))
    assert await RequestAuthenticator(config).headers() == {"Authorization": "Bearer for-h"}
