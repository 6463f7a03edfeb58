"""When which certificate is renewed: years in a table, without a socket."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.controller.webhooks.certificates.rotation import Lifetimes, StoredCertificates, next_due, renewed
from kubeloop.pki import CertificateAuthority

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("hooks.ops.svc", "127.0.0.1")
DAY = timedelta(days=1)
TIMES = Lifetimes(serving=90 * DAY, authority=300 * DAY, overlap=2 * DAY)


def at(day: float) -> datetime:
    return BEGIN + day * DAY


def lived(*days: float) -> StoredCertificates:
    """The stored certificates after checks on these days."""
    kept = None
    for day in days:
        kept = renewed(kept, NAMES, TIMES, at(day))
    assert kept is not None
    return kept


def signer(kept: StoredCertificates) -> int:
    """Index of the authority that signed the served certificate; -1 is none."""
    served = x509.load_pem_x509_certificate(kept.certificate)
    for number, one in enumerate(kept.authorities):
        try:
            served.verify_directly_issued_by(x509.load_pem_x509_certificate(one))
        except Exception:  # noqa: BLE001 - not this one
            continue
        return number
    return -1


def test_at_first_an_authority_signs_at_once() -> None:
    kept = lived(0)
    kept.check()
    assert (len(kept.authorities), signer(kept)) == (1, 0)
    names = x509.load_pem_x509_certificate(kept.certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["hooks.ops.svc"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("days", "certificate_changes", "authorities", "signed_by"),
    [
        pytest.param((0, 59), False, 1, 0, id="in the first two thirds of its life nothing is due"),
        pytest.param((0, 61), True, 1, 0, id="in the last third a certificate is renewed by the same authority"),
        pytest.param((0, 91), True, 1, 0, id="an expired certificate is renewed"),
        pytest.param((0, 150, 201), False, 2, 1, id="a new authority stands beside the old one and signs nothing yet"),
        pytest.param((0, 150, 201, 202.9), False, 2, 1, id="within the overlap the old certificate is served"),
        pytest.param((0, 150, 201, 203.1), True, 2, 0, id="after the overlap the new authority signs, the old one is trusted on"),
        pytest.param((0, 150, 201, 204, 299), True, 2, 0, id="the old authority is trusted as long as it lives"),
        pytest.param((0, 150, 201, 204, 265, 301), False, 1, 0, id="an expired authority leaves the bundle"),
        pytest.param((0, 301), True, 1, 0, id="when everything has expired it starts again"),
    ],
)
def test_the_stored_certificates(days: tuple[float, ...], certificate_changes: bool, authorities: int, signed_by: int) -> None:
    before = lived(*days[:-1])
    after = renewed(before, NAMES, TIMES, at(days[-1]))
    assert (after.certificate != before.certificate) is certificate_changes
    assert (len(after.authorities), signer(after)) == (authorities, signed_by)


def test_nothing_due_is_the_very_same() -> None:
    kept = lived(0)
    assert renewed(kept, NAMES, TIMES, at(10)) is kept


def test_a_clock_that_jumps_back_renews_nothing() -> None:
    kept = lived(0)
    assert renewed(kept, NAMES, TIMES, at(-1000)) is kept
    assert at(-1000) < kept.begins <= at(0)


def test_a_certificate_that_expires_within_the_overlap_is_renewed_then() -> None:
    times = Lifetimes(serving=90 * DAY, authority=300 * DAY, overlap=29 * DAY)
    kept = renewed(None, NAMES, times, at(0))
    kept = renewed(kept, NAMES, times, at(120))  # valid until 210
    kept = renewed(kept, NAMES, times, at(201))  # by now a new authority, which is not to sign before 230
    assert signer(kept) == 1
    kept = renewed(kept, NAMES, times, at(211))
    assert signer(kept) == 0


def test_a_name_more_needs_another_certificate() -> None:
    kept = lived(0)
    more = renewed(kept, (*NAMES, "other"), TIMES, at(1))
    assert more.certificate != kept.certificate
    assert renewed(more, NAMES, TIMES, at(2)) is more  # fewer names do not


def test_a_certificate_that_no_authority_here_signed_is_renewed() -> None:
    kept = lived(0)
    foreign = CertificateAuthority.create("other", now=BEGIN).issue("x", server=True, dns_names=NAMES[:1], now=BEGIN)
    assert signer(renewed(replace(kept, certificate=foreign.certificate, key=foreign.key), NAMES, TIMES, at(1))) == 0


def test_a_key_of_another_certificate_is_found() -> None:
    with pytest.raises(ValueError, match="a key is not the one of its certificate"):
        replace(lived(0), key=lived(0).key).check()


def test_an_authority_whose_key_signs_nothing_here_is_found() -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    with pytest.raises(ValueError, match="an EC or RSA key is expected"):
        replace(lived(0), authority_key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())).check()


def test_names_of_others_stay_until_a_renewal() -> None:
    """Replicas whose names differ would else take each other's away in turn."""
    other = renewed(lived(0), ("other",), TIMES, at(1))
    assert renewed(other, NAMES, TIMES, at(2)) is other
    alone = renewed(other, ("other",), TIMES, at(62))
    assert renewed(alone, NAMES, TIMES, at(63)) is not alone


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"serving": 100 * DAY, "authority": 299 * DAY}, id="an authority that does not outlive what it signs"),
        pytest.param({"serving": 90 * DAY, "overlap": 30 * DAY}, id="an overlap as long as the last third of a certificate's life"),
        pytest.param({"serving": timedelta()}, id="no time at all"),
    ],
)
def test_lifetimes_that_cannot_work_are_refused(wrong: dict[str, timedelta]) -> None:
    with pytest.raises(ValueError, match=r"three times as long|shorter than a third"):
        Lifetimes(**wrong)


def test_keys_are_not_shown() -> None:
    assert "PRIVATE" not in repr(lived(0)) + repr(lived(0).serving)


@settings(max_examples=15)
@given(st.lists(st.floats(0.1, 29), min_size=5, max_size=40))
def test_a_server_that_checks_often_enough_never_serves_a_certificate_that_is_expired_or_not_long_trusted(steps: list[float]) -> None:
    day = 0.0
    kept = renewed(None, NAMES, TIMES, at(0))
    trusted_since = {kept.authorities[0]: -1000.0}
    for step in steps:
        day += step
        kept = renewed(kept, NAMES, TIMES, at(day))
        for one in kept.authorities:
            trusted_since.setdefault(one, day)
        served = x509.load_pem_x509_certificate(kept.certificate)
        assert served.not_valid_before_utc <= at(day) < served.not_valid_after_utc
        by = kept.authorities[signer(kept)]
        assert signer(kept) >= 0
        assert day - trusted_since[by] >= 2 - 1e-6
        assert x509.load_pem_x509_certificate(by).not_valid_after_utc > at(day)
        assert next_due(kept, NAMES, TIMES) > at(day)
