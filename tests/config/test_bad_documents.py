"""Whatever stands in a kubeconfig or comes from a plugin: it works, or a ConfigError says why. Nothing else is ever raised."""

from __future__ import annotations

import contextlib
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubeloop.codec import write_yaml
from kubeloop.config import ClusterConfig, ExecPlugin, Kubeconfig, edit_kubeconfig, load_config
from kubeloop.config.plugins.credential import read_credential
from kubeloop.meta import ConfigError
from tests.config.documents import V1, document

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.sampled_from(["", "x", "u", "c", "https://h", "a\nb", "\u00e9", "/", "QUFB", "%%"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "user", "cluster", "token", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)
FULL = document(
    {"tls-server-name": "a.example", "proxy-url": "http://p:1", "extensions": [{"name": "e", "extension": {"a": 1}}]},
    {
        "token": "t",
        "as": "ann",
        "as-groups": ["a"],
        "as-user-extra": {"k": ["v"]},
        "exec": {"command": "x", "apiVersion": V1, "interactiveMode": "Never", "args": ["a"], "env": [{"name": "A", "value": "b"}]},
    },
)


def paths(tree: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at] if at else []
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        found += paths(value, (*at, key))
    return found


def changed(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    tree = copy.deepcopy(tree)
    parent = tree
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    return tree


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(paths(FULL)), junk=JUNK, as_json=st.booleans())
def test_a_kubeconfig_with_anything_anywhere_works_or_is_a_configuration_error(
    tmp_path: Path, path: tuple[Any, ...], junk: Any, as_json: bool
) -> None:
    tree = changed(FULL, path, junk)
    file = tmp_path / "config"
    file.write_text(json.dumps(tree) if as_json else write_yaml(tree))
    with contextlib.suppress(ConfigError):
        str(load_config(file).explain({}))
    with contextlib.suppress(ConfigError):
        Kubeconfig.read(file).view(minify=True, flatten=True)
    with contextlib.suppress(ConfigError), edit_kubeconfig(file) as editor:
        editor.set_user("u", username="a", password="b")
        editor.set_cluster("c", server="https://other")
        editor.rename_context("x", "z")
        editor.delete_user("u")
    assert not file.with_name("config.lock").exists()


@given(st.binary(max_size=40) | st.text(alphabet="a:- {}[]\"'\n#&*!|>%@`", max_size=40).map(str.encode))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_kubeconfig_of_any_bytes_works_or_is_a_configuration_error(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "config"
    file.write_bytes(content)
    with pytest.raises(ConfigError):
        load_config(file)


ANSWER = {"apiVersion": V1, "kind": "ExecCredential", "status": {"token": "t", "expirationTimestamp": "2030-01-01T00:00:00Z"}}


@given(path=st.sampled_from(paths(ANSWER)), junk=JUNK)
def test_a_plugin_that_prints_anything_gives_a_credential_or_a_configuration_error(path: tuple[Any, ...], junk: Any) -> None:
    with contextlib.suppress(ConfigError):
        read_credential(json.dumps(changed(ANSWER, path, junk)).encode(), ExecPlugin(command="x"), "here")


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_address_is_a_cluster_or_a_configuration_error(server: str, proxy: str) -> None:
    for url in (server, f"https://{server}", f"https://h:{server}"):
        with contextlib.suppress(ConfigError):
            str(ClusterConfig(server=url, proxy_url=proxy).explain({"HTTPS_PROXY": proxy, "NO_PROXY": server}))
