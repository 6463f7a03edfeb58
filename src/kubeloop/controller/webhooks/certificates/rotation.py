"""Rotation of certificates: decides when to renew each. Pure: time is an argument.

A new authority is in the bundle for some time (``overlap``) before a certificate that it signed is served, and the previous authority stays
in the bundle until it has expired. So servers and clients with a slightly older state trust each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from kubeloop.controller.webhooks.tls import ServingCertificate
from kubeloop.pki import CertificateAuthority

#: A certificate is renewed when this fraction (one third) of its lifetime is left; cert-manager's default.
_LAST_PART: Final = 3
_AUTHORITY: Final = "kubeloop webhooks"


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Lifetimes of certificates. Each certificate is renewed when a third of its life is left.

    Args:
        serving: Lifetime of a serving certificate.
        authority: Lifetime of a certificate authority.
        overlap: Time for which a new authority is only trusted before it signs; longer than API servers need to see a configuration.

    Raises:
        ValueError: ``authority`` is less than three times ``serving``, so that an authority might expire before a certificate that it
            signed; or ``overlap`` does not fit into the last third of a certificate's lifetime.

    Example:
        >>> Lifetimes(serving=timedelta(days=30), authority=timedelta(days=365)).overlap
        datetime.timedelta(seconds=3600)
    """

    serving: timedelta = timedelta(days=90)
    authority: timedelta = timedelta(days=730)
    overlap: timedelta = timedelta(hours=1)

    def __post_init__(self) -> None:
        if self.serving <= timedelta() or self.authority < self.serving * _LAST_PART:
            raise ValueError(
                f"an authority of {self.authority} cannot sign certificates of {self.serving}: it must live three times as long"
            )
        if not timedelta() <= self.overlap < self.serving / _LAST_PART:
            raise ValueError(f"an overlap of {self.overlap} must be shorter than a third of a certificate's life, {self.serving}")


@dataclass(frozen=True, slots=True)
class StoredCertificates:
    """The stored certificates and keys, as PEM. ``authorities``: newest first; ``authority_key``: the key of the newest authority."""

    authorities: tuple[bytes, ...]
    authority_key: bytes
    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"Kept({len(self.authorities)} authorities, keys hidden)"

    @property
    def bundle(self) -> bytes:
        return b"".join(self.authorities)

    @property
    def serving(self) -> ServingCertificate:
        return ServingCertificate(self.certificate, self.key, self.bundle)

    @property
    def begins(self) -> datetime:
        """Time at which the served certificate becomes valid."""
        return max(_read(one).not_valid_before_utc for one in (self.authorities[0], self.certificate))

    def check(self) -> None:
        """Check the certificates. Raises ValueError, TypeError or UnsupportedAlgorithm if one is invalid, or a key does not match."""
        if not self.authorities:
            raise ValueError("no authority")
        newest, *_ = [x509.load_pem_x509_certificate(one) for one in self.authorities]
        CertificateAuthority.load(self.authorities[0], self.authority_key)
        for certificate, key in ((newest, self.authority_key), (x509.load_pem_x509_certificate(self.certificate), self.key)):
            if serialization.load_pem_private_key(key, None).public_key() != certificate.public_key():
                raise ValueError("a key is not the one of its certificate")


def renewed(state: StoredCertificates | None, names: Sequence[str], lifetimes: Lifetimes, now: datetime) -> StoredCertificates:
    """Return the certificates to store from ``now`` on; ``state`` itself if no renewal is due.

    A certificate that is not valid yet is not replaced: this clock, or the clock of the replica that created it, may be wrong.

    Args:
        state: The stored certificates. None: no certificates are stored.
        names: DNS names and addresses of the server. Names of a certificate that is not due yet stay, so that replicas with different names
            agree.
        lifetimes: Lifetimes of new certificates.
        now: Time in UTC, with its zone.
    """
    if state is None:
        authority = CertificateAuthority.create(_AUTHORITY, days=_days(lifetimes.authority), now=now)
        return _issued(StoredCertificates((authority.certificate,), authority.key, b"", b""), names, lifetimes, now)
    alive = tuple(one for one in state.authorities if _read(one).not_valid_after_utc > now)
    if len(alive) != len(state.authorities):
        state = replace(state, authorities=alive)
    if not alive:
        return renewed(None, names, lifetimes, now)
    if _due(_read(alive[0])) <= now:
        authority = CertificateAuthority.create(_AUTHORITY, days=_days(lifetimes.authority), now=now)
        state = replace(state, authorities=(authority.certificate, *alive), authority_key=authority.key)
    return _issued(state, names, lifetimes, now) if _issue_at(state, names, lifetimes) <= now else state


def next_due(state: StoredCertificates, names: Sequence[str], lifetimes: Lifetimes) -> datetime:
    """Return the time of the next renewal."""
    ends = [_read(one).not_valid_after_utc for one in state.authorities]
    return min(*ends, _due(_read(state.authorities[0])), _issue_at(state, names, lifetimes))


def _issue_at(state: StoredCertificates, names: Sequence[str], lifetimes: Lifetimes) -> datetime:
    """Return the time at which the newest authority must sign a serving certificate."""
    newest, serving = _read(state.authorities[0]), _read(state.certificate)
    trusted = newest.not_valid_before_utc + _BACKDATED + lifetimes.overlap
    if _is_signed(serving, newest):
        return _due(serving) if set(names) <= _names(serving) else datetime.min.replace(tzinfo=serving.not_valid_after_utc.tzinfo)
    if not any(_is_signed(serving, _read(one)) for one in state.authorities[1:]):
        return datetime.min.replace(tzinfo=serving.not_valid_after_utc.tzinfo)  # no client trusts the served certificate
    return min(trusted, serving.not_valid_after_utc)


#: ``pki`` sets the start of a certificate back by this time.
_BACKDATED: Final = timedelta(minutes=5)


def _issued(state: StoredCertificates, names: Sequence[str], lifetimes: Lifetimes, now: datetime) -> StoredCertificates:
    authority = CertificateAuthority.load(state.authorities[0], state.authority_key)
    names = [*names, *(one for one in sorted(_also_wanted(state, now)) if one not in names)]
    addresses = [one for one in names if _is_address(one)]
    made = authority.issue(
        next(iter(names), "webhooks")[:64],
        dns_names=[one for one in names if one not in addresses],
        ip_addresses=addresses,
        server=True,
        days=_days(lifetimes.serving),
        now=now,
    )
    return replace(state, certificate=made.certificate, key=made.key)


def _also_wanted(state: StoredCertificates, now: datetime) -> set[str]:
    """Return the names of the present certificate if it is not due: another replica may have added names, which must stay."""
    if not state.certificate:
        return set()
    serving = _read(state.certificate)
    return _names(serving) if _is_signed(serving, _read(state.authorities[0])) and now < _due(serving) else set()


def _read(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def _due(certificate: x509.Certificate) -> datetime:
    begin, end = certificate.not_valid_before_utc + _BACKDATED, certificate.not_valid_after_utc
    return end - (end - begin) / _LAST_PART


def _is_signed(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _names(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}


def _is_address(name: str) -> bool:
    from ipaddress import ip_address

    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _days(lifetime: timedelta) -> float:
    return lifetime / timedelta(days=1)
