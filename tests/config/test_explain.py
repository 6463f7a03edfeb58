"""The source of each setting, without any secret."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeloop.config import ClusterConfig, Credentials, Overrides, load_config
from tests.config.documents import V1, document, write

PEM = b"-----BEGIN CERTIFICATE-----\nhunter\n-----END CERTIFICATE-----\n"
DATA = base64.b64encode(PEM).decode()


def test_each_setting_names_its_file_entry_and_key(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(PEM)
    cluster = {
        "certificate-authority": "ca.crt",
        "tls-server-name": "a.example",
        "proxy-url": "http://me:hunter2@p:1",
        "disable-compression": True,
    }
    user = {"token": "hunter3", "as": "ann", "as-groups": ["a", "b"], "as-uid": "7"}
    file = write(tmp_path / "config", document(cluster, user))
    found = load_config(file).explain({})
    assert {one.name: (one.value, one.origin) for one in found} == {
        "context": ("x", f"{file}: current-context"),
        "cluster": ("c", f'{file}: context "x": cluster'),
        "server": ("https://one.example:6443", f'{file}: cluster "c": server'),
        "namespace": ("default", "default"),
        "certificate-authority": (str(tmp_path / "ca.crt"), f'{file}: cluster "c": certificate-authority'),
        "tls-server-name": ("a.example", f'{file}: cluster "c": tls-server-name'),
        "user": ("u", f'{file}: context "x": user'),
        "token": ("set", f'{file}: user "u": token'),
        "impersonate": ("ann; uid 7; groups a, b", f'{file}: user "u": as'),
        "proxy-url": ("http://p:1", f'{file}: cluster "c": proxy-url'),
        "disable-compression": ("true", f'{file}: cluster "c": disable-compression'),
    }
    assert (found.files, found.files_from) == ((str(file),), "argument")
    assert "hunter" not in str(found) + repr(found) + str(found.to_dict())


def test_each_setting_names_the_file_that_it_comes_from_among_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = write(tmp_path / "one", document(user={"token": "t"}, clusters=[], contexts=[], current_context=""))
    two = write(tmp_path / "two", document())
    monkeypatch.setenv("KUBECONFIG", f"{one}:{two}")
    found = load_config(overrides=Overrides(namespace="shop")).explain({})
    assert found["token"].origin == f'{one}: user "u": token'
    assert found["context"].origin == f"{two}: current-context"
    assert found["server"].origin == f'{two}: cluster "c": server'
    assert found["namespace"] == type(found["namespace"])("namespace", "shop", "override namespace")
    assert found.files_from == "KUBECONFIG"


@pytest.mark.parametrize(
    ("environ", "value", "origin"),
    [
        pytest.param({}, "none", "default", id="no proxy"),
        pytest.param(
            {"HTTPS_PROXY": "http://me:hunter@p:1"}, "http://p:1", "environment variable HTTPS_PROXY", id="one of the environment"
        ),
        pytest.param(
            {"https_proxy": "p:1", "NO_PROXY": "one.example"},
            "none, though https_proxy is set",
            "environment variable NO_PROXY",
            id="left out",
        ),
        pytest.param(
            {"HTTPS_PROXY": "ftp://hunter@p"}, "HTTPS_PROXY is not a usable URL of a proxy", "environment", id="a proxy that cannot be used"
        ),
    ],
)
def test_the_proxy_names_its_variable(tmp_path: Path, environ: dict[str, str], value: str, origin: str) -> None:
    found = load_config(write(tmp_path / "config", document())).explain(environ)["proxy-url"]
    assert found.value.startswith(value)
    assert found.origin == origin
    assert "hunter" not in found.value


def test_a_setting_without_effect_is_reported_with_the_reason(tmp_path: Path) -> None:
    user = {"token": "t", "exec": {"command": "login", "apiVersion": V1, "interactiveMode": "Never"}}
    file = write(tmp_path / "config", document({"certificate-authority": "ca.crt", "certificate-authority-data": DATA}, user))
    found = load_config(file).explain({})
    at = f'{file}: cluster "c" (context "x")'
    assert found.unused == (
        f"{at}: certificate-authority: certificate-authority-data is used instead",
        f'exec of user "u": {file}: user "u": token is used instead',
    )
    assert "not used: exec of" in str(found)
    assert "exec" not in {one.name for one in found}


def test_credentials_that_are_not_sent_to_a_server_without_tls_are_reported(tmp_path: Path) -> None:
    found = load_config(write(tmp_path / "config", document({"server": "http://h"}, {"token": "t"}))).explain({})
    assert found.unused == ('token of user "u": the server is not https',)
    assert found["credentials"].value == "none: requests are anonymous"
    assert found["certificate-authority"].value == "not used: the server is reached without TLS"


def test_every_way_to_authenticate_is_reported_without_its_secret(tmp_path: Path) -> None:
    ways: list[tuple[dict[str, Any], str, str]] = [
        ({"tokenFile": "hunted"}, "token-file", f"{tmp_path / 'hunted'}, read again every minute"),
        ({"username": "me", "password": "hunter"}, "username", "me"),
        ({"client-certificate-data": DATA, "client-key-data": DATA}, "client-certificate", f"{len(PEM)} bytes of PEM"),
        ({"exec": {"command": "login", "args": ["hunter"], "apiVersion": V1, "interactiveMode": "Never"}}, "exec", f"login ({V1}, Never)"),
        ({}, "credentials", "none: requests are anonymous"),
    ]
    for user, name, value in ways:
        found = load_config(write(tmp_path / "config", document(user=user))).explain({})
        assert found[name].value == value
        assert "hunter" not in str(found)


def test_what_a_program_builds_is_said_to_come_from_it() -> None:
    found = ClusterConfig(server="https://h", namespace="shop", credentials=Credentials(token="hunter")).explain({})
    origins = {one.name: one.origin for one in found}
    assert (origins["server"], origins["namespace"], origins["token"], origins["disable-compression"]) == (
        "the program",
        "the program",
        "the program",
        "default",
    )
    assert "hunter" not in str(found)
    with pytest.raises(KeyError):
        found["nothing"]


def test_an_explanation_can_be_written_as_json() -> None:
    found = ClusterConfig(server="https://h").explain({})
    assert msgspec.json.decode(msgspec.json.encode(found.to_dict())) == found.to_dict()
