"""Lists and the watches that continue them, under rules that change."""

from __future__ import annotations

import pytest

from kubeloop.meta.errors import ApiError
from kubeloop.proxy import continuity
from kubeloop.proxy.continuity import Continuity, ListScope

ANN = ListScope("ann", "kubectl", "127.0.0.1", "", "pods", "shop", "", "")
KEYS = {("shop", "a"), ("shop", "b")}


async def never() -> int:
    raise AssertionError("the newest version is not needed")


def newest(version: int):  # type: ignore[no-untyped-def]
    async def get() -> int:
        return version

    return get


async def expired(known: Continuity, version: str, at: int, scope: ListScope = ANN) -> bool:
    try:
        await known.check(scope, version, newest(at))
    except ApiError as error:
        assert (error.status.code, error.status.reason) == (410, "Expired")  # noqa: PT017 - other errors are failures
        return True
    return False


def test_the_objects_of_a_served_list_are_known_at_its_version_only() -> None:
    known = Continuity()
    known.record(ANN, "7", 0, set(KEYS))
    assert known.visible(ANN, "7") == KEYS
    assert known.visible(ANN, "8") is None


@pytest.mark.parametrize("field", ListScope._fields)
def test_another_client_or_other_objects_are_not_known(field: str) -> None:
    known = Continuity()
    known.record(ANN, "7", 0, set(KEYS))
    assert known.visible(ANN._replace(**{field: "other"}), "7") is None


def test_a_page_has_no_known_objects() -> None:
    known = Continuity()
    known.record(ANN, "7", 0, None)
    assert known.visible(ANN, "7") is None


def test_the_objects_that_a_watch_starts_with_are_its_own() -> None:
    known = Continuity()
    known.record(ANN, "7", 0, set(KEYS))
    first = known.visible(ANN, "7")
    assert first is not None
    first.clear()
    assert known.visible(ANN, "7") == KEYS


def test_lists_under_older_rules_are_not_known() -> None:
    known = Continuity()
    known.record(ANN, "7", 0, set(KEYS))
    known.advance()
    assert known.visible(ANN, "7") is None


async def test_under_the_rules_of_the_start_every_watch_continues() -> None:
    await Continuity().check(ANN, "7", never)


async def test_after_a_reload_a_watch_from_an_older_list_expires() -> None:
    known = Continuity()
    known.record(ANN, "7", 0, set(KEYS))
    known.advance()
    assert await expired(known, "7", at=10)
    assert await expired(known, "10", at=10)


async def test_after_a_reload_a_watch_from_a_list_under_the_present_rules_continues() -> None:
    known = Continuity()
    known.advance()
    known.record(ANN, "7", 1, None)
    assert not await expired(known, "7", at=10)
    known.advance()
    assert await expired(known, "7", at=10)


async def test_a_list_that_began_before_the_reload_does_not_count() -> None:
    known = Continuity()
    known.advance()
    known.record(ANN, "7", 0, set(KEYS))
    assert await expired(known, "7", at=10)
    assert known.visible(ANN, "7") is None


async def test_a_version_that_only_a_watch_under_the_present_rules_can_have_continues() -> None:
    known = Continuity()
    known.advance()
    assert await expired(known, "5", at=10)  # the newest version at the reload is 10
    assert not await expired(known, "11", at=99)


@pytest.mark.parametrize("version", ["", "-1", "x", "1.5", "١"])
async def test_a_version_that_is_no_number_expires(version: str) -> None:
    known = Continuity()
    known.advance()
    assert await expired(known, version, at=10)


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continuity, "_LISTS", 3)
    monkeypatch.setattr(continuity, "_KEYS", 5)
    known = Continuity()
    for version in range(10):
        known.record(ANN, str(version), 0, {("shop", "a")})
    assert [version for version in range(10) if known.visible(ANN, str(version))] == [7, 8, 9]
    known.record(ANN, "large", 0, {("shop", str(name)) for name in range(6)})
    assert known.visible(ANN, "large") is None
    known.record(ANN, "four", 0, {("shop", str(name)) for name in range(4)})
    known.record(ANN, "three", 0, {("shop", str(name)) for name in range(3)})
    assert known.visible(ANN, "four") is None
    assert known.visible(ANN, "three") is not None
