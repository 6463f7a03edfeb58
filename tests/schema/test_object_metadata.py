"""Metadata of custom objects, as ObjectMeta has it."""

from __future__ import annotations

import pytest

from kubeloop.schema.object_metadata import conform_metadata


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("plain", id="a word"),
        pytest.param('"\\', id="quotes and backslashes"),
        pytest.param("\x07\x0b\x1f", id="controls that JSON writes otherwise than Go"),
        pytest.param("\U000e0001\u200b", id="what has no shape"),
    ],
)
def test_an_unknown_field_goes_and_is_named_as_it_was_sent(name: str) -> None:
    found = conform_metadata({"name": "a", name: 1})
    assert found.metadata["name"] == "a"
    assert name not in found.metadata
    assert found.unknown == [f"metadata.{name}"]
