"""Keys fall into slots, slots belong to members."""

from __future__ import annotations

import pytest

from kubeloop.controller.sharding import ShardConfig, by_namespace, by_object
from kubeloop.controller.sharding.membership import EVERY_SLOT, SLOTS, claim, slot_of
from kubeloop.meta import ConfigError, ObjectKey

THREE = frozenset(("a", "b", "c"))


def test_each_slot_has_one_member() -> None:
    claims = [claim(THREE, name) for name in THREE]
    assert claims[0] | claims[1] | claims[2] == EVERY_SLOT
    assert sum(one.bit_count() for one in claims) == SLOTS


def test_slots_are_spread_evenly() -> None:
    ten = frozenset(f"replica-{number}" for number in range(10))
    assert all(abs(claim(ten, name).bit_count() - SLOTS / 10) < 0.3 * SLOTS / 10 for name in ten)


def test_when_a_member_comes_slots_move_to_it_only() -> None:
    four = THREE | {"d"}
    for name in THREE:
        assert claim(four, name) & ~claim(THREE, name) == 0


def test_a_name_outside_the_members_has_no_slots() -> None:
    assert claim(THREE, "d") == 0
    assert claim(frozenset(), "a") == 0


def test_slots_are_the_same_in_all_versions() -> None:
    """A replica of another version must compute the same: raise PROTOCOL if this has to change."""
    assert [slot_of(text) for text in ("", "foo//default/a", "é")] == [692, 344, 303]
    assert claim(frozenset(("a", "b")), "a").bit_count() == 505
    assert hash_of(claim(THREE, "c")) == 179


def hash_of(slots: int) -> int:
    return slot_of(f"{slots:x}")


def test_keys_belong_together_as_configured() -> None:
    one, two = ObjectKey("c", "shop", "a"), ObjectKey("c", "shop", "b")
    assert by_object(one) != by_object(two)
    assert by_namespace(one) == by_namespace(two)


@pytest.mark.parametrize("group", ["", "Upper", "a" * 41, "-a", "a_b"])
def test_a_group_that_cannot_be_a_label_is_refused(group: str) -> None:
    with pytest.raises(ConfigError, match="group must be"):
        ShardConfig(group, "default")


def test_times_are_checked_as_those_of_an_election() -> None:
    with pytest.raises(ConfigError, match="must be longer than renew_deadline"):
        ShardConfig("group", "default", lease_duration=5)


def test_a_lease_has_a_valid_name_whatever_the_identity() -> None:
    lease = ShardConfig("group", "default", "Ünder_score/" * 40).lease()
    assert lease.name.startswith("group-")
    assert lease.labels == {"shards.kubeloop.dev/group": "group"}
