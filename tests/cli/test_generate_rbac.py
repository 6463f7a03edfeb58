"""``kubeloop generate rbac``: roles from controllers, written, compared, and what it says when it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kubeloop import Controller
from kubeloop.api.core.v1 import ConfigMap, Secret
from kubeloop.cli.generate import generate
from kubeloop.codec.yaml import read_yaml
from kubeloop.controller import ControllerBase
from kubeloop.controller.webhooks import Webhooks

HERE = "tests.cli.test_generate_rbac"


class Secrets(Controller[ConfigMap], owns=[Secret], name="secrets"):
    async def reconcile(self, config: ConfigMap) -> None: ...


class NeedsMore(Secrets, name="needs-more"):
    def __init__(self, value: str) -> None:
        self.what = value


def controllers() -> list[ControllerBase[ConfigMap]]:
    return [Secrets()]


def broken() -> None:
    raise RuntimeError("no licence")


def with_argument(value: str) -> None: ...


one = Secrets()
several = [Secrets, one]
program = [Secrets, Webhooks()]
nothing: list[str] = []


def run(*arguments: str) -> Result:
    return CliRunner().invoke(generate, ["rbac", "--name", "op", *arguments])


@pytest.mark.parametrize(
    "target",
    [
        pytest.param("controllers", id="a function that returns controllers"),
        pytest.param("one", id="a controller"),
        pytest.param("Secrets", id="its class"),
        pytest.param("several", id="a list of both"),
        pytest.param("program", id="a program with webhooks, as kubeloop run takes it"),
    ],
)
def test_roles_are_printed_ready_to_apply(target: str) -> None:
    result = run(f"{HERE}:{target}", "-n", "ops")
    assert result.exit_code == 0, result.output
    account, role, binding, *election = list(read_yaml(result.stdout))
    assert account["metadata"] == {"name": "op", "namespace": "ops"}
    assert {"apiGroups": [""], "resources": ["configmaps/finalizers"], "verbs": ["update"]} in role["rules"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "op", "namespace": "ops"}]
    assert [one["kind"] for one in election] == ["Role", "RoleBinding"]


def test_a_file_is_written_and_check_compares_it(tmp_path: Path) -> None:
    out = str(tmp_path / "config" / "rbac.yaml")
    assert run(f"{HERE}:one", "--out", out, "--no-leader-election").exit_code == 0
    assert run(f"{HERE}:one", "--out", out, "--no-leader-election", "--check").exit_code == 0
    result = run(f"{HERE}:one", "--out", out, "--check")
    assert result.exit_code == 1
    assert "differs from the controllers" in result.output
    assert "+kind: Role" in result.output


def test_sharding_needs_more_of_leases() -> None:
    *_, role, _ = list(read_yaml(run(f"{HERE}:one", "--sharding").stdout))
    assert role["rules"] == [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "delete", "get", "list", "update"]}
    ]


def test_the_rules_alone_are_for_templates() -> None:
    (document,) = read_yaml(run(f"{HERE}:one", "--rules").stdout)
    assert list(document) == ["rules"]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        pytest.param(HERE, "write MODULE:NAME", id="a module alone"),
        pytest.param("nowhere_at_all:x", "no module nowhere_at_all here", id="a module that is not there"),
        pytest.param(f"{HERE}:missing", "has no missing", id="a name that is not there"),
        pytest.param(f"{HERE}:HERE", "an object of str is not a controller; expected a list of controllers", id="something else"),
        pytest.param(f"{HERE}:nothing", "holds no controller", id="an empty list"),
        pytest.param(f"{HERE}:broken", "broken() failed: RuntimeError: no licence", id="a function that fails"),
        pytest.param(f"{HERE}:with_argument", "with_argument takes arguments", id="a function that wants something"),
        pytest.param(f"{HERE}:NeedsMore", "NeedsMore takes arguments", id="a class that wants something"),
    ],
)
def test_the_error_for_a_wrong_target_names_the_accepted_ones(target: str, words: str) -> None:
    result = run(target)
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert words in result.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(("--name", "My_Operator"), '--name "My_Operator": a lowercase RFC 1123 subdomain', id="a name"),
        pytest.param(("-n", "ops.example"), '--namespace "ops.example": must not contain dots', id="a namespace"),
    ],
)
def test_names_that_no_object_can_have_are_refused(options: tuple[str, str], words: str) -> None:
    result = run(f"{HERE}:controllers", "--name", "a", "--namespace", "ops", *options)
    assert (result.exit_code, words in result.output) == (1, True), result.output
