"""``kubeloop generate models``: what it writes, compares and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kubeloop.cli.generate import generate

CORPUS = Path(__file__).parent.parent / "codegen" / "corpus"
CERTS = str(CORPUS / "certificates.yaml")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(generate, ["models", *arguments])


def test_a_package_is_written_reported_and_compared(tmp_path: Path) -> None:
    out = str(tmp_path / "models")
    result = run("--crd", CERTS, "--out", out, "-v")
    assert result.exit_code == 0, result.output
    assert "certificates.yaml: 1 documents that describe kinds" in result.stderr
    assert "corpus-a.example.com/v1, Kind=Certificate: com.example.corpus-a.v1.Certificate" in result.stderr
    assert "3 modules, 3 written" in result.stdout
    assert run("--crd", CERTS, "--out", out).stdout.endswith("3 modules, 0 written\n")
    assert run("--crd", CERTS, "--out", out, "--check").stdout.endswith("up to date\n")


def test_a_check_shows_what_differs_and_writes_nothing(tmp_path: Path) -> None:
    run("--crd", CERTS, "--out", str(tmp_path / "models"))
    module = tmp_path / "models" / "corpus_a" / "v1.py"
    module.write_text(module.read_text().replace("max_length=64", "max_length=63"))
    before = module.read_text()
    result = run("--crd", CERTS, "--out", str(tmp_path / "models"), "--check")
    assert result.exit_code == 1
    assert "differs from the schemas; run again without --check" in result.output
    assert "+    common_name: Annotated[str, msgspec.Meta(max_length=64)] | None = None" in result.output
    assert module.read_text() == before


def test_a_module_that_is_missing_or_no_longer_made_is_a_difference(tmp_path: Path) -> None:
    run("--crd", CERTS, "--out", str(tmp_path / "models"))
    (tmp_path / "models" / "corpus_a" / "v1.py").rename(tmp_path / "models" / "corpus_a" / "v0.py")
    result = run("--crd", CERTS, "--out", str(tmp_path / "models"), "--check")
    assert result.exit_code == 1
    assert "v0.py" in result.output


def test_another_format_is_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    run("--crd", CERTS, "--out", str(tmp_path / "models"))
    plain = (tmp_path / "models" / "corpus_a" / "v1.py").read_text()
    monkeypatch.undo()
    assert run("--crd", CERTS, "--out", str(tmp_path / "models"), "--check").exit_code == 0
    run("--crd", CERTS, "--out", str(tmp_path / "models"))
    assert (tmp_path / "models" / "corpus_a" / "v1.py").read_text() != plain


def test_one_module_stands_beside_files_of_others(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("print()\n")
    arguments = ["--crd", CERTS, "--out", str(tmp_path / "certs.py")]
    assert run(*arguments).exit_code == 0
    assert run(*arguments, "--check").exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["certs.py", "mine.py"]
    (tmp_path / "certs.py").write_text("print()\n")
    assert "would be overwritten" in run(*arguments).output


def test_documentation_is_bounded_unless_all_of_it_is_wanted(tmp_path: Path) -> None:
    texts = {}
    for docs in ("none", "short", "full"):
        run("--crd", CERTS, "--out", str(tmp_path / f"{docs}.py"), "--docs", docs)
        texts[docs] = (tmp_path / f"{docs}.py").read_text()
    assert "Where it is kept." not in texts["none"]
    assert "Where it is kept." in texts["short"]
    assert "In the same namespace." not in texts["short"]
    assert "In the same namespace." in texts["full"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--builtins", "--group", "apps"],
            "--builtins writes Kubernetes' own kinds, all of them, as a package, from one --openapi or one cluster",
        ),
        (["--crd", str(CORPUS / "gateways.yaml")], "would be one class in one module; give --out a folder"),
        (["--crd", CERTS, "--group", "apps"], "no kind of group apps here; groups: corpus-a.example.com"),
        (["--context", "nowhere"], "nowhere"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "kubeconfig"
    empty.write_text("{apiVersion: v1, kind: Config}")
    monkeypatch.setenv("KUBECONFIG", str(empty))
    result = run(*arguments, "--out", str(tmp_path / "models.py"))
    assert result.exit_code == 1
    assert message in result.output
    assert not (tmp_path / "models.py").exists()


def test_a_schema_without_end_is_refused(tmp_path: Path) -> None:
    deep = '{"type":"array","items":' * 400 + '{"type":"string"}' + "}" * 400
    head = '{"swagger":"2.0","definitions":{"com.example.v1.Deep":{"type":"object","properties":{"a":'
    (tmp_path / "deep.json").write_text(f"{head}{deep}}}}}}}}}")
    result = run("--openapi", str(tmp_path / "deep.json"), "--out", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert "nested too deeply" in result.output
