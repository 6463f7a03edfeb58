"""The rules of an election as tables: settings that are refused, records, and what may be written when."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeloop.api.coordination.v1 import Lease, LeaseSpec
from kubeloop.codec import decode, encode
from kubeloop.controller.election import LeaseConfig, LeaseRecord
from kubeloop.controller.election.lease import (
    LeaseHeld,
    LeaseObservation,
    LeaseRefused,
    LeaseWrite,
    after_coordinated_read,
    after_read,
    released,
    renewed,
)
from kubeloop.meta import ConfigError

WALL = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
OTHERS = LeaseRecord("other", 15, WALL, WALL, 3)
MINE = LeaseRecord("me", 15, WALL - timedelta(hours=1), WALL - timedelta(seconds=2), 3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"lease_duration": 10.0}, "must be longer than renew_deadline", id="a lease as long as the renew deadline"),
        pytest.param({"lease_duration": 9.0}, "must be longer than renew_deadline", id="a lease shorter than the renew deadline"),
        pytest.param({"renew_deadline": 2.4}, "1.2 times retry_period", id="a renew deadline of 1.2 retry periods"),
        pytest.param({"retry_period": 9.0}, "1.2 times retry_period", id="a retry period nearly as long as the renew deadline"),
        pytest.param({"lease_duration": 0.0}, "lease_duration", id="no lease duration"),
        pytest.param({"lease_duration": 15.5}, "whole seconds", id="a part of a second, which a Lease cannot say"),
        pytest.param({"lease_duration": float("inf")}, "lease_duration must be a number of seconds", id="a lease that never ends"),
        pytest.param({"renew_deadline": float("nan")}, "renew_deadline must be a number of seconds", id="a time that is no number"),
        pytest.param({"renew_deadline": 0.0}, "above 0", id="no renew deadline"),
        pytest.param({"retry_period": 0.0}, "above 0", id="no retry period"),
        pytest.param({"identity": ""}, "identity", id="an empty identity"),
        pytest.param({"name": "My Lease"}, "name must be", id="a name that no Lease can have"),
        pytest.param({"name": "a" * 254}, "name must be", id="a name that is too long for a Lease"),
        pytest.param({"namespace": "a/b"}, "namespace must be", id="a namespace that cannot be"),
        pytest.param({"namespace": "a" * 64}, "namespace must be", id="a namespace that is too long"),
    ],
)
def test_a_configuration_that_cannot_be_safe_is_refused(changes: dict[str, Any], words: str) -> None:
    """Behaviour I120."""
    lease = {"name": "lock", "namespace": "ops", **changes}
    with pytest.raises(ConfigError, match=words) as error:
        LeaseConfig(**lease)
    assert str(error.value).startswith(f'leader election "{lease["namespace"]}/{lease["name"]}": ')


def test_the_longest_names_of_kubernetes_are_accepted() -> None:
    assert LeaseConfig("a" * 253, "b" * 63, lease_duration=2, renew_deadline=1.5, retry_period=0.1).name == "a" * 253


def test_defaults_are_client_gos_and_each_identity_is_another() -> None:
    one, two = LeaseConfig("lock", "ops"), LeaseConfig("lock", "ops")
    assert (one.lease_duration, one.renew_deadline, one.retry_period, one.release_on_stop) == (15, 10, 2, True)
    assert one.identity != two.identity
    assert one.request_timeout < one.renew_deadline


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(LeaseRecord(), id="an empty one"),
        pytest.param(OTHERS, id="a held one"),
        pytest.param(replace(OTHERS, preferred="me", strategy="OldestEmulationVersion"), id="a coordinated one"),
        pytest.param(LeaseRecord("", 1, WALL, WALL, 8), id="a released one"),
    ],
)
def test_a_record_is_the_same_after_the_wire(record: LeaseRecord) -> None:
    """Behaviour I129."""
    assert LeaseRecord.from_spec(decode(Lease, encode(Lease(spec=record.spec()))).spec) == record


def test_times_have_six_digits_on_the_wire_also_whole_seconds() -> None:
    """Behaviour I129: the server refuses a MicroTime with fewer."""
    sent = encode(Lease(spec=LeaseRecord("a", 15, WALL, WALL.replace(microsecond=0)).spec()))
    assert b'"acquireTime":"2026-01-01T12:00:00.123456Z"' in sent
    assert b'"renewTime":"2026-01-01T12:00:00.000000Z"' in sent


def test_a_lease_without_a_spec_is_an_empty_record() -> None:
    """Behaviour I129."""
    assert LeaseRecord.from_spec(LeaseSpec()) == LeaseRecord()


def test_a_release_has_no_holder_lasts_a_second_and_keeps_transitions() -> None:
    """Behaviour I125."""
    assert released(MINE, WALL) == LeaseRecord("", 1, WALL, WALL, 3)


DAYS = timedelta(days=9)
TAKEN = LeaseWrite(LeaseRecord("me", 20, WALL, WALL, 4), renewal=False)


@pytest.mark.parametrize(
    ("record", "age", "expected"),
    [
        pytest.param(OTHERS, 14.9, LeaseHeld("other"), id="held by another and seen to change 14.9 s ago: not taken (I121)"),
        pytest.param(OTHERS, 15.0, TAKEN, id="held by another and not seen to change for its 15 s: taken, transitions raised (I122)"),
        pytest.param(replace(OTHERS, duration=1), 1.0, TAKEN, id="the record's own duration counts, not that of this candidate (I123)"),
        pytest.param(replace(OTHERS, renewed=WALL - DAYS), 0.0, LeaseHeld("other"), id="renewed days ago, it says: not taken (I123)"),
        pytest.param(replace(OTHERS, renewed=WALL + DAYS), 15.0, TAKEN, id="renewed in the future, it says: taken (I123)"),
        pytest.param(replace(OTHERS, renewed=None), 0.0, LeaseHeld("other"), id="held without a time: not taken before it expires (I121)"),
        pytest.param(replace(OTHERS, holder=""), 0.0, TAKEN, id="a lease without a holder is taken at once (I121)"),
        pytest.param(MINE, 0.0, LeaseWrite(renewed(MINE, 20, WALL), renewal=True), id="held by itself: renewed (I121)"),
        pytest.param(MINE, 99.0, LeaseWrite(renewed(MINE, 20, WALL), renewal=True), id="held by itself and expired: renewed (I121)"),
    ],
)
def test_the_read_lease_decides(record: LeaseRecord, age: float, expected: LeaseWrite | LeaseHeld) -> None:
    assert after_read(LeaseObservation(record, 100.0), "me", 20, 100.0 + age, WALL) == expected


def test_a_renewal_keeps_the_time_of_acquisition_and_transitions() -> None:
    """Behaviour I122."""
    again = renewed(MINE, 15, WALL)
    assert (again.acquired, again.transitions, again.renewed) == (MINE.acquired, MINE.transitions, WALL)


def test_reading_a_record_again_does_not_make_it_younger() -> None:
    """Behaviour I123."""
    seen = LeaseObservation(OTHERS, 100.0)
    assert seen.next(replace(OTHERS), 110.0) is seen
    assert seen.next(replace(OTHERS, renewed=WALL - timedelta(days=1)), 110.0).at == 110.0


@pytest.mark.parametrize(
    ("record", "age", "expected"),
    [
        pytest.param(MINE, 1.0, LeaseWrite(renewed(MINE, 15, WALL), renewal=True), id="what the server gave to this candidate is renewed"),
        pytest.param(
            replace(MINE, strategy="OldestEmulationVersion"),
            1.0,
            LeaseWrite(renewed(replace(MINE, strategy="OldestEmulationVersion"), 15, WALL), renewal=True),
            id="a renewal keeps the strategy",
        ),
        pytest.param(
            replace(MINE, preferred="other"),
            1.0,
            LeaseRefused('the server asks to hand over to "other"'),
            id="a preferred holder ends the term",
        ),
        pytest.param(MINE, 15.0, LeaseRefused("the lease has expired; the server chooses again"), id="an expired lease is not renewed"),
        pytest.param(OTHERS, 99.0, LeaseHeld("other"), id="an expired lease of another is not taken: the server chooses"),
        pytest.param(LeaseRecord(), 0.0, LeaseRefused("the server has not chosen a holder yet"), id="an empty lease is not taken"),
    ],
)
def test_in_a_coordinated_election_the_server_chooses(
    record: LeaseRecord, age: float, expected: LeaseWrite | LeaseHeld | LeaseRefused
) -> None:
    """Behaviour I130."""
    assert after_coordinated_read(LeaseObservation(record, 100.0), "me", 15, 100.0 + age, WALL) == expected
