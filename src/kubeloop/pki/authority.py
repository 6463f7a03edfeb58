"""A minimal certificate authority for loopback TLS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A certificate and its private key as PEM. ``repr`` does not show the key.

    >>> issued = CertificateAuthority.create("test").issue("jane", client=True)
    >>> _ = Path("jane.crt").write_bytes(issued.certificate)
    """

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"IssuedCertificate({len(self.certificate)} bytes, key hidden)"


class CertificateAuthority:
    """Issues certificates that clients accept if they trust ``certificate``. New keys are EC P-256.

    Validity is counted in days from ``now``, an aware datetime; None is the machine's time.

    >>> authority = CertificateAuthority.create("test")
    >>> server = authority.issue("localhost", dns_names=["localhost"], server=True)
    >>> server.certificate.startswith(b"-----BEGIN CERTIFICATE-----")
    True

    The validity starts five minutes in the past, so that clocks a little behind accept it.
    """

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, common_name: str, *, days: float = 365, now: datetime | None = None) -> CertificateAuthority:
        """Return a new, self-signed authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        builder = (
            _builder(name, name, key.public_key(), days, now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(sign_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> CertificateAuthority:
        """Load an authority from PEM.

        Raises:
            ValueError: the text is not PEM, or the key is neither an EC nor an RSA key.
        """
        loaded = serialization.load_pem_private_key(key, None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            raise ValueError(f"the authority's key is {type(loaded).__name__}; an EC or RSA key is expected")  # noqa: TRY004 - a bad file
        return cls(x509.load_pem_x509_certificate(certificate), loaded)

    @property
    def certificate(self) -> bytes:
        """The authority's certificate as PEM. Clients that have it trust the issued certificates."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key(self) -> bytes:
        """The key as PEM, unencrypted: store it only in files of mode 0600."""
        return _pem(self._key)

    @property
    def expires(self) -> datetime:
        """The end of the authority's validity; no issued certificate is valid longer."""
        return self._certificate.not_valid_after_utc

    def certify(self, builder: x509.CertificateBuilder) -> bytes:
        """Set the issuer on ``builder``, sign it, and return the certificate as PEM. The caller sets everything else."""
        builder = builder.issuer_name(self._certificate.subject)
        key_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = builder.add_extension(key_id, critical=False).sign(self._key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self,
        common_name: str,
        organizations: Sequence[str] = (),
        *,
        dns_names: Sequence[str] = (),
        ip_addresses: Sequence[str] = (),
        client: bool = False,
        server: bool = False,
        days: float = 365,
        now: datetime | None = None,
    ) -> IssuedCertificate:
        """Issue a certificate for a client, a server, or both.

        Args:
            common_name: The user name for Kubernetes, or the name of a server.
            organizations: The groups of the user.
            dns_names: Host names that the server is reached by.
            ip_addresses: IP addresses that the server is reached by.
            client: Allow client authentication.
            server: Allow server authentication.
            days: Validity from ``now``; never beyond the authority's own.
            now: The start (aware). None: the machine's time.

        Returns:
            The certificate and its new private key.

        Raises:
            ValueError: ``client`` and ``server`` are both False, or an address is malformed.
        """
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH] * client + [ExtendedKeyUsageOID.SERVER_AUTH] * server
        if not usages:
            raise ValueError("a certificate must be for a client, a server, or both")
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in organizations]
            + [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        )
        builder = (
            _builder(subject, self._certificate.subject, key.public_key(), days, now)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(sign_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        names: list[x509.GeneralName] = [x509.DNSName(name) for name in dns_names]
        names += [x509.IPAddress(ip_address(address)) for address in ip_addresses]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return IssuedCertificate(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: float, now: datetime | None
) -> x509.CertificateBuilder:
    now = now or datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=days))
    )


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
