from __future__ import annotations

from pathlib import Path

import pytest

from tools import upstream_diff
from tools.upstream_diff import Statement, Tree, UpstreamFile


def tree(root: Path, files: dict[str, str]) -> Tree:
    """A version whose modules are the first parts of the paths of ``files``."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tree({name.split("/")[0]: root / name.split("/")[0] for name in files})


@pytest.fixture
def version(tmp_path: Path) -> Tree:
    names = (
        "client-go/tools/cache/reflector.go",
        "client-go/tools/cache/reflector_test.go",
        "client-go/tools/cache/store.go",
        "client-go/rest/request.go",
        "kubernetes/pkg/controller/podgc/gc_controller.go",
        "kubernetes/pkg/controller/deployment/sync.go",
        "kubernetes/pkg/controller/deployment/util/deployment_util.go",
        "kubernetes/pkg/controller/job/sync.go",
        "kubernetes/pkg/registry/core/pod/strategy.go",
        "kubernetes/pkg/registry/core/secret/strategy.go",
        "apiextensions-apiserver/pkg/apiserver/schema/objectmeta/coerce.go",
    )
    files = dict.fromkeys(names, "package x\n")
    files["kubernetes/pkg/apis/core/validation/validation.go"] = "package v\nfunc ValidatePodSpec() {}\nfunc (s *store) BeforeDelete() {}\n"
    return tree(tmp_path, files)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("client-go tools/cache/reflector.go.", ["client-go/tools/cache/reflector.go"], id="a path of a module"),
        pytest.param("k8s.io/client-go rest/request.go; RFC 7396", ["client-go/rest/request.go"], id="a module's whole name"),
        pytest.param(
            "client-go tools/cache (Store)",
            ["client-go/tools/cache/reflector.go", "client-go/tools/cache/store.go"],
            id="a folder is its files without tests",
        ),
        pytest.param(
            "pkg/controller/podgc", ["kubernetes/pkg/controller/podgc/gc_controller.go"], id="a path without module is of Kubernetes"
        ),
        pytest.param(
            "Kubernetes pkg/controller/deployment (sync.go) and util/deployment_util.go",
            [
                "kubernetes/pkg/controller/deployment/sync.go",
                "kubernetes/pkg/controller/deployment/util/deployment_util.go",
            ],
            id="a file name is sought in the folder before it",
        ),
        pytest.param(
            "pkg/registry/core/{pod,secret}/strategy.go",
            ["kubernetes/pkg/registry/core/pod/strategy.go", "kubernetes/pkg/registry/core/secret/strategy.go"],
            id="braces",
        ),
        pytest.param(
            "pkg/registry/*/*/strategy.go",
            ["kubernetes/pkg/registry/core/pod/strategy.go", "kubernetes/pkg/registry/core/secret/strategy.go"],
            id="stars",
        ),
        pytest.param(
            "apiextensions-apiserver schema/objectmeta",
            ["apiextensions-apiserver/pkg/apiserver/schema/objectmeta/coerce.go"],
            id="the end of a folder's path",
        ),
        pytest.param("ValidatePodSpec, qos", ["kubernetes/pkg/apis/core/validation/validation.go"], id="a function"),
        pytest.param("BeforeDelete of a store", ["kubernetes/pkg/apis/core/validation/validation.go"], id="a method"),
        pytest.param("https://kubernetes.io/docs/pkg/controller/podgc", [], id="an address names no file"),
        pytest.param('Kubernetes documentation, "Finalizers"', [], id="a document names no file"),
    ],
)
def test_a_statement_names_files(version: Tree, text: str, expected: list[str]) -> None:
    # A folder's own files come with the files that its statement names in it.
    found = {f"{file.module}/{file.path}" for file in version.find(text)}
    assert found >= set(expected) if expected else not found
    assert not any(name.endswith("_test.go") for name in found)


def test_statements_stand_in_docstrings_and_comments(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.py").write_text(
        '"""Does it.\n\nSource: client-go tools/cache,\nrest/request.go.\n\nNot this."""\n\n'
        "# Reads. Source: KEP-1.\n# Ends here.\nx = 1  # no source\n"
    )
    (tmp_path / "b.py").write_text("x = 1\n")
    assert list(upstream_diff.statements(tmp_path)) == [
        Statement("sub.a", "client-go tools/cache, rest/request.go."),
        Statement("sub.a", "KEP-1. Ends here."),
    ]


def test_cited_files_that_differ_are_listed_with_the_modules_that_cite_them(tmp_path: Path) -> None:
    old = tree(tmp_path / "old", {"client-go/a.go": "one\ntwo\n", "client-go/b.go": "same\n", "client-go/c.go": "gone\n"})
    new = tree(tmp_path / "new", {"client-go/a.go": "one\n2\n3\n", "client-go/b.go": "same\n", "client-go/d.go": "made\n"})
    found = [Statement("cache.x", "client-go a.go b.go"), Statement("cache.y", "client-go a.go c.go d.go"), Statement("z", "RFC 9110")]
    cited, unresolved = upstream_diff.cited_files([old, new], found)
    assert unresolved == [found[2]]
    changes = upstream_diff.changes(old, new, cited)
    assert [(one.file, one.state, one.added, one.removed, one.cited_by) for one in changes] == [
        (UpstreamFile("client-go", "a.go"), "M", 2, 1, ("cache.x", "cache.y")),
        (UpstreamFile("client-go", "c.go"), "D", 0, 1, ("cache.y",)),
        (UpstreamFile("client-go", "d.go"), "A", 1, 0, ("cache.y",)),
    ]
    assert "-two\n+2\n+3" in changes[0].difference


@pytest.mark.parametrize("version", ["v1.36.3", "1.36", "latest"])
def test_a_version_that_is_none_is_refused_with_an_example(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert upstream_diff.main([version, "1.36.3"]) == 1
    assert capsys.readouterr().err == f"{version!r} is not a Kubernetes version; write it as in 1.36.3\n"


def test_without_go_the_message_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert upstream_diff.main(["1.35.0", "1.36.3"]) == 1
    assert "install Go" in capsys.readouterr().err


def test_the_modules_of_kubeloop_cite_their_sources() -> None:
    assert len(list(upstream_diff.statements(Path("src/kubeloop/workqueue")))) > 5
