"""``kubeloop add``: kinds, webhooks and versions of a project. All files are written or none, and no change of the user is lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kubeloop.cli.new.command import add
from kubeloop.codec.yaml import read_yaml
from tests.cli.new.conftest import Project

# The manifests are made, and the tests of projects run, in separate processes.
pytestmark = [pytest.mark.embedded, pytest.mark.timeout(300)]

KIND = ["kind", "Gadget"]
WEBHOOK = ["webhook", "Web"]
VERSION = ["version", "Web", "v1"]


@pytest.fixture
def mine(forked_generate: None, project: Project, tmp_path: Path) -> Project:
    """A copy of the project, to extend; test_docs and test_operator extend one in separate processes."""
    shutil.copytree(project.folder, tmp_path / "project")
    return Project(tmp_path / "project", project.name, project.group, project.wheel)


def run(project: Project, *words: str) -> Result:
    return CliRunner().invoke(add, [*words, "--project", str(project.folder)])


def done(project: Project, *words: str) -> str:
    result = run(project, *words)
    assert result.exit_code == 0, result.output
    return result.output


def texts(project: Project) -> dict[str, bytes]:
    return {str(path.relative_to(project.folder)): path.read_bytes() for path in project.folder.rglob("*") if path.is_file()}


def module(project: Project) -> Path:
    return project.folder / project.name.replace("-", "_")


def test_a_project_with_all_that_can_be_added_passes_its_tests_and_checks(mine: Project, types: Path) -> None:
    done(mine, *KIND)
    done(mine, *WEBHOOK)
    done(mine, *VERSION)
    done(mine, "webhook", "Gadget", "--defaulting")
    for words in (
        ["-m", "pytest", "-q", "-p", "no:cacheprovider"],
        ["-m", "ruff", "check", "--no-cache", "."],
        ["-m", "ruff", "format", "--no-cache", "--check", "--diff", "."],
        ["-m", "mypy", "--cache-dir", str(types)],
    ):
        result = mine.run(*words)
        assert result.returncode == 0, result.stdout + result.stderr


def test_a_kind_has_classes_controller_definition_roles_sample_and_tests(mine: Project) -> None:
    output = done(mine, *KIND, "--plural", "gadgetry")
    assert "next: make test" in output
    definitions = [one["metadata"]["name"] for one in read_yaml((mine.folder / "config" / "default" / "crd.yaml").read_text())]
    assert definitions == [f"gadgetry.{mine.group}", f"webs.{mine.group}"]
    assert "GadgetController()," in (module(mine) / "app.py").read_text()
    roles = [one["metadata"]["name"] for one in read_yaml((mine.folder / "config" / "default" / "roles.yaml").read_text())]
    assert f"{mine.name}-gadget-editor" in roles
    assert "gadgetry" in (mine.folder / "chart" / "files" / "rules.yaml").read_text()
    for path in ("samples/v1alpha1_gadget.yaml", "tests/test_gadget.py"):
        assert (mine.folder / path).is_file()


def test_a_version_is_served_beside_the_stored_one(mine: Project) -> None:
    done(mine, *VERSION)
    (definition,) = read_yaml((mine.folder / "config" / "default" / "crd.yaml").read_text())
    versions = [(one["name"], one["served"], one["storage"]) for one in definition["spec"]["versions"]]
    assert versions == [("v1", True, False), ("v1alpha1", True, True)]
    client = definition["spec"]["conversion"]["webhook"]["clientConfig"]
    assert client["service"] == {"namespace": mine.name, "name": f"{mine.name}-webhooks", "port": 443, "path": "/convert"}


def test_the_samples_of_two_versions_are_two_objects(mine: Project) -> None:
    done(mine, *VERSION)
    (first,), (second,) = (read_yaml((mine.folder / "samples" / f"{version}_web.yaml").read_text()) for version in ("v1alpha1", "v1"))
    assert (first["metadata"]["name"], second["metadata"]["name"]) == ("web-sample", "web-sample-v1")
    assert first["spec"] == second["spec"]


def test_a_version_begins_with_the_fields_that_the_user_gave_the_stored_one(mine: Project) -> None:
    path = module(mine) / "api" / "v1alpha1" / "web.py"
    path.write_text(path.read_text().replace("    replicas:", '    colour: str = "red"\n    replicas:'))
    done(mine, *VERSION)
    assert 'colour: str = "red"' in (module(mine) / "api" / "v1" / "web.py").read_text()


@pytest.mark.parametrize("words", [KIND, WEBHOOK, VERSION, ["webhook", "Web", "--validating"]], ids=" ".join)
def test_a_second_run_changes_nothing(mine: Project, words: list[str]) -> None:
    done(mine, *words)
    before = texts(mine)
    assert "the project has it already, nothing to do" in done(mine, *words)
    assert texts(mine) == before


@pytest.mark.parametrize("words", [KIND, WEBHOOK, VERSION], ids=" ".join)
def test_a_dry_run_prints_the_changes_and_writes_nothing(mine: Project, words: list[str]) -> None:
    before = texts(mine)
    output = done(mine, *words, "--dry-run")
    assert "nothing was written (--dry-run)" in output
    assert "+++ b/kubeloop.yaml" in output
    assert "change kubeloop.yaml" in output
    assert texts(mine) == before


def test_changes_of_the_user_are_merged(mine: Project) -> None:
    app = module(mine) / "app.py"
    app.write_text(app.read_text().replace("        WebController(),\n", "        WebController(),\n        # My note.\n"))
    kustomization = mine.folder / "config" / "default" / "kustomization.yaml"
    kustomization.write_text("# Mine.\n" + kustomization.read_text())
    output = done(mine, *KIND)
    assert "merge     " in output
    assert "        # My note.\n        GadgetController(),\n" in app.read_text()
    done(mine, *WEBHOOK)
    assert kustomization.read_text().startswith("# Mine.\n")
    assert "  - webhook_service.yaml\n" in kustomization.read_text()


def conflicting(project: Project) -> Path:
    app = module(project) / "app.py"
    app.write_text(app.read_text().replace("        WebController(),\n", "        WebController(workers=3),\n"))
    return app


def test_a_change_that_cannot_be_merged_is_shown_and_nothing_is_written(mine: Project) -> None:
    conflicting(mine)
    before = texts(mine)
    result = run(mine, *KIND)
    assert result.exit_code == 1
    assert "-        WebController(workers=3),\n+        WebController(),\n+        GadgetController(),\n" in result.output
    assert "Nothing was written. To go on: --keep leaves your files as they are" in result.output
    assert texts(mine) == before


def test_force_overwrites_a_file_that_cannot_be_merged(mine: Project) -> None:
    app = conflicting(mine)
    assert "overwrite" in done(mine, *KIND, "--force")
    assert "        WebController(),\n        GadgetController(),\n" in app.read_text()


def test_keep_leaves_a_file_that_cannot_be_merged(mine: Project) -> None:
    app = module(mine) / "app.py"
    app.write_text(app.read_text().replace("        WebController(),\n", "        *[WebController()],\n"))
    kept = app.read_text()
    done(mine, *KIND, "--keep")
    assert app.read_text() == kept
    assert (module(mine) / "controllers" / "gadget.py").is_file()


def test_a_file_of_the_user_where_a_new_one_belongs_is_not_overwritten(mine: Project) -> None:
    theirs = module(mine) / "controllers" / "gadget.py"
    theirs.write_text("mine = 1\n")
    result = run(mine, *KIND)
    assert result.exit_code == 1
    assert "-mine = 1" in result.output
    assert theirs.read_text() == "mine = 1\n"


def test_code_that_cannot_be_imported_is_named_and_nothing_is_written(mine: Project) -> None:
    (module(mine) / "controllers" / "web.py").write_text("import nothing_of_this_name\n")
    before = texts(mine)
    result = run(mine, *KIND)
    assert result.exit_code == 1
    assert "No module named 'nothing_of_this_name'" in result.output
    assert texts(mine) == before


def test_a_file_that_cannot_be_written_undoes_all_others(mine: Project) -> None:
    (mine.folder / "samples" / "v1alpha1_gadget.yaml").mkdir()
    before = texts(mine)
    result = run(mine, *KIND)
    assert result.exit_code == 1
    assert texts(mine) == before


def of_no_project(project: Project) -> None:
    (project.folder / "kubeloop.yaml").unlink()


def with_broken_record(project: Project) -> None:
    (project.folder / "kubeloop.yaml").write_text("name: 3\n")


def with_two_kinds_in_a_file(project: Project) -> None:
    path = module(project) / "api" / "v1alpha1" / "web.py"
    path.write_text(path.read_text() + '\n\n@custom_resource("example.com/v1", plural="others")\nclass Other(Resource):\n    pass\n')


def as_it_is(project: Project) -> None:
    pass


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        pytest.param(of_no_project, KIND, "has no kubeloop.yaml: it is not a project", id="a folder that is no project"),
        pytest.param(with_broken_record, KIND, "kubeloop.yaml: Expected `str`, got `int` - at `$.name`", id="a broken record"),
        pytest.param(as_it_is, ["webhook", "Wbe"], 'the project has no kind "Wbe"; it has Web', id="a webhook of an unknown kind"),
        pytest.param(as_it_is, ["version", "Wbe", "v1"], 'the project has no kind "Wbe"', id="a version of an unknown kind"),
        pytest.param(as_it_is, ["version", "Web", "1"], 'VERSION "1": must be as v1alpha1', id="a version with a wrong name"),
        pytest.param(as_it_is, ["kind", "WEB"], "the project has a kind Web", id="a kind that differs in capitals only"),
        pytest.param(as_it_is, ["kind", "Foo", "--plural", "webs"], "is the resource of Web; choose another --plural", id="a taken plural"),
        pytest.param(as_it_is, ["kind", "web_site"], 'KIND "web_site": must be in CamelCase', id="a kind with a wrong name"),
        pytest.param(as_it_is, ["kind", "Web", "--version", "v2"], "kubeloop add version Web v2", id="a version by the wrong command"),
        pytest.param(as_it_is, ["webhook", "Web", "--conversion"], "kubeloop add version Web VERSION", id="conversion of one version"),
        pytest.param(with_two_kinds_in_a_file, VERSION, "move other kinds to", id="a version of a file with two kinds"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_written(
    mine: Project, change: Callable[[Project], None], words: list[str], message: str
) -> None:
    change(mine)
    before = texts(mine)
    result = run(mine, *words)
    assert result.exit_code == 1
    assert message in result.output
    assert texts(mine) == before
