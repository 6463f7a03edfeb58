"""``kubeloop generate webhooks``, ``roles``, and ``crd --webhooks``: manifests that are made from declarations."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kubeloop.cli.generate import generate
from kubeloop.codec.yaml import read_yaml
from kubeloop.controller.webhooks import Inject

PROGRAM = """
from kubeloop import Model, Resource, custom_resource
from kubeloop.controller.webhooks import Webhooks
from kubeloop.declare import crd


class BoxSpec(Model):
    size: int = 1


@custom_resource("boxes.example.com/v1", plural="boxes")
@crd(storage=True)
class Box(Resource):
    spec: BoxSpec
    status: BoxSpec | None = None


@custom_resource("boxes.example.com/v2", plural="boxes", kind="Box")
class BoxV2(Resource):
    spec: BoxSpec
    status: BoxSpec | None = None


@custom_resource("boxes.example.com/v1", plural="shelves", namespaced=False)
class Shelf(Resource):
    pass


hooks, nothing = Webhooks(), Webhooks()


@hooks.validating(Box)
def check(box: Box) -> None: ...


@hooks.conversion(Box, BoxV2)
def up(box: Box) -> BoxV2:
    return BoxV2(spec=box.spec)


@hooks.conversion(BoxV2, Box)
def down(box: BoxV2) -> Box:
    return Box(spec=box.spec)
"""


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "boxes_program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("boxes_program", None)


def documents(*words: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(generate, list(words))
    assert result.exit_code == 0, result.output
    return list(read_yaml(result.output))


def test_webhooks_are_configurations_of_the_service() -> None:
    (found,) = documents("webhooks", "boxes_program:hooks", "--service", "ops/box-webhooks")
    assert (found["kind"], found["metadata"]["name"]) == ("ValidatingWebhookConfiguration", "box-webhooks")
    assert found["webhooks"][0]["clientConfig"]["service"]["namespace"] == "ops"
    (found,) = documents("webhooks", "boxes_program:hooks", "--service", "ops/box-webhooks", "--name", "other")
    assert found["metadata"]["name"] == "other"


def test_definitions_of_converted_kinds_name_the_service() -> None:
    words = ("crd", "boxes_program", "--webhooks", "boxes_program:hooks", "--service", "ops/box-webhooks")
    found = {one["metadata"]["name"]: one["spec"].get("conversion") for one in documents(*words)}
    assert found["shelves.boxes.example.com"] is None
    assert found["boxes.boxes.example.com"]["webhook"]["clientConfig"] == {
        "service": {"namespace": "ops", "name": "box-webhooks", "port": 443, "path": "/convert"}
    }


def test_roles_of_namespaced_kinds_are_aggregated_and_those_of_others_are_not() -> None:
    found = {one["metadata"]["name"]: one for one in documents("roles", "boxes_program", "--name", "box")}
    assert sorted(found) == [f"box-{kind}-{role}" for kind in ("box", "shelf") for role in ("admin", "editor", "viewer")]
    aggregate = "rbac.authorization.k8s.io/aggregate-to-"
    assert found["box-box-viewer"]["metadata"]["labels"] == {f"{aggregate}{role}": "true" for role in ("admin", "edit", "view")}
    assert found["box-box-viewer"]["rules"] == [
        {"apiGroups": ["boxes.example.com"], "resources": ["boxes"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["boxes.example.com"], "resources": ["boxes/status"], "verbs": ["get"]},
    ]
    assert "labels" not in found["box-shelf-editor"]["metadata"]
    assert [rule["resources"] for rule in found["box-shelf-admin"]["rules"]] == [["shelves"]]


@pytest.mark.parametrize(
    "words", [("webhooks", "boxes_program:hooks", "--service", "a/b"), ("roles", "boxes_program", "--name", "a")], ids=str
)
def test_check_compares_with_the_file(tmp_path: Path, words: tuple[str, ...]) -> None:
    out = tmp_path / "out.yaml"
    assert CliRunner().invoke(generate, [*words, "--out", str(out)]).exit_code == 0
    assert CliRunner().invoke(generate, [*words, "--out", str(out), "--check"]).exit_code == 0
    out.write_text(out.read_text() + "# Changed.\n")
    result = CliRunner().invoke(generate, [*words, "--out", str(out), "--check"])
    assert result.exit_code == 1
    assert "-# Changed." in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(["webhooks", "boxes_program:Box", "--service", "a/b"], "is not a Webhooks", id="something else than webhooks"),
        pytest.param(["webhooks", "boxes_program:nothing", "--service", "a/b"], "declares no admission webhook", id="no webhook"),
        pytest.param(["webhooks", "boxes_program:hooks", "--service", "b"], "must be NAMESPACE/NAME", id="a service without a namespace"),
        pytest.param(["webhooks", "boxes_program:hooks", "--service", "a/B"], '--service "a/B": must be', id="a service with a wrong name"),
        pytest.param(["crd", "boxes_program", "--webhooks", "x:y"], "--webhooks and --service belong together", id="no service"),
        pytest.param(["roles", "boxes_program", "--name", "A"], '--name "A"', id="a name that no role can have"),
        pytest.param(["roles", "boxes_program", "--name", "a", "--check"], "name it with --out", id="a check without a file"),
    ],
)
def test_a_mistake_is_named(words: list[str], message: str) -> None:
    result = CliRunner().invoke(generate, words)
    assert result.exit_code == 1
    assert message in result.output


def test_inject_names_what_the_webhooks_need() -> None:
    from kubeloop.cli.application import webhooks_at

    hooks = webhooks_at("boxes_program:hooks")
    assert Inject.of(hooks, "box") == Inject(validating=["box"], mutating=[], definitions=["boxes.boxes.example.com"])
