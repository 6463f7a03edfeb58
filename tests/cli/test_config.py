"""``kubeloop config`` as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kubeloop.cli import main
from kubeloop.codec import read_yaml
from tests.config.documents import document, write


@pytest.fixture
def file(tmp_path: Path) -> Path:
    content = document(user={"token": "hunter2"})
    content["contexts"].append({"name": "prod", "context": {"cluster": "c", "user": "u", "namespace": "shop"}})
    return write(tmp_path / "config", content)


def run(*args: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["config", *args], env={"HTTPS_PROXY": "", "https_proxy": "", "KUBECONFIG": ""})
    assert result.exit_code == code, result.output
    return result


def test_explain_says_where_settings_come_from(file: Path) -> None:
    said = run("explain", "--kubeconfig", str(file), "--context", "prod", "-s", "https://other").output
    assert f'shop                          from {file}: context "prod": namespace' in said
    assert "https://other                 from override server" in said
    assert "hunter" not in said
    found = json.loads(run("explain", "--kubeconfig", str(file), "-o", "json").output)
    assert found["settings"][0] == {"name": "context", "value": "x", "origin": f"{file}: current-context"}


def test_view_hides_the_secrets_that_a_plugin_gets(tmp_path: Path) -> None:
    plugin = {"command": "login", "env": [{"name": "API_TOKEN", "value": "hunter2"}, {"name": "REGION", "value": "eu"}]}
    (tmp_path / "config").write_text(json.dumps({"users": [{"name": "u", "user": {"exec": plugin}}]}))
    (shown,) = read_yaml(run("view", "--kubeconfig", str(tmp_path / "config")).output)
    assert [one["value"] for one in shown["users"][0]["user"]["exec"]["env"]] == ["REDACTED", "eu"]


def test_view_prints_yaml_or_json_without_secrets(file: Path) -> None:
    assert read_yaml(run("view", "--kubeconfig", str(file)).output)[0]["users"] == [{"name": "u", "user": {"token": "REDACTED"}}]
    raw = json.loads(run("view", "--kubeconfig", str(file), "--raw", "--minify", "--context", "prod", "-o", "json").output)
    assert (raw["users"][0]["user"], raw["current-context"], len(raw["contexts"])) == ({"token": "hunter2"}, "prod", 1)


def test_contexts_are_listed_and_used(file: Path) -> None:
    assert run("current-context", "--kubeconfig", str(file)).output == "x\n"
    assert run("use-context", "prod", "--kubeconfig", str(file)).output == 'Switched to context "prod".\n'
    assert run("current-context", "--kubeconfig", str(file)).output == "prod\n"
    lines = run("get-contexts", "--kubeconfig", str(file)).output.splitlines()
    assert lines == [
        "CURRENT   NAME   CLUSTER   AUTHINFO   NAMESPACE   FILE",
        f"*         prod   c         u          shop        {file}",
        f"          x      c         u                      {file}",
    ]
    assert run("get-contexts", "--kubeconfig", str(file), "-o", "name").output == "prod\nx\n"


def test_another_file_is_merged_in(file: Path, tmp_path: Path) -> None:
    other = document(clusters=[], users=[], contexts=[{"name": "new", "context": {"cluster": "c", "user": "u"}}])
    assert run("merge", str(write(tmp_path / "other", other)), "--kubeconfig", str(file)).output == "Contexts merged: new.\n"
    assert "new" in run("get-contexts", "--kubeconfig", str(file), "-o", "name").output


@pytest.mark.parametrize(
    ("args", "message"),
    [
        pytest.param(["use-context", "nope"], 'there is no context "nope"; known: prod, x', id="a context that is not there"),
        pytest.param(["explain", "--context", "nope"], 'there is no context "nope"', id="nor can it be explained"),
        pytest.param(["merge", "/nowhere/config"], "/nowhere/config: no such file", id="a file that is not there"),
    ],
)
def test_an_error_is_one_text(file: Path, args: list[str], message: str) -> None:
    output = run(*args, "--kubeconfig", str(file), code=1).output
    assert output.startswith("Error: ")
    assert message in output
