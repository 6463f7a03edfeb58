"""Writes files that hold secrets: readable by their owner only, and never half-written; loads authorities and keys from them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from kubeloop.meta.errors import ConfigError
from kubeloop.pki.authority import CertificateAuthority
from kubeloop.pki.token_keys import SigningKey


def write_secret(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` with mode 0600, atomically: readers see the old file or the whole new one.

    Raises:
        OSError: the folder does not exist or is not writable; no partial file stays.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp creates with mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load_or_create_authority(folder: Path, common_name: str) -> CertificateAuthority:
    """Load the authority in ``folder`` (``ca.crt`` and ``ca.key``); create and write it, mode 0600, if it is missing.

    Raises:
        ConfigError: the files hold no authority; the text names them.
        OSError: the files cannot be read or written.
    """
    certificate, key = folder / "ca.crt", folder / "ca.key"
    if certificate.exists() and key.exists():
        try:
            return CertificateAuthority.load(certificate.read_bytes(), key.read_bytes())
        except ValueError as error:
            raise ConfigError(f"{certificate} and {key} are not a certificate authority: {error}; remove both to create new ones") from None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = CertificateAuthority.create(common_name)
    write_secret(key, made.key)
    write_secret(certificate, made.certificate)
    return made


def load_or_create_signing_key(folder: Path) -> SigningKey:
    """Load the key in ``folder`` (``sa.key``) that signs service account tokens; create and write it, mode 0600, if it is missing.

    Raises:
        ConfigError: the file holds no key; the text names it.
        OSError: the file cannot be read or written.
    """
    file = folder / "sa.key"
    if file.exists():
        try:
            return SigningKey.load(file.read_bytes())
        except (ValueError, TypeError) as error:  # TypeError: the key needs a password
            raise ConfigError(f"{file} is not a key that signs tokens: {error}; remove it to create a new one") from None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = SigningKey.create()
    write_secret(file, made.pem)
    return made
