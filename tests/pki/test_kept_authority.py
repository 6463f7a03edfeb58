"""An authority kept in files is the same one the next time, and says which files hold none."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from kubeloop.meta import ConfigError
from kubeloop.pki.files import load_or_create_authority


def test_an_authority_is_made_once_and_its_key_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "authority"
    first = load_or_create_authority(folder, "test")
    assert load_or_create_authority(folder, "test").certificate == first.certificate
    assert {one.name: stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()} == {"ca.crt": 0o600, "ca.key": 0o600}


def test_files_that_hold_no_authority_are_named(tmp_path: Path) -> None:
    for name in ("ca.crt", "ca.key"):
        (tmp_path / name).write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match=r"ca\.crt and .*ca\.key are not a certificate authority"):
        load_or_create_authority(tmp_path, "test")
