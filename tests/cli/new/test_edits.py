"""A new project survives the first edits of its user: kinds and sample are edited, manifests made, and its tests pass as they are."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from kubeloop.cli.new.changes import GENERATE
from tests.cli.new.conftest import Project

# Each runs the tests of a project in a separate process.
pytestmark = [pytest.mark.embedded, pytest.mark.timeout(1200)]

TYPES, CONTROLLER, SAMPLE, TESTS = "api/v1alpha1/web.py", "controllers/web.py", "samples/v1alpha1_web.yaml", "tests/test_web.py"
_FIELD = '    image: Annotated[str, Meta(min_length=1)] = "nginx:1.29"\n'
_SPEC = "class WebSpec(Model):\n"
_SAMPLE = "spec:\n"
_OPTIONAL_SPEC = "    spec: WebSpec = msgspec.field(default_factory=WebSpec)\n"
_COUNT = "        web.status.ready_replicas = ready\n"

_SECOND = """\
@custom_resource("{group}/v1alpha1", plural="gadgets")
@crd(storage=True)
class Gadget(Resource):
    \"\"\"A second kind.\"\"\"

    spec: WebSpec


"""

#: The project's tests that depend on the fields of its kind.
AFFECTED = "deployment_is_made or follows or status or out_of_bounds or accepts_the_sample"

Edits = Mapping[str, list[tuple[str, str]]]


@pytest.fixture
def edited(project: Project, tmp_path: Path) -> Project:
    """A copy of the project, to edit."""
    shutil.copytree(project.folder, tmp_path / "project")
    return Project(tmp_path / "project", project.name, project.group, project.wheel)


@pytest.mark.parametrize(
    "edits",
    [
        pytest.param(
            {TYPES: [(_FIELD, "    owner: str\n" + _FIELD)], SAMPLE: [(_SAMPLE, "spec:\n  owner: ann\n")]},
            id="a required field",
        ),
        pytest.param({TYPES: [(_FIELD, _FIELD.replace(' = "nginx:1.29"', ""))]}, id="a field that becomes required"),
        pytest.param({TYPES: [("    spec: WebSpec\n", _OPTIONAL_SPEC)]}, id="a spec that may be left out"),
        pytest.param(
            {
                TYPES: [
                    ("ready_replicas: int = 0", "ready_replicas: int"),
                    ("status: WebStatus = msgspec.field(default_factory=WebStatus)", "status: WebStatus | None = None"),
                ],
                CONTROLLER: [
                    ("web import Web\n", "web import Web, WebStatus\n"),
                    (_COUNT, "        web.status = web.status or WebStatus(ready_replicas=ready)\n" + _COUNT),
                ],
            },
            id="a required field in the status",
        ),
        pytest.param(
            {
                TYPES: [
                    ("from typing import Annotated\n", "from typing import Annotated, Literal\n"),
                    (_FIELD, '    size: Literal["small", "large"]\n    colour: Literal["red", "blue"] = "red"\n' + _FIELD),
                ],
                SAMPLE: [(_SAMPLE, "spec:\n  size: large\n")],
            },
            id="an enum, required and with a default",
        ),
        pytest.param(
            {
                TYPES: [
                    (_SPEC, 'class Storage(Model):\n    gigabytes: int\n    path: str = "/data"\n\n\n' + _SPEC),
                    (_FIELD, "    storage: Storage\n    caches: list[Storage] = msgspec.field(default_factory=list)\n" + _FIELD),
                ],
                SAMPLE: [(_SAMPLE, "spec:\n  storage:\n    gigabytes: 4\n")],
            },
            id="a nested struct that is required, and a list of it",
        ),
        pytest.param(
            {
                TYPES: [("    replicas: ", "    size: ")],
                CONTROLLER: [("web.spec.replicas", "web.spec.size")],
                SAMPLE: [("replicas:", "size:")],
                TESTS: [("changed.spec.replicas", "changed.spec.size")],
            },
            id="a field that an editor renames wherever it is used",
        ),
        pytest.param(
            {
                TYPES: [
                    (
                        '@custom_resource("',
                        _SECOND + '@custom_resource("',
                    ),
                ],
            },
            id="a second kind beside the first",
        ),
    ],
)
def test_its_tests_and_types_pass_after(edited: Project, types: Path, edits: Edits) -> None:
    for name, replacements in edits.items():
        path = edited.folder / (name if name.startswith(("samples", "tests")) else f"{edited.name.replace('-', '_')}/{name}")
        text = path.read_text()
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new.replace("{group}", edited.group))
        path.write_text(text)
    commands = re.findall(r"kubeloop generate (.+)", (edited.folder / "Makefile").read_text())
    assert commands
    # One process for all of them, as ``kubeloop add`` does it: most of the time of each is its start.
    done = edited.run("-c", GENERATE, *commands)
    assert done.returncode == 0, done.stderr
    for words in (["pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", AFFECTED], ["mypy", "--cache-dir", str(types)]):
        done = edited.run("-m", *words)
        assert done.returncode == 0, done.stdout + done.stderr
