"""Which occurrences can be an event, and how long texts are cut."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.api.core.v1 import ConfigMap, Secret
from kubeloop.controller.events.occurrence import cut, event_name, occurrence_of
from kubeloop.meta import ObjectMeta
from kubeloop.meta.names import dns1123_subdomain

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OBJECT = ConfigMap(metadata=ObjectMeta(name="c", namespace="shop", uid="u"))


@pytest.mark.parametrize(
    ("obj", "kind", "reason", "message"),
    [
        pytest.param(OBJECT, "Error", "R", '"Normal" or "Warning", not \'Error\'', id="a type that no server takes"),
        pytest.param(OBJECT, "Normal", "", "needs a reason", id="an empty reason"),
        pytest.param(OBJECT, "Normal", "  ", "needs a reason", id="a blank reason"),
        pytest.param(ConfigMap(), "Normal", "R", "kind and name", id="an object without a name"),
    ],
)
def test_what_cannot_be_an_event_is_named(obj: ConfigMap, kind: str, reason: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        occurrence_of(obj, kind, reason, "m", NOW)


@given(st.text(st.characters(), max_size=600), st.integers(0, 300))
def test_a_text_is_cut_to_bytes_at_the_end_of_a_character(text: str, limit: int) -> None:
    short = cut(text, limit)
    assert len(short.encode()) <= limit
    whole = text.encode("utf-8", "replace").decode()
    assert whole.startswith(short)
    assert short == whole or len(whole[: len(short) + 1].encode()) > limit


def test_words_are_cut_at_128_bytes_and_messages_at_1024() -> None:
    found = occurrence_of(OBJECT, "Normal", "R" * 200, "ä" * 600, NOW, action="A" * 200)
    assert [len(text.encode()) for text in (found.reason, found.action, found.message)] == [128, 128, 1024]


def test_an_error_may_be_the_message() -> None:
    assert occurrence_of(OBJECT, "Warning", "Failed", KeyError("x"), NOW).message == "'x'"


def test_of_a_secret_only_the_reference_is_taken() -> None:
    secret = Secret(metadata=ObjectMeta(name="s", namespace="shop", uid="u"), data={"password": b"hunter2"})
    found = occurrence_of(secret, "Normal", "Rotated", "rotated", NOW, related=secret)
    assert "hunter2" not in repr(found)
    assert found.related is not None
    assert found.related.name == "s"


@pytest.mark.parametrize(
    ("subject", "keeps"),
    [
        pytest.param("web-0", True, id="a usual name stands in the name of the event"),
        pytest.param("w" * 253, False, id="a name that leaves no room does not"),
        pytest.param("system:node", False, id="a name that is valid for its kind only does not"),
        pytest.param("Ü", False, id="nor is a name that no server would accept"),
    ],
)
def test_the_name_of_an_event_is_always_valid_and_new(subject: str, keeps: bool) -> None:
    names = {event_name(subject) for _ in range(50)}
    assert len(names) == 50
    assert [fault for name in names for fault in dns1123_subdomain(name)] == []
    assert all(name.startswith(f"{subject}.") for name in names) is keeps
