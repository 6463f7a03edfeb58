"""Descriptions: our own short ones, those of OpenAPI documents, and the file that keeps them."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Any

import pytest

from kubeloop.meta import ConfigError
from kubeloop.schema import builtin
from kubeloop.schema.common_descriptions import common_descriptions
from kubeloop.schema.descriptions import HINT, Descriptions, cache_file, load, save, texts_of

POD = "io.k8s.api.core.v1.Pod"
KIND = {"x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Pod"}]}


def test_the_common_descriptions_are_of_fields_that_exist() -> None:
    for definition, texts in common_descriptions().items():
        assert set(texts) - {""} <= set(builtin().definition(definition).properties), definition


def test_more_than_a_hundred_fields_have_a_short_description() -> None:
    texts = [text for one in common_descriptions().values() for text in one.values()]
    assert len(texts) > 150
    assert all(re.fullmatch(r"[A-Z$].{5,120}\.", text) for text in texts), [text for text in texts if not text.endswith(".")]


def test_custom_resources_have_our_texts_of_metadata_or_the_imported_texts_of_a_config_map() -> None:
    imported = {"io.k8s.api.core.v1.ConfigMap": {"kind": "Imported."}}
    ours = Descriptions().of_every_kind()
    assert sorted(ours) == ["apiVersion", "kind", "metadata"]
    assert Descriptions(imported).of_every_kind() == {**ours, "kind": "Imported."}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(
            {"swagger": "2.0", "definitions": {POD: {"description": "A pod.", "properties": {"spec": {"description": "Wanted."}}}}},
            {POD: {"": "A pod.", "spec": "Wanted."}},
            id="version 2",
        ),
        pytest.param(
            {"openapi": "3.0.0", "components": {"schemas": {POD: {"properties": {"spec": {"description": "Wanted.", "allOf": []}}}}}},
            {POD: {"spec": "Wanted."}},
            id="version 3",
        ),
        pytest.param(
            {"swagger": "2.0", "definitions": {POD: {"description": " A\x1b[31m pod.\n"}, "Other": {"type": "string"}}},
            {POD: {"": "A[31m pod."}},
            id="controls of a terminal are left out",
        ),
    ],
)
def test_documents_of_both_versions_are_read(document: Any, expected: dict[str, dict[str, str]]) -> None:
    assert texts_of(document, "api.json") == expected


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        pytest.param([], "api.json: expected an OpenAPI document, a JSON object, found list", id="a list"),
        pytest.param({"kind": "Status"}, "api.json: not an OpenAPI document", id="an answer that is another object"),
        pytest.param({"openapi": "3.0.0", "components": []}, "api.json: not an OpenAPI document", id="components that are no object"),
        pytest.param({"swagger": "2.0", "definitions": {POD: []}}, f"api.json: {POD}: expected a schema", id="a schema that is none"),
        pytest.param(
            {"swagger": "2.0", "definitions": {POD: {"properties": {"a": {"description": 1}}}}},
            f"api.json: {POD}.a: expected a text as description, found int",
            id="a description that is no text",
        ),
        pytest.param({"swagger": "2.0", "definitions": {POD: {}}}, "api.json: no definition has a description", id="no description at all"),
    ],
)
def test_a_broken_document_is_refused_by_name(document: Any, fault: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(fault)):
        texts_of(document, "api.json")


def test_imported_texts_replace_our_own_and_the_hint() -> None:
    tree: dict[str, Any] = {**KIND, "properties": {"kind": {"type": "string"}, "spec": {"allOf": [{"$ref": "x"}]}, "status": {"$ref": "x"}}}
    own = Descriptions().describe(POD, {**tree, "properties": {name: dict(one) for name, one in tree["properties"].items()}})
    assert own["description"].endswith(HINT)
    assert own["properties"]["spec"]["description"] == "The desired state."
    assert own["properties"]["status"] == {"$ref": "x"}
    described = Descriptions({POD: {"": "A pod.", "spec": "Wanted."}}).describe(POD, tree)
    assert described["description"] == "A pod."
    assert described["properties"]["spec"]["description"] == "Wanted."


def test_a_definition_without_a_text_names_the_command_to_import_one() -> None:
    assert "kubeloop descriptions import" in Descriptions().describe("io.k8s.api.core.v1.Taint", {})["description"]


def test_texts_are_saved_for_the_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_file() == tmp_path / "kubeloop" / "descriptions.json"
    assert load(cache_file()) == {}
    save({POD: {"": "A pod."}}, cache_file())
    assert load(cache_file()) == {POD: {"": "A pod."}}
    assert stat.S_IMODE(cache_file().stat().st_mode) == 0o600
    assert stat.S_IMODE(cache_file().parent.stat().st_mode) == 0o700
    assert [file.name for file in cache_file().parent.iterdir()] == ["descriptions.json"]


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"definitions": {"a": 1}}', b"\xff"])
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "descriptions.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="delete it and import again"):
        load(path)


def test_a_cache_that_cannot_be_written_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "kubeloop").write_text("")
    with pytest.raises(ConfigError, match="set XDG_CACHE_HOME"):
        save({}, tmp_path / "kubeloop" / "descriptions.json")


def test_a_relative_cache_home_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_file() == Path.home() / ".cache" / "kubeloop" / "descriptions.json"
