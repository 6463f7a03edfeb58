"""``kubeloop proxy schema`` and ``kubeloop proxy test`` as a person uses them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kubeloop.cli import proxy_rules
from kubeloop.proxy.rules import rule_schema
from kubeloop.types import JSONObject
from tests.proxy.rules.rule_texts import pod, rule, text_of


@pytest.fixture
def rules(tmp_path: Path) -> str:
    file = tmp_path / "rules.yaml"
    file.write_text(
        text_of(
            rule({"set": {"spec.nodeName": "hidden"}}, name="hide-node", match=[{"resources": ["pods"], "names": ["web-0"]}]),
            rule(name="hide-db", match=[{"resources": ["pods"], "names": ["db"], "userGroups": ["devs"]}]),
            rule({"set": {"spec.nodeName.x": 1}}, name="broken", match=[{"resources": ["pods"], "names": ["bad"]}]),
            rule(
                name="agents",
                match=[
                    {"resources": ["networkpolicies"], "userAgents": ["helm"]},
                    {"resources": ["widgets"], "verbs": ["list"], "users": ["bob"]},
                ],
            ),
        )
    )
    return str(file)


def objects(tmp_path: Path, *trees: JSONObject) -> str:
    file = tmp_path / "objects.yaml"
    file.write_text(text_of(*trees))
    return str(file)


def run(*args: str, code: int = 0, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(proxy_rules.test_command, args, input=stdin)
    assert result.exit_code == code, result.output
    return result


def test_the_schema_is_printed_as_json() -> None:
    result = CliRunner().invoke(proxy_rules.schema_command)
    assert json.loads(result.output) == rule_schema()


def test_a_changed_object_is_shown_as_a_difference(rules: str, tmp_path: Path) -> None:
    assert run(rules, objects(tmp_path, pod())).stdout.splitlines() == [
        "pods/web-0: changed by hide-node",
        "--- pods/web-0 (server)",
        "+++ pods/web-0 (client)",
        "@@ -8,7 +8,7 @@",
        "   labels:",
        "     tier: back",
        " spec:",
        "-  nodeName: node-7",
        "+  nodeName: hidden",
        "   containers:",
        "   - name: a",
        "     image: x",
    ]


WIDGET = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
POLICY = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "n", "namespace": "shop"}}


@pytest.mark.parametrize(
    ("tree", "options", "expected"),
    [
        pytest.param(pod("db"), [], "pods/db: unchanged", id="an anonymous user is in no group"),
        pytest.param(
            pod("db"),
            ["--user", "ann", "--group", "ops", "--group", "devs"],
            "pods/db: hidden by hide-db",
            id="the second group of the user",
        ),
        pytest.param(
            POLICY, ["--user-agent", "helm"], "networkpolicies/n: hidden by agents", id="the plural of a built-in kind, and the user agent"
        ),
        pytest.param(
            WIDGET, ["--verb", "list", "--user", "bob"], "widgets/w: hidden by agents", id="the plural of a custom kind, and the verb"
        ),
        pytest.param(WIDGET, ["--user", "bob"], "widgets/w: unchanged", id="the default verb is get"),
    ],
)
def test_options_describe_the_request(rules: str, tmp_path: Path, tree: JSONObject, options: list[str], expected: str) -> None:
    assert run(rules, objects(tmp_path, tree), *options).stdout == f"{expected}\n"


def test_files_folders_lists_and_the_standard_input_are_read(rules: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [pod("a"), pod("b")]}))
    output = run(rules, str(folder), "-", objects(tmp_path, pod("d")), stdin=text_of(pod("c"))).stdout
    assert output.splitlines() == [f"pods/{name}: unchanged" for name in "abcd"]


def test_a_rule_that_fails_is_shown_and_the_rest_goes_on(rules: str, tmp_path: Path) -> None:
    output = run(rules, objects(tmp_path, pod("bad"), pod("x")), code=1).output
    assert output.splitlines() == [
        "pods/bad: failed: rule broken: spec.nodeName.x: spec.nodeName is text, expected a mapping",
        "pods/x: unchanged",
    ]


def test_mistakes_of_rules_and_objects_are_lines_with_file_and_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text(text_of(rule({"drp": True})))
    file = tmp_path / "objects.yaml"
    file.write_text(
        "kind: Pod\n---\n- 1\n---\napiVersion: v1\nkind: Pod\nmetadata: {}\n---\napiVersion: a/b/c\nkind: X\nmetadata: {name: x}\n"
    )
    result = run(str(broken), str(file), str(tmp_path / "nope.yaml"), code=1)
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f'{broken}:1: rule r: spec.actions[0].drp: unknown field; did you mean "drop"?',
        f"{file}:1: apiVersion is missing; expected an object as kubectl get -o yaml prints it",
        f"{file}:3: expected an object with apiVersion, kind and metadata",
        f"{file}:5: metadata.name is missing; expected an object as kubectl get -o yaml prints it",
        f'{file}:9: apiVersion "a/b/c" is neither "VERSION" nor "GROUP/VERSION"',
        f"{tmp_path / 'nope.yaml'}:1: no such file",
    ]


@pytest.mark.parametrize(
    ("options", "variables", "terminal", "coloured"),
    [
        pytest.param([], {}, True, True, id="a terminal shows colours"),
        pytest.param([], {}, False, False, id="a file has none"),
        pytest.param(["--no-color"], {}, True, False, id="the option turns them off"),
        pytest.param([], {"NO_COLOR": "1"}, True, False, id="NO_COLOR turns them off"),
        pytest.param([], {"TERM": "dumb"}, True, False, id="a dumb terminal has none"),
    ],
)
def test_colours_are_for_terminals(
    rules: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    variables: dict[str, str],
    terminal: bool,
    coloured: bool,
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    runner = CliRunner()
    with runner.isolation(color=True) as (out, _, _):
        monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
        with pytest.raises(SystemExit):
            proxy_rules.test_command.main([rules, objects(tmp_path, pod()), *options])
        text = out.getvalue().decode()
    assert ("\x1b[32m+  nodeName: hidden" in text) is coloured
    assert ("\x1b" in text) is coloured
