"""Reading and merging kubeconfig files: clientcmd's precedence, and messages that name file, field and way out."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeloop.config import ClusterConfig, load_config
from kubeloop.config.kubeconfig import Exec, KubeconfigUser, NamedUser
from kubeloop.meta import ConfigError

PEM = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


def document(**changes: Any) -> dict[str, Any]:
    """A small valid kubeconfig."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://one.example:6443"}}],
        "users": [{"name": "u", "user": {"token": "secret-token"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
        "current-context": "x",
        **changes,
    }


def write(path: Path, content: dict[str, Any] | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


@pytest.fixture(autouse=True)
def _no_ambient_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "POD_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_the_current_context_chooses_cluster_user_and_namespace(tmp_path: Path) -> None:
    config = load_config(write(tmp_path / "config", document()))
    assert (config.server, config.name, config.context, config.namespace) == ("https://one.example:6443", "c", "x", "shop")
    assert config.credentials.token == "secret-token"


def test_json_is_yaml(tmp_path: Path) -> None:
    text = '{"clusters":[{"name":"c","cluster":{"server":"https://h:1"}}],"contexts":[{"name":"x","context":{"cluster":"c"}}],"current-context":"x"}'
    assert load_config(write(tmp_path / "config", text)).server == "https://h:1"


def test_an_explicit_null_is_as_good_as_a_missing_field(tmp_path: Path) -> None:
    entry = {"name": "c", "cluster": {"server": "https://h:1", "certificate-authority-data": None}}
    assert (
        load_config(
            write(tmp_path / "config", document(clusters=[entry], users=None, contexts=[{"name": "x", "context": {"cluster": "c"}}]))
        ).ca
        is None
    )


def test_an_explicit_file_wins_over_the_variable_and_the_variable_over_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cluster(name: str) -> dict[str, Any]:
        return document(clusters=[{"name": "c", "cluster": {"server": f"https://{name}"}}])

    write(tmp_path / "home" / ".kube" / "config", cluster("home"))
    assert load_config().server == "https://home"
    monkeypatch.setenv("KUBECONFIG", str(write(tmp_path / "listed", cluster("listed"))))
    assert load_config().server == "https://listed"
    assert load_config(write(tmp_path / "given", cluster("given"))).server == "https://given"


def test_the_first_file_that_has_an_entry_has_it_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write(tmp_path / "first", {"users": [{"name": "u", "user": {"username": "first", "password": "p"}}], "current-context": "x"})
    second = write(tmp_path / "second", document(**{"current-context": "other"}))
    monkeypatch.setenv("KUBECONFIG", f"{first}::{tmp_path / 'missing'}:{second}:{first}")
    config = load_config()
    assert config.context == "x"
    assert (config.credentials.username, config.credentials.token) == ("first", "")
    assert config.server == "https://one.example:6443"


def test_relative_paths_are_relative_to_the_file_that_holds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep" / "pki").mkdir(parents=True)
    (tmp_path / "deep" / "pki" / "ca.crt").write_bytes(PEM)
    cluster = {"name": "c", "cluster": {"server": "https://h", "certificate-authority": "pki/ca.crt"}}
    user = {
        "name": "u",
        "user": {"exec": {"command": "bin/login", "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}},
    }
    write(tmp_path / "deep" / "config", document(clusters=[cluster], users=[user]))
    config = load_config(Path("deep/config"))
    assert config.ca is not None
    assert config.ca.read() == PEM
    assert config.credentials.exec is not None
    assert config.credentials.exec.command == str(tmp_path / "deep" / "bin" / "login")


def test_data_wins_over_a_file(tmp_path: Path) -> None:
    data = base64.b64encode(PEM).decode()
    cluster = {"name": "c", "cluster": {"server": "https://h", "certificate-authority": "/nowhere", "certificate-authority-data": data}}
    config = load_config(write(tmp_path / "config", document(clusters=[cluster])))
    assert config.ca is not None
    assert config.ca.read() == PEM


def test_a_bare_plugin_name_is_left_to_the_search_path(tmp_path: Path) -> None:
    user = {
        "name": "u",
        "user": {"exec": {"command": "login", "apiVersion": "client.authentication.k8s.io/v1beta1", "env": [{"name": "A", "value": "1"}]}},
    }
    plugin = load_config(write(tmp_path / "config", document(users=[user]))).credentials.exec
    assert plugin is not None
    assert (plugin.command, plugin.env) == ("login", (("A", "1"),))


def test_impersonation_is_read(tmp_path: Path) -> None:
    user = {
        "name": "u",
        "user": {"token": "t", "as": "jane", "as-groups": ["devs"], "as-uid": "7", "as-user-extra": {"scopes": ["a", "b"]}},
    }
    impersonated = load_config(write(tmp_path / "config", document(users=[user]))).credentials.impersonate
    assert impersonated is not None
    assert (impersonated.user, impersonated.uid, impersonated.groups, impersonated.extra) == (
        "jane",
        "7",
        ("devs",),
        (("scopes", ("a", "b")),),
    )


def user(**fields: Any) -> dict[str, Any]:
    return document(users=[{"name": "u", "user": fields}])


def cluster(**fields: Any) -> dict[str, Any]:
    return document(clusters=[{"name": "c", "cluster": {"server": "https://h", **fields}}])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("a: [1\nb: 2\n", "config:2:2: not valid YAML", id="broken YAML is named with line and column"),
        pytest.param("a: b: secret-token\n", "config:1:5: not valid YAML", id="broken YAML in one line too"),
        pytest.param("\tusers: []", "config:1:1: not valid YAML", id="a tab where YAML wants spaces"),
        pytest.param("just a word", "not a kubeconfig", id="a text that is no mapping"),
        pytest.param(document(kind="Pod"), 'kind: "Pod" is not a kubeconfig', id="another kind of file"),
        pytest.param(document(clusters="c"), "clusters: expected", id="a field of another type is named by its path"),
        pytest.param(
            document(clusters=[{"name": "c", "cluster": {"server": ["https://h"]}}]),
            'clusters[0] ("c").cluster.server: expected `str`, got `array`; correct the field',
            id="and so is a nested one, with the name of its entry",
        ),
        pytest.param(
            document(**{"current-context": True}),
            "current-context: expected `str`, got `bool`; put the value in quotes",
            id="a plain y is no text",
        ),
        pytest.param(document(apiVersion="v2"), 'apiVersion: "v2" is not known', id="another version"),
        pytest.param(
            document(users=[{"name": "u"}, {"name": "u"}]), 'users[1].name: "u" occurs twice', id="a name that stands twice in one file"
        ),
        pytest.param(document(**{"current-context": ""}), "choose one of: x", id="no current context: the known ones are listed"),
        pytest.param(
            document(**{"current-context": "other"}),
            'current-context: there is no context "other"; known: x',
            id="a current context that is not there",
        ),
        pytest.param(
            document(contexts=[{"name": "x", "context": {"cluster": "d", "user": "u"}}]),
            'no cluster "d"; known: c',
            id="a context that names a missing cluster",
        ),
        pytest.param(
            document(contexts=[{"name": "x", "context": {"cluster": "c", "user": "v"}}]),
            'no user "v"; known: u',
            id="a context that names a missing user",
        ),
        pytest.param(cluster(server=""), "server is not set", id="a cluster without a server"),
        pytest.param(cluster(server="localhost:6443"), 'server: "localhost:6443" is not a valid URL', id="a server that is no URL"),
        pytest.param(
            cluster(**{"certificate-authority": "missing.crt"}),
            "missing.crt: cannot be read (No such file or directory)",
            id="a missing CA file",
        ),
        pytest.param(
            cluster(**{"certificate-authority-data": "%%%"}), "certificate-authority-data: not valid base64", id="CA data that is no base64"
        ),
        pytest.param(cluster(**{"certificate-authority-data": "aGVsbG8="}), "no PEM block in it", id="CA data that is no PEM"),
        pytest.param(
            cluster(**{"certificate-authority-data": base64.b64encode(PEM).decode(), "insecure-skip-tls-verify": True}),
            "insecure-skip-tls-verify is set together with a certificate authority",
            id="a CA that would not be used",
        ),
        pytest.param(
            cluster(**{"proxy-url": "ftp://h"}), "only http://, https:// and socks5:// proxies", id="a proxy of an unsupported kind"
        ),
        pytest.param(
            user(token="t", username="me", password="p"), "token and username and password are both set", id="two ways to authenticate"
        ),
        pytest.param(
            user(**{"client-certificate-data": base64.b64encode(PEM).decode()}),
            "client-certificate is set but client-key is not",
            id="a certificate without its key",
        ),
        pytest.param(user(token="a\nb"), "token: it holds characters", id="a token with a line break"),
        pytest.param(user(**{"as-groups": ["devs"]}), "need a user to act as", id="impersonated groups without a user"),
        pytest.param(
            user(**{"auth-provider": {"name": "gcp"}}),
            "put an exec plugin in its place: gke-gcloud-auth-plugin",
            id="an auth provider of old",
        ),
        pytest.param(
            user(exec={"apiVersion": "client.authentication.k8s.io/v1"}), "exec.command is not set", id="a plugin without a command"
        ),
        pytest.param(
            user(exec={"command": "x", "apiVersion": "v1alpha1"}),
            'exec.apiVersion: "v1alpha1" is not supported',
            id="a plugin of an old version",
        ),
        pytest.param(
            user(exec={"command": "x", "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Maybe"}),
            'exec.interactiveMode: "Maybe"',
            id="a plugin with an unknown interactive mode",
        ),
    ],
)
def test_a_broken_kubeconfig_says(tmp_path: Path, content: dict[str, Any] | str, message: str) -> None:
    file = write(tmp_path / "config", content)
    with pytest.raises(ConfigError) as raised:
        load_config(file)
    text = str(raised.value)
    assert message in text
    assert str(file) in text
    assert "secret-token" not in text


def test_a_file_that_is_binary_is_no_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(b"\x00\xff\xfe\x01")
    with pytest.raises(ConfigError, match="not valid YAML"):
        load_config(tmp_path / "config")


def test_an_explicit_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="absent: no such file"):
        load_config(tmp_path / "absent")


def test_a_directory_is_no_kubeconfig(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read \(Is a directory\)"):
        load_config(tmp_path)


def test_a_requested_context_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='contexts: there is no context "prod"; known: x'):
        load_config(write(tmp_path / "config", document()), context="prod")


def test_nothing_found_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no configuration found: the default is .*home/.kube/config \(which does not exist\)"):
        load_config()


def test_nothing_found_tells_missing_files_from_empty_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").write_text("apiVersion: v1\n")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'empty'}{os.pathsep}{tmp_path / 'missing'}")
    with pytest.raises(ConfigError, match=r"KUBECONFIG names \S+empty \(which sets nothing\), \S+missing \(which does not exist\), and"):
        load_config()


def test_printing_shows_no_secret(tmp_path: Path) -> None:
    config = load_config(write(tmp_path / "config", document(users=[{"name": "u", "user": {"username": "me", "password": "hunter2"}}])))
    assert "hunter2" not in repr(config) + str(config)
    assert "me" in repr(config)
    assert "secret-token" not in repr(load_config(write(tmp_path / "config", document())))


def test_printing_a_configuration_from_a_file_shows_no_secret() -> None:
    user = KubeconfigUser(token="hunter2", client_key_data="hunter3", exec=Exec(args=["hunter4"]))
    assert "hunter" not in repr(NamedUser(name="u", user=user))


def test_a_proxys_password_is_neither_printed_nor_in_messages() -> None:
    config = ClusterConfig(server="https://h", proxy_url="http://me:hunter2@proxy.example:3128")
    assert "hunter2" not in repr(config) + str(config)
    assert "proxy.example:3128" in repr(config)
    with pytest.raises(ConfigError, match=r"only http://, https:// and socks5:// proxies .* not \"ftp://proxy\.example:1080\"") as raised:
        ClusterConfig(server="https://h", proxy_url="ftp://me:hunter2@proxy.example:1080")
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("server", ["https://me:hunter2@h", "https://me:hunter2@h:99999", "ftp://me:hunter2@h"])
def test_a_user_in_the_servers_address_is_refused_and_not_shown(server: str) -> None:
    with pytest.raises(ConfigError, match="server: ") as raised:
        ClusterConfig(server=server)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("proxy", ["http://", "http://proxy:port", "proxy.example:3128", "http://proxy:0"])
def test_a_proxy_that_is_none_is_refused_when_the_configuration_is_read(proxy: str) -> None:
    with pytest.raises(ConfigError, match="proxy-url: "):
        ClusterConfig(server="https://h", proxy_url=proxy)


def test_a_server_with_a_line_break_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not a valid URL of a server"):
        ClusterConfig(server="https://h\r\nEvil: 1")
