"""Which file, override or surrounding decides: behaviours M165-M172, by their numbers."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from kubeloop.config import ClusterConfig, Overrides, in_cluster, load_config
from kubeloop.meta import ConfigError
from tests.config.documents import document, write

PEM = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
DATA = base64.b64encode(PEM).decode()


def listed(monkeypatch: pytest.MonkeyPatch, *files: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, files)))


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process is in a pod whose service account is in namespace ``ops``."""
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("pod-token")
    (account / "namespace").write_text("ops\n")
    monkeypatch.setattr(in_cluster, "ACCOUNT", account)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return account


def test_missing_files_of_the_list_are_skipped_and_duplicates_dropped_M165(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "config", document())
    listed(monkeypatch, tmp_path / "absent", file, file)
    config = load_config()
    assert config.server == "https://one.example:6443"
    assert config.provenance.files == (f"{tmp_path / 'absent'} (does not exist)", str(file))


def test_an_explicitly_named_missing_file_is_an_error_M165(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="absent: no such file"):
        load_config(tmp_path / "absent")


def test_a_bad_file_of_the_list_is_an_error_naming_it_M165(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed(monkeypatch, write(tmp_path / "good", document()), write(tmp_path / "bad", "a: [\n"))
    with pytest.raises(ConfigError, match=r"bad:2:1: not valid YAML"):
        load_config()


def test_a_list_of_nothing_is_not_the_home_directory_M165(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "home" / ".kube" / "config", document())
    monkeypatch.setenv("KUBECONFIG", os.pathsep)
    with pytest.raises(ConfigError, match="KUBECONFIG names no file"):
        load_config()


def test_the_first_file_that_has_an_entry_or_the_current_context_wins_and_entries_are_whole_M166(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write(tmp_path / "first", {"users": [{"name": "u", "user": {"as": "ann"}}], "current-context": "y"})
    second = document(user={"token": "t", "as": "bob"})
    second["contexts"].append({"name": "y", "context": {"cluster": "c", "user": "u", "namespace": "shop"}})
    listed(monkeypatch, first, write(tmp_path / "second", second))
    config = load_config()
    assert (config.context, config.namespace) == ("y", "shop")
    assert config.credentials.impersonate is not None
    assert (config.credentials.impersonate.user, config.credentials.token) == ("ann", "")


def test_the_first_file_with_a_cluster_a_context_or_a_user_of_a_name_decides_it_M166(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = document({"server": "https://first.example:6443"}, {"token": "first"})
    first["contexts"][0]["context"]["namespace"] = "first"
    second = document({"server": "https://second.example:6443", "tls-server-name": "second"}, {"token": "second", "as": "second"})
    second["contexts"][0]["context"]["namespace"] = "second"
    listed(monkeypatch, write(tmp_path / "first", first), write(tmp_path / "second", second))
    config = load_config()
    assert (config.server, config.tls_server_name) == ("https://first.example:6443", "")
    assert config.namespace == "first"
    assert (config.credentials.token, config.credentials.impersonate) == ("first", None)


def test_duplicate_names_within_one_file_are_an_error_M167(tmp_path: Path) -> None:
    for section in ("clusters", "users", "contexts"):
        content = document()
        content[section] *= 2
        with pytest.raises(ConfigError, match=rf'config: {section}\[1\].name: "." occurs twice in this file'):
            load_config(write(tmp_path / "config", content))


def test_relative_paths_are_relative_to_the_file_that_holds_them_M168(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "ca.crt").write_bytes(PEM)
    one = document(user={"tokenFile": "token"}, clusters=[])
    two = document({"certificate-authority": "ca.crt"}, users=[])
    listed(monkeypatch, write(tmp_path / "a" / "config", one), write(tmp_path / "b" / "config", two))
    config = load_config()
    assert config.ca is not None
    assert (config.ca.path, config.credentials.token_file) == (tmp_path / "b" / "ca.crt", tmp_path / "a" / "token")


@pytest.mark.parametrize(
    ("cluster", "overrides", "expected"),
    [
        pytest.param(
            {"certificate-authority-data": DATA},
            Overrides(insecure_skip_tls_verify=True),
            {"ca": None, "insecure_skip_tls_verify": True},
            id="skipping verification clears the authority",
        ),
        pytest.param(
            {"insecure-skip-tls-verify": True},
            Overrides(certificate_authority_data=PEM),
            {"insecure_skip_tls_verify": False},
            id="an authority clears the skipping of verification",
        ),
        pytest.param(
            {"tls-server-name": "a.example"},
            Overrides(server="https://other"),
            {"tls_server_name": "", "server": "https://other"},
            id="a server clears the name for its certificate",
        ),
        pytest.param(
            {"tls-server-name": "a.example"},
            Overrides(server="https://other", tls_server_name="b.example"),
            {"tls_server_name": "b.example"},
            id="unless a name is given too",
        ),
        pytest.param({"proxy-url": "http://a:1"}, Overrides(proxy_url="socks5://b:1"), {"proxy_url": "socks5://b:1"}, id="a proxy"),
        pytest.param({}, Overrides(disable_compression=True), {"disable_compression": True}, id="compression"),
    ],
)
def test_an_override_replaces_M169(tmp_path: Path, cluster: dict[str, Any], overrides: Overrides, expected: dict[str, Any]) -> None:
    config = load_config(write(tmp_path / "config", document(cluster)), overrides=overrides)
    assert {name: getattr(config, name) for name in expected} == expected


def test_an_authority_given_as_an_override_beats_the_data_of_the_file_M169(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(PEM + b"2")
    file = write(tmp_path / "config", document({"certificate-authority-data": DATA}))
    config = load_config(file, overrides=Overrides(certificate_authority=tmp_path / "ca.crt"))
    assert config.ca is not None
    assert config.ca.read() == PEM + b"2"


def test_a_client_certificate_given_as_an_override_beats_the_data_of_the_file_M169(tmp_path: Path) -> None:
    for name in ("c", "k"):
        (tmp_path / name).write_bytes(PEM + name.encode())
    file = write(tmp_path / "config", document(user={"client-certificate-data": DATA, "client-key-data": DATA}))
    user = load_config(file, overrides=Overrides(client_certificate=tmp_path / "c", client_key=tmp_path / "k")).credentials
    assert user.client_certificate is not None
    assert user.client_key is not None
    assert (user.client_certificate.read(), user.client_key.read()) == (PEM + b"c", PEM + b"k")


def test_a_token_given_as_an_override_is_not_replaced_by_the_files_token_file(tmp_path: Path) -> None:
    user = load_config(write(tmp_path / "config", document(user={"tokenFile": "token"})), overrides=Overrides(token="mine")).credentials
    assert (user.token, user.token_file) == ("mine", None)


def test_a_literal_token_is_used_first_and_the_token_file_stays_configured_M170(tmp_path: Path) -> None:
    user = load_config(write(tmp_path / "config", document(user={"token": "first", "tokenFile": "token"}))).credentials
    assert (user.token, user.token_file) == ("first", tmp_path / "token")


@pytest.mark.parametrize(
    ("content", "context", "overrides", "message"),
    [
        pytest.param(document(), "q", None, 'contexts: there is no context "q"; known: x', id="a context that was asked for"),
        pytest.param(document(current_context="q"), None, None, 'current-context: there is no context "q"', id="the current context"),
        pytest.param(document(clusters=[]), None, None, 'context "x": cluster: there is no cluster "c"; known: none', id="its cluster"),
        pytest.param(document(users=[]), None, None, 'context "x": user: there is no user "u"; known: none', id="its user"),
        pytest.param(document(), None, Overrides(cluster="q"), 'override cluster: there is no cluster "q"', id="another cluster"),
        pytest.param(document(), None, Overrides(user="q"), 'override user: there is no user "q"; known: u', id="another user"),
    ],
)
def test_a_name_that_is_missing_is_an_error_M171(
    tmp_path: Path, content: dict[str, Any], context: str | None, overrides: Overrides | None, message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(write(tmp_path / "config", content), context, overrides=overrides)
    assert message in str(raised.value)


def test_an_empty_configuration_falls_back_to_the_pods_own_cluster_M171(pod: Path) -> None:
    config = load_config()
    assert (config.server, config.credentials.token_file, config.namespace) == ("https://10.0.0.1:443", pod / "token", "ops")


def test_a_file_that_chooses_no_context_does_so_too_M171(pod: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed(monkeypatch, write(tmp_path / "config", document(current_context="")))
    assert load_config().name == "in-cluster"
    assert load_config(context="x").name == "c"


def test_but_an_explicit_file_is_never_replaced_M171(pod: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="current-context is not set; set it, or choose one of: x"):
        load_config(write(tmp_path / "config", document(current_context="")))


def test_overrides_count_in_a_pod(pod: Path) -> None:
    given = Overrides(server="https://other", token="t", namespace="shop", certificate_authority_data=PEM, impersonate="ann")
    config = load_config(overrides=given)
    assert (config.server, config.credentials.token, config.credentials.token_file) == ("https://other", "t", None)
    assert config.ca is not None
    assert config.namespace == "shop"
    assert str(config.explain({})["namespace"].origin) == "override namespace"


def test_a_server_given_as_an_override_needs_no_file() -> None:
    config = load_config(overrides=Overrides(server="https://h:1", token="t"))
    assert (config.server, config.name, config.credentials.token, config.context) == ("https://h:1", "cluster", "t", "")


def _namespace(tmp_path: Path, namespace: str, overrides: Overrides | None = None) -> ClusterConfig:
    context = {"cluster": "c", "user": "u", **({"namespace": namespace} if namespace else {})}
    return load_config(write(tmp_path / "config", document(contexts=[{"name": "x", "context": context}])), overrides=overrides)


def test_the_namespace_is_that_of_the_override_the_context_the_environment_the_service_account_or_default_M172(
    pod: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "from-env")
    assert _namespace(tmp_path, "from-context", Overrides(namespace="from-override")).namespace == "from-override"
    assert _namespace(tmp_path, "from-context").namespace == "from-context"
    assert _namespace(tmp_path, "").namespace == "from-env"
    monkeypatch.delenv("POD_NAMESPACE")
    assert _namespace(tmp_path, "").namespace == "ops"
    (pod / "namespace").unlink()
    assert _namespace(tmp_path, "").namespace == "default"


def test_outside_a_pod_the_environment_says_nothing_about_namespaces_M172(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "from-env")
    assert _namespace(tmp_path, "").namespace == "default"


def test_a_namespace_that_cannot_be_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'context "x": namespace: "a/b" is not a valid name of a namespace'):
        _namespace(tmp_path, "a/b")


def test_two_ways_to_authenticate_or_groups_to_act_as_without_a_user_are_refused_M173(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'config: user "u" \(context "x"\): token and username and password are both set; keep one'):
        load_config(write(tmp_path / "config", document(user={"token": "t", "username": "me"})))
    for field, value in (("as-groups", ["a"]), ("as-uid", "7"), ("as-user-extra", {"a": ["b"]})):
        with pytest.raises(ConfigError, match="need a user to act as; set as"):
            load_config(write(tmp_path / "config", document(user={field: value})))


@pytest.mark.parametrize(
    ("provider", "instead"),
    [
        pytest.param("oidc", "kubelogin (kubectl oidc-login get-token)", id="OpenID Connect"),
        pytest.param("gcp", "gke-gcloud-auth-plugin", id="Google"),
        pytest.param("azure", "kubelogin get-token", id="Azure"),
        pytest.param("acme", "the provider's credential plugin", id="another"),
    ],
)
def test_an_auth_provider_of_old_is_refused_and_the_plugin_to_use_is_named(tmp_path: Path, provider: str, instead: str) -> None:
    user = {"auth-provider": {"name": provider, "config": {"client-secret": "hunter2"}}}
    with pytest.raises(ConfigError) as raised:
        load_config(write(tmp_path / "config", document(user=user)))
    assert (
        f'user "u" (context "x"): auth-provider: "{provider}": auth-provider is not supported; put an exec plugin in its place: {instead}'
        in str(raised.value)
    )
    assert "hunter" not in str(raised.value)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        pytest.param(Overrides(server="api.example"), 'override server: "api.example" is not a valid URL of a server', id="an address"),
        pytest.param(Overrides(proxy_url="ftp://p"), "override proxy_url: only http://, https:// and socks5:// proxies", id="a proxy"),
        pytest.param(
            Overrides(certificate_authority="/absent"), "override certificate_authority: /absent: cannot be read", id="an authority"
        ),
        pytest.param(Overrides(token="a b"), "override token: it holds characters", id="a token"),
        pytest.param(Overrides(namespace="A"), 'override namespace: "A" is not a valid name of a namespace', id="a namespace"),
    ],
)
def test_an_override_that_cannot_be_used_is_named_as_such(tmp_path: Path, overrides: Overrides, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(write(tmp_path / "config", document()), overrides=overrides)
    assert message in str(raised.value)
