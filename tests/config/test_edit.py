"""Changing kubeconfig files: where each change goes, what stays, and that kubectl reads the same from the result."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubeloop.codec import read_yaml
from kubeloop.config import Kubeconfig, KubeconfigEditor, edit_kubeconfig
from kubeloop.config.kubeconfig import Cluster, Exec, ExecVariable, KubeconfigUser
from kubeloop.meta import ConfigError
from tests.config.documents import V1, document, write
from tests.kubectl.runner import kubectl_binary


def kubectl_config(files: list[Path], *args: str) -> str:
    environment = {"HOME": str(files[0].parent), "PATH": os.environ.get("PATH", ""), "KUBECONFIG": os.pathsep.join(map(str, files))}
    done = subprocess.run([kubectl_binary(), "config", *args], capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def seen(tree: Any) -> Any:
    """Return it without empty values: Go writes null, false and [] for some fields that are not set. Lists of entries by name."""
    if isinstance(tree, dict):
        return {
            name: value for name, value in ((name, seen(value)) for name, value in tree.items()) if value not in (None, False, "", [], {})
        }
    if isinstance(tree, list):
        items = [seen(one) for one in tree]
        return (
            sorted(items, key=lambda entry: entry["name"])
            if items and all(isinstance(one, dict) and "name" in one for one in items)
            else items
        )
    return tree


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two files of a KUBECONFIG list, both with unknown fields, the second with another context."""
    first = document({"new-in-2030": {"a": [1, 2]}}, {"token": "t1"})
    first["other-tool"] = {"keep": True}
    first["clusters"][0]["note"] = "mine"
    second = document(current_context="z")
    second["users"] = [{"name": "v", "user": {"exec": {"command": "login", "apiVersion": V1, "later": 1, "interactiveMode": "Never"}}}]
    second["contexts"] = [{"name": "z", "context": {"cluster": "c", "user": "v", "shade": "blue"}}]
    made = [write(tmp_path / "one" / "config", first), write(tmp_path / "two" / "config", second)]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, made)))
    return made


def tree(file: Path) -> dict[str, Any]:
    return read_yaml(file.read_bytes())[0]


def entry(file: Path, section: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in tree(file)[section] if one["name"] == name)[section[:-1]]
    return found


Edit = Callable[[KubeconfigEditor], None]


@pytest.mark.parametrize(
    ("args", "edit"),
    [
        pytest.param(["use-context", "z"], lambda e: e.use_context("z"), id="using a context"),
        pytest.param(["unset", "current-context"], lambda e: e.use_context(""), id="using none"),
        pytest.param(
            ["set-cluster", "new", "--server=https://n:1"], lambda e: e.set_cluster("new", server="https://n:1"), id="a new cluster"
        ),
        pytest.param(
            ["set-cluster", "c", "--insecure-skip-tls-verify=true", "--proxy-url=http://p:1"],
            lambda e: e.set_cluster("c", insecure_skip_tls_verify=True, proxy_url="http://p:1"),
            id="a cluster without verification",
        ),
        pytest.param(
            ["set-credentials", "v", "--token=t2"], lambda e: e.set_user("v", token="t2"), id="a token for a user of the second file"
        ),
        pytest.param(
            ["set-credentials", "u", "--username=a", "--password=b"],
            lambda e: e.set_user("u", username="a", password="b"),
            id="a name and a password instead of a token",
        ),
        pytest.param(
            ["set-context", "z", "--namespace=shop", "--user=u"],
            lambda e: e.set_context("z", namespace="shop", user="u"),
            id="a namespace for a context of the second file",
        ),
        pytest.param(
            ["set-context", "z", "--cluster=c2"],
            lambda e: e.set_context("z", cluster="c2"),
            id="another cluster for a context of the second file",
        ),
        pytest.param(["rename-context", "x", "y2"], lambda e: e.rename_context("x", "y2"), id="another name for the current context"),
        pytest.param(["delete-context", "z"], lambda e: e.delete_context("z"), id="a context of the second file less"),
        pytest.param(["delete-cluster", "c"], lambda e: e.delete_cluster("c"), id="a cluster less, and the second file's comes to light"),
        pytest.param(["delete-user", "v"], lambda e: e.delete_user("v"), id="a user less"),
    ],
)
def test_an_edit_reads_the_same_as_kubectls(files: list[Path], tmp_path: Path, args: list[str], edit: Edit) -> None:
    copies = [write(tmp_path / "theirs" / file.parent.name / "config", file.read_text()) for file in files]
    kubectl_config(copies, *args)
    with edit_kubeconfig() as editor:
        edit(editor)
    for ours, theirs in zip(files, copies, strict=True):
        assert _known(tree(ours)) == _known(tree(theirs)), "the same change in the same file"


def _known(tree: dict[str, Any]) -> Any:
    """What kubectl keeps too: it drops the fields that it does not know."""
    text = json.dumps(seen(tree))
    for unknown in ('"new-in-2030": {"a": [1, 2]}', '"note": "mine"', '"other-tool": {"keep": true}', '"later": 1', '"shade": "blue"'):
        text = text.replace(f", {unknown}", "").replace(f"{unknown}, ", "")
    return seen(json.loads(text))


def test_what_no_model_knows_stays_at_every_depth(files: list[Path]) -> None:
    with edit_kubeconfig() as editor:
        editor.set_cluster("c", tls_server_name="api.example")
        editor.set_user("v", impersonate="ann")
        editor.set_context("z", namespace="shop")
    first, second = (tree(file) for file in files)
    assert first["other-tool"] == {"keep": True}
    assert first["clusters"] == [
        {
            "name": "c",
            "cluster": {"server": "https://one.example:6443", "new-in-2030": {"a": [1, 2]}, "tls-server-name": "api.example"},
            "note": "mine",
        }
    ]
    assert second["users"][0]["user"]["exec"]["later"] == 1
    assert second["users"][0]["user"]["as"] == "ann"
    assert second["contexts"][0]["context"] == {"cluster": "c", "user": "v", "shade": "blue", "namespace": "shop"}


def test_a_file_that_was_not_changed_is_not_written(files: list[Path]) -> None:
    before = [file.stat().st_ino for file in files]
    with edit_kubeconfig() as editor:
        editor.set_user("v", token="t")
    after = [file.stat().st_ino for file in files]
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False]


def test_files_are_written_for_their_owner_only_whole_and_through_links(tmp_path: Path) -> None:
    real = write(tmp_path / "real" / "config", document(user={"token": "t"}))
    real.chmod(0o644)
    link = tmp_path / "link"
    link.symlink_to(real)
    with edit_kubeconfig(link) as editor:
        editor.set_context("x", namespace="shop")
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert [one.name for one in real.parent.iterdir()] == ["config"]
    assert [one.name for one in tmp_path.iterdir() if one.suffix == ".lock"] == []
    assert entry(real, "contexts", "x")["namespace"] == "shop"


def test_nothing_is_saved_if_the_block_raises(files: list[Path]) -> None:
    before = [file.read_text() for file in files]

    def fail() -> None:
        with edit_kubeconfig() as editor:
            editor.set_user("u", token="t2")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert [file.read_text() for file in files] == before
    assert not list(files[0].parent.glob("*.lock"))


def test_a_file_that_does_not_exist_is_made_with_its_folder(tmp_path: Path) -> None:
    with edit_kubeconfig() as editor:
        editor.set_cluster("c", server="https://h:1")
        editor.set_context("x", cluster="c")
        editor.use_context("x")
    made = tmp_path / "home" / ".kube" / "config"
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert kubectl_config([made], "current-context") == "x\n"


def test_a_new_entry_goes_to_the_first_file_that_exists_else_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    monkeypatch.setenv("KUBECONFIG", f"{one}:{two}")
    with edit_kubeconfig() as editor:
        editor.set_cluster("a", server="https://a")
    assert (one.exists(), two.exists()) == (False, True)
    write(one, document())
    with edit_kubeconfig() as editor:
        editor.set_cluster("b", server="https://b")
    assert entry(one, "clusters", "b") == {"server": "https://b"}


def test_a_locked_file_is_waited_for_and_then_named(files: list[Path]) -> None:
    lock = files[1].with_name("config.lock")
    lock.touch()

    def edit() -> None:
        with edit_kubeconfig(wait=0) as editor:
            editor.use_context("z")

    with pytest.raises(ConfigError, match=r"two/config: another program is changing it \(config.lock exists\)") as raised:
        edit()
    assert f"delete {lock}" in str(raised.value)
    assert not files[0].with_name("config.lock").exists(), "the lock taken before is given back"
    release = threading.Timer(0.05, lock.unlink)
    release.start()
    with edit_kubeconfig(wait=30) as editor:
        editor.use_context("z")
    release.join()
    assert Kubeconfig.read().current_context == "z"


def test_kubectl_does_not_wait_and_respects_our_lock(files: list[Path]) -> None:
    with edit_kubeconfig() as editor:
        with pytest.raises(AssertionError, match=r"config\.lock"):
            kubectl_config(files, "use-context", "z")
        editor.use_context("z")
    assert kubectl_config(files, "current-context") == "z\n"


def test_a_certificate_is_named_relative_to_its_kubeconfig_where_that_can_be(files: list[Path], tmp_path: Path) -> None:
    with edit_kubeconfig() as editor:
        editor.set_cluster("c", certificate_authority=files[0].parent / "pki" / "ca.crt")
        editor.set_user("u", client_certificate=tmp_path / "elsewhere.crt", client_key_data=b"key")
    assert entry(files[0], "clusters", "c")["certificate-authority"] == "pki/ca.crt"
    found = entry(files[0], "users", "u")
    assert (found["client-certificate"], found["client-key-data"]) == (str(tmp_path / "elsewhere.crt"), base64.b64encode(b"key").decode())


def test_a_cluster_or_user_that_is_renamed_is_followed_by_its_contexts(files: list[Path]) -> None:
    with edit_kubeconfig() as editor:
        editor.rename_user("v", "w")
        editor.rename_cluster("c", "main")
    assert entry(files[0], "contexts", "x")["cluster"] == "main"
    assert entry(files[1], "contexts", "z") == {"cluster": "main", "user": "w", "shade": "blue"}


def test_a_whole_entry_can_be_put(files: list[Path]) -> None:
    with edit_kubeconfig() as editor:
        variable = ExecVariable(name="A", value="b")
        editor.put("u", KubeconfigUser(exec=Exec(command="login", api_version=V1, env=[variable], interactive_mode="Never")))
        editor.put("c", Cluster(server="https://other"))
    user = {"exec": {"command": "login", "apiVersion": V1, "env": [{"name": "A", "value": "b"}], "interactiveMode": "Never"}}
    assert entry(files[0], "users", "u") == user
    assert entry(files[0], "clusters", "c") == {"server": "https://other", "new-in-2030": {"a": [1, 2]}}


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        pytest.param(lambda e: e.use_context("q"), 'there is no context "q"; known: x, z', id="a context that is not there"),
        pytest.param(lambda e: e.delete_user("q"), 'there is no user "q"; known: u, v', id="a user that is not there"),
        pytest.param(lambda e: e.rename_context("x", "z"), '"z" is taken', id="a name that is taken"),
        pytest.param(lambda e: e.rename_cluster("q", "r"), 'there is no cluster "q"', id="a cluster that is not there"),
        pytest.param(lambda e: e.set_user("", token="t"), "an entry needs a name", id="no name"),
    ],
)
def test_an_edit_that_cannot_be_made_says(files: list[Path], edit: Edit, message: str) -> None:
    def change() -> None:
        with edit_kubeconfig() as editor:
            edit(editor)

    with pytest.raises(ConfigError) as raised:
        change()
    assert message in str(raised.value)
    assert str(files[0]) in str(raised.value)


def test_another_kubeconfig_is_merged_whole_or_not_at_all(files: list[Path], tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "ca.crt").write_text("PEM")
    far = document({"server": "https://far", "certificate-authority": "ca.crt"}, {"tokenFile": "token", "exec": {"command": "./login"}})
    other = Kubeconfig.read(write(tmp_path / "far" / "config", far))
    before = files[0].read_text()

    def merge() -> None:
        with edit_kubeconfig() as editor:
            editor.merge(other)

    with pytest.raises(ConfigError, match=r'would change existing entries: cluster "c" .*, user "u"'):
        merge()
    assert files[0].read_text() == before
    with edit_kubeconfig() as editor:
        editor.merge(other, replace=True)
    cluster = {"server": "https://far", "certificate-authority-data": base64.b64encode(b"PEM").decode()}
    assert entry(files[0], "clusters", "c") == cluster
    found = entry(files[0], "users", "u")
    assert (found["tokenFile"], found["exec"]["command"]) == (str(tmp_path / "far" / "token"), str(tmp_path / "far" / "login"))
    assert Kubeconfig.read().current_context == "x"


@pytest.mark.parametrize(
    ("args", "options"),
    [
        pytest.param([], {}, id="all, without secrets"),
        pytest.param(["--raw"], {"raw": True}, id="all as it is"),
        pytest.param(["--minify", "--raw"], {"minify": True, "raw": True}, id="what the current context uses"),
        pytest.param(["--minify", "--context=z"], {"minify": True, "context": "z"}, id="what another context uses"),
        pytest.param(["--flatten", "--raw"], {"flatten": True, "raw": True}, id="with the files in it"),
    ],
)
def test_a_view_shows_what_kubectl_shows(files: list[Path], args: list[str], options: dict[str, Any]) -> None:
    (files[0].parent / "ca.crt").write_text("PEM")
    with edit_kubeconfig() as editor:
        editor.set_cluster("c", certificate_authority=files[0].parent / "ca.crt")
        editor.set_user("other", username="me", password="hunter2", client_key_data=b"hunter3")
    theirs = json.loads(kubectl_config(files, "view", "-o", "json", *args))
    ours = Kubeconfig.read().view(**options)
    assert _known(ours) == _known(theirs)
    if not options.get("raw"):
        assert "hunter" not in json.dumps(ours)


def test_a_view_shows_no_secret_of_providers_and_plugins(tmp_path: Path) -> None:
    user = {
        "auth-provider": {
            "name": "oidc",
            "config": {"client-secret": "hunter2", "refresh-token": "hunter3", "idp-issuer-url": "https://i"},
        },
        "exec": {"command": "x", "env": [{"name": "AWS_SECRET_ACCESS_KEY", "value": "hunter4"}, {"name": "AWS_PROFILE", "value": "dev"}]},
    }
    shown = json.dumps(Kubeconfig.read(write(tmp_path / "config", document(user=user))).view())
    assert "hunter" not in shown
    assert '"dev"' in shown
    assert '"https://i"' in shown
