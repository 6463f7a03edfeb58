"""One set of models reads what Kubernetes 1.33 to 1.37 write: fields of older versions are absent, fields of newer ones are kept.

``versions.json.xz`` holds, by version and kind, an object with every field set, as the Go module k8s.io/api keeps them for its own
compatibility tests; null where it is the same as in the version before.
"""

from __future__ import annotations

import copy
import json
import lzma
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kubeloop.api import find
from kubeloop.codec import decode, encode
from kubeloop.codec.changes import encode_struct
from kubeloop.meta import GroupVersionKind, Resource
from kubeloop.types import JSONObject

VERSIONS = ("1.33", "1.34", "1.35", "1.36", "1.37")


@cache
def documents() -> dict[str, dict[GroupVersionKind, JSONObject]]:
    stored: dict[str, dict[str, JSONObject | None]] = json.loads(lzma.decompress(Path(__file__).with_name("versions.json.xz").read_bytes()))
    latest: dict[str, JSONObject] = {}
    found: dict[str, dict[GroupVersionKind, JSONObject]] = {}
    for version, kinds in stored.items():
        latest |= {key: document for key, document in kinds.items() if document is not None}
        found[version] = {GroupVersionKind(*key.split("/")): latest[key] for key in kinds}
    return found


def objects(version: str) -> Iterator[tuple[bytes, Resource]]:
    for gvk, document in documents()[version].items():
        cls = find(gvk)
        assert cls is not None
        body = json.dumps(document, separators=(",", ":")).encode()
        yield body, decode(cls, body)


def unknown(document: Any, known: Any, path: str = "") -> Iterator[str]:
    """Paths of values that are not empty and that the models do not say again."""
    if isinstance(document, dict):
        for name, value in document.items():
            if name in known:
                yield from unknown(value, known[name], f"{path}.{name}")
            elif value not in ({}, [], "", None, 0, False):
                yield f"{path}.{name}"
    elif isinstance(document, list):
        assert len(document) == len(known)
        for one, other in zip(document, known, strict=True):
            yield from unknown(one, other, f"{path}[]")
    else:
        assert document == known, path


def unknown_fields(version: str) -> set[str]:
    found: set[str] = set()
    for body, obj in objects(version):
        document = json.loads(body)
        said = json.loads(encode_struct(obj))
        found |= {f"{obj.kind}{path}" for path in unknown(document, {**said, "apiVersion": obj.api_version, "kind": obj.kind})}
    return found


def test_there_are_documents_of_five_versions() -> None:
    assert tuple(documents()) == VERSIONS
    assert min(len(kinds) for kinds in documents().values()) > 80


@pytest.mark.parametrize("version", VERSIONS)
def test_every_kind_is_read_and_written_back_byte_for_byte(version: str) -> None:
    for body, obj in objects(version):
        assert encode(obj) == body


@pytest.mark.parametrize("version", VERSIONS)
def test_a_change_changes_nothing_else_whatever_the_version(version: str) -> None:
    for body, obj in objects(version):
        expected = copy.deepcopy(json.loads(body))
        expected["metadata"]["labels"] = {"changed": "here"}
        obj.metadata.labels = {"changed": "here"}
        assert json.loads(encode(obj)) == expected


def test_the_models_own_version_is_known_whole() -> None:
    assert unknown_fields("1.36") == set()


def test_older_versions_hold_nothing_unknown_but_what_alpha_apis_have_dropped() -> None:
    dropped = {"deviceClassName", "selectors", "workloadRef"}
    for version in ("1.33", "1.34", "1.35"):
        assert {path.rpartition(".")[2] for path in unknown_fields(version)} <= dropped


def test_fields_of_a_newer_version_are_unknown_here_and_kept_all_the_same() -> None:
    found = unknown_fields("1.37")
    assert len(found) > 100
    assert "Pod.spec.volumes[].emptyDir.mode" in found
