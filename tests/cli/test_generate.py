from pathlib import Path

from click.testing import CliRunner

from kubeloop.cli.generate import generate

SAMPLE = Path(__file__).parent.parent / "codegen" / "widgets.json"


def test_models_are_written_for_the_kinds_of_a_document(tmp_path: Path) -> None:
    result = CliRunner().invoke(generate, ["models", "--openapi", str(SAMPLE), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "class Widget(Resource):" in (tmp_path / "out" / "example" / "v1.py").read_text()


def test_a_bad_document_ends_with_a_message_and_writes_nothing(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    result = CliRunner().invoke(generate, ["models", "--openapi", str(bad), "--out", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert "bad.json: no CustomResourceDefinition and no OpenAPI document in it" in result.output
    assert not (tmp_path / "out").exists()


def test_a_missing_input_is_named_before_anything_is_written(tmp_path: Path) -> None:
    arguments = [
        "schema",
        "--openapi-v2",
        str(SAMPLE),
        "--openapi-v3",
        str(SAMPLE),
        "--facts",
        str(tmp_path),
        "--out",
        str(tmp_path / "out"),
    ]
    result = CliRunner().invoke(generate, arguments)
    assert result.exit_code == 1
    assert "discovery-api.json" in result.output
    assert list((tmp_path / "out").iterdir()) == []
