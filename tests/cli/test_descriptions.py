"""``kubeloop descriptions`` and ``kubeloop server --descriptions``, with the real kubectl explain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from kubeloop.cli.server_commands import descriptions
from kubeloop.schema.descriptions import cache_file, load
from kubeloop.testing import LocalCluster
from tests.kubectl.runner import Kubectl

POD, SPEC = "io.k8s.api.core.v1.Pod", "io.k8s.api.core.v1.PodSpec"
DOCUMENT = {
    "swagger": "2.0",
    "definitions": {
        POD: {"description": "A pod of the document.", "properties": {"spec": {"description": "The spec of the document."}}},
        SPEC: {"properties": {"overhead": {"description": "The overhead of the document."}, "nosuch": {"description": "x"}}},
        "com.example.Secret": {"description": "Not one of Kubernetes' own."},
    },
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory of the test's own, which servers that it starts use too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache_file()


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "api.json"
    path.write_text(json.dumps(DOCUMENT))
    return path


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A server that was given a document."""
    folder = tmp_path_factory.mktemp("described")
    (folder / "api.json").write_text(json.dumps(DOCUMENT))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        with LocalCluster(controllers=False, descriptions=folder / "api.json") as cluster:
            yield cluster


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(descriptions, list(arguments))
    assert result.exit_code == code, result.output
    return result.output


def explain(cluster: LocalCluster, home: Path, *arguments: str) -> str:
    return Kubectl(cluster.kubeconfig, home)("explain", *arguments)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        pytest.param(("pod",), "A pod of the document.", id="a kind"),
        pytest.param(("pod.spec.overhead",), "The overhead of the document.", id="a field"),
        pytest.param(("pod.spec.containers",), "The containers that run side by side.", id="a field that the document leaves out"),
        pytest.param(("pod.spec", "--output=plaintext-openapiv2"), "The overhead of the document.", id="the older document"),
    ],
)
def test_explain_shows_the_texts_of_a_document(described: LocalCluster, tmp_path: Path, arguments: tuple[str, ...], shown: str) -> None:
    assert shown in " ".join(explain(described, tmp_path, *arguments).split())


@pytest.mark.timeout(120)
def test_a_context_of_the_user_is_asked_and_later_servers_show_its_texts(described: LocalCluster, cache: Path, tmp_path: Path) -> None:
    run("clear")
    context = yaml.safe_load(described.kubeconfig.read_text())["current-context"]
    assert "definitions" in run("import", context, "--kubeconfig", str(described.kubeconfig))
    with LocalCluster(controllers=False) as later:
        assert "A pod of the document." in explain(later, tmp_path, "pod")


@pytest.mark.timeout(120)
def test_no_credential_and_no_address_gets_into_the_cache(described: LocalCluster, cache: Path) -> None:
    config = yaml.safe_load(described.kubeconfig.read_text())
    run("import", config["current-context"], "--kubeconfig", str(described.kubeconfig))
    kept = cache.read_text()
    secrets = [*config["users"][0]["user"].values(), *config["clusters"][0]["cluster"].values()]
    assert not [one for one in secrets if str(one) in kept]
    assert set(json.loads(kept)) == {"version", "definitions"}


@pytest.mark.timeout(120)
def test_explain_names_the_command_where_nothing_was_imported(tmp_path: Path) -> None:
    with LocalCluster(controllers=False) as cluster:
        assert "kubeloop descriptions import" in explain(cluster, tmp_path, "pod")
        text = explain(cluster, tmp_path, "pod.spec.containers")
        assert "<empty>" not in text
        assert "A check whose failure restarts the container." in text
        assert "containers\t<[]Container> -required-" in explain(cluster, tmp_path, "pod", "--recursive")


def test_texts_of_built_in_fields_are_saved_and_no_others(document: Path, cache: Path) -> None:
    assert run("import", str(document)) == f"{cache}: 3 descriptions of 2 definitions\n"
    assert load(cache) == {
        POD: {"": "A pod of the document.", "spec": "The spec of the document."},
        SPEC: {"overhead": "The overhead of the document."},
    }
    assert run("clear") == f"{cache}: removed\n"
    assert load(cache) == {}


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        pytest.param("{", "cannot be read as JSON", id="a file that is cut off"),
        pytest.param("{}", "not an OpenAPI document", id="another object"),
        pytest.param(
            '{"swagger": "2.0", "definitions": {"a": {"description": "x"}}}', "none of Kubernetes' own kinds", id="of other kinds"
        ),
    ],
)
def test_a_broken_document_is_refused_and_nothing_is_saved(tmp_path: Path, cache: Path, content: str, fault: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content)
    text = run("import", str(path), code=1)
    assert str(path) in text
    assert fault in text
    assert not cache.exists()


@pytest.mark.parametrize("source", ["nosuch", "/no/such/file.json"])
def test_neither_file_nor_context_is_refused(tmp_path: Path, source: str) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("apiVersion: v1\nkind: Config\ncontexts: []\n")
    text = run("import", source, "--kubeconfig", str(kubeconfig), code=1)
    assert f"{source}: no such file, and no usable context" in text


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert "a folder; name the OpenAPI documents in it" in run("import", str(tmp_path), code=1)
