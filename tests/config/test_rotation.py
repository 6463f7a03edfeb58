"""Credentials that change while a client works, on a real TLS server: behaviours L158-L163, by their numbers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubeloop.config import ClusterConfig, load_config
from kubeloop.config.authenticator import TOKEN_FILE_PERIOD, TokenFile
from kubeloop.config.tls import CERTIFICATE_PERIOD, TlsSource
from kubeloop.meta import ApiError, ConfigError, UntrustedCertificate
from kubeloop.pki import CertificateAuthority
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport
from tests.config.documents import V1, document, script, write
from tests.config.recorder import Recorder, recorder
from tests.faults.server import authority

JANE = authority().issue("jane", client=True)
JOHN = authority().issue("john", client=True)


@pytest.fixture
async def server() -> AsyncIterator[Recorder]:
    async with recorder() as found:
        yield found


def config(folder: Path, server: Recorder, user: dict[str, Any]) -> ClusterConfig:
    (folder / "ca.crt").write_bytes(authority().certificate)
    return load_config(write(folder / "config", document({"server": server.url, "certificate-authority": "ca.crt"}, user)))


def write_pair(folder: Path, certificate: bytes, key: bytes) -> None:
    (folder / "tls.crt").write_bytes(certificate)
    (folder / "tls.key").write_bytes(key)


async def ask(transport: Transport, times: int = 1) -> None:
    for _ in range(times):
        await transport.request("GET", "/x")


async def test_a_token_file_is_read_at_most_each_minute_and_a_failed_reading_keeps_the_old_token_L158(
    tmp_path: Path, server: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    token, clock = tmp_path / "token", FakeClock()
    token.write_text("hunter1\n")
    async with Transport(config(tmp_path, server, {"tokenFile": "token"}), clock=clock) as transport:
        await ask(transport)
        token.write_text("hunter2")
        await ask(transport)
        await clock.advance(TOKEN_FILE_PERIOD)
        await ask(transport)
        token.unlink()
        await clock.advance(TOKEN_FILE_PERIOD)
        await ask(transport, 2)
        token.write_text("hunter3")
        await ask(transport)
    seen = [one.header("authorization") for one in server.asked]
    assert seen == [f"Bearer hunter{number}" for number in (1, 1, 2, 2, 2, 3)]
    assert caplog.text.count("keeping the previous token") == 1, "it is logged once, not for each request"
    assert "hunter" not in caplog.text


async def test_a_401_drops_a_token_that_is_older_than_the_request_L158(tmp_path: Path, server: Recorder) -> None:
    token, clock = tmp_path / "token", FakeClock()
    token.write_text("old")
    server.refuse.add("Bearer old")
    async with Transport(config(tmp_path, server, {"tokenFile": "token"}), clock=clock) as transport:
        with pytest.raises(ApiError):
            await ask(transport)
        token.write_text("new")
        await ask(transport)
    assert [one.header("authorization") for one in server.asked] == ["Bearer old", "Bearer new"]


def token_file(folder: Path, text: str, clock: FakeClock) -> tuple[Path, TokenFile]:
    path = folder / "token"
    path.write_text(text)
    return path, TokenFile(path, "", "kubeconfig", clock)


async def test_a_token_file_is_read_again_within_a_minute_and_not_before_50_seconds_have_passed_L158(tmp_path: Path) -> None:
    clock = FakeClock()
    path, file = token_file(tmp_path, "first", clock)
    assert file.token() == "first"
    path.write_text("second")
    await clock.advance(49.9)
    assert file.token() == "first"
    await clock.advance(0.1)
    assert file.token() == "second"
    path.unlink()
    await clock.advance(3600)
    assert file.token() == "second"


@pytest.mark.parametrize(
    ("token", "started", "then"),
    [
        pytest.param("first", 12, "second", id="the token in use, read before the request: it is dropped"),
        pytest.param("first", None, "second", id="the token in use, of a request of unknown age: it is dropped"),
        pytest.param("first", 9, "first", id="the token in use, read after the request started: it stays"),
        pytest.param("other", 12, "first", id="another token: the one in use stays"),
    ],
)
async def test_a_401_drops_the_token_in_use_only_if_it_is_older_than_the_request_L158(
    tmp_path: Path, token: str, started: float | None, then: str
) -> None:
    clock = FakeClock()
    zero = clock.now()
    path, file = token_file(tmp_path, "first", clock)
    await clock.advance(10)
    assert file.token() == "first"
    path.write_text("second")
    await clock.advance(5)
    file.refused(token, None if started is None else zero + started)
    assert file.token() == then


async def test_a_401_to_a_token_that_cannot_be_read_again_leaves_it_in_use_L158(tmp_path: Path) -> None:
    path, file = token_file(tmp_path, "first", FakeClock())
    assert file.token() == "first"
    path.unlink()
    file.refused("first", None)
    assert file.token() == "first"


async def test_an_explicit_authorization_header_is_never_overwritten_L159(tmp_path: Path, server: Recorder) -> None:
    script(tmp_path / "login", f"touch {tmp_path}/ran; exit 1")
    user = {"exec": {"command": "./login", "apiVersion": V1, "interactiveMode": "Never"}}
    for who in ({"token": "mine"}, {"username": "me", "password": "p"}):
        async with Transport(config(tmp_path, server, who)) as transport:
            await transport.request("GET", "/x", headers={"authorization": "Bearer explicit"})
    async with Transport(config(tmp_path, server, {"token": "t", **user})) as transport:
        await transport.request("GET", "/x", headers={"Authorization": "Bearer explicit"})
    assert {one.header("authorization") for one in server.asked} == {"Bearer explicit"}
    assert not (tmp_path / "ran").exists()


async def test_a_changed_authority_file_makes_new_connections_and_a_broken_one_keeps_the_old_L161(tmp_path: Path, server: Recorder) -> None:
    clock = FakeClock()
    async with Transport(config(tmp_path, server, {"token": "t"}), clock=clock) as transport:
        await ask(transport)
        for broken in (b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
            (tmp_path / "ca.crt").write_bytes(broken)
            await clock.advance(CERTIFICATE_PERIOD)
            await ask(transport)
        assert server.connections == 1
        (tmp_path / "ca.crt").write_bytes(CertificateAuthority.create("other").certificate)
        await clock.advance(CERTIFICATE_PERIOD)
        with pytest.raises(UntrustedCertificate):
            await ask(transport)
        (tmp_path / "ca.crt").write_bytes(authority().certificate)
        await clock.advance(CERTIFICATE_PERIOD)
        await ask(transport)


async def test_a_rotated_client_certificate_is_used_at_once_and_no_request_is_lost(tmp_path: Path, server: Recorder) -> None:
    clock = FakeClock()
    user = {"client-certificate": "tls.crt", "client-key": "tls.key"}
    write_pair(tmp_path, JANE.certificate, JANE.key)
    async with Transport(config(tmp_path, server, user), clock=clock) as transport:
        await asyncio.gather(*(ask(transport) for _ in range(4)))
        # The key comes a moment after the certificate: the pair in between is no pair.
        (tmp_path / "tls.crt").write_bytes(JOHN.certificate)
        await clock.advance(CERTIFICATE_PERIOD)
        await ask(transport)
        (tmp_path / "tls.key").write_bytes(JOHN.key)
        await clock.advance(CERTIFICATE_PERIOD)
        await asyncio.gather(*(ask(transport) for _ in range(4)))
    assert [one.certificate for one in server.asked] == ["jane"] * 5 + ["john"] * 4


async def test_certificates_rotate_under_load_without_a_failed_request(tmp_path: Path, server: Recorder) -> None:
    clock = FakeClock()
    write_pair(tmp_path, JANE.certificate, JANE.key)
    done = itertools.count()
    async with Transport(config(tmp_path, server, {"client-certificate": "tls.crt", "client-key": "tls.key"}), clock=clock) as transport:

        async def work() -> None:
            for _ in range(15):
                await ask(transport)
                next(done)

        async def rotate() -> None:
            for issued in (JOHN, JANE, JOHN):
                write_pair(tmp_path, issued.certificate, issued.key)
                await clock.advance(CERTIFICATE_PERIOD)
                await ask(transport)

        await asyncio.gather(*(work() for _ in range(4)), rotate())
    assert next(done) == 60
    assert server.asked[-1].certificate == "john"


def test_the_same_context_is_given_until_something_changed_L162(tmp_path: Path) -> None:
    write_pair(tmp_path, JANE.certificate, JANE.key)
    (tmp_path / "ca.crt").write_bytes(authority().certificate)
    user = {"client-certificate": "tls.crt", "client-key": "tls.key"}
    found = load_config(write(tmp_path / "config", document({"certificate-authority": "ca.crt"}, user)))
    clock = FakeClock()
    source = TlsSource(found, clock)
    first = source.current()
    assert source.current() is first
    pair = (JOHN.certificate, JOHN.key)
    other = source.current(pair)
    assert other is not first
    assert source.current(pair) is other


async def test_a_file_that_is_written_again_with_the_same_content_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(authority().certificate)
    found = load_config(write(tmp_path / "config", document({"certificate-authority": "ca.crt"})))
    clock = FakeClock()
    source = TlsSource(found, clock)
    first = source.current()
    (tmp_path / "new").write_bytes(authority().certificate)
    (tmp_path / "new").rename(tmp_path / "ca.crt")
    await clock.advance(CERTIFICATE_PERIOD)
    assert source.current() is first


def test_a_certificate_that_cannot_be_used_from_the_start_is_an_error_that_names_file_and_context(tmp_path: Path) -> None:
    write_pair(tmp_path, JANE.certificate, JOHN.key)
    found = load_config(write(tmp_path / "config", document(user={"client-certificate": "tls.crt", "client-key": "tls.key"})))
    with pytest.raises(ConfigError, match=r'config: user "u" \(context "x"\): client-certificate: .*tls.crt: .* cannot be used together'):
        TlsSource(found, FakeClock()).current()


def plugin(folder: Path, status: str) -> dict[str, Any]:
    """A program that counts its runs; ``RUN`` in its answer is their number."""
    answer = f'{{"apiVersion": "{V1}", "kind": "ExecCredential", "status": {status}}}'
    script(folder / "login", f'echo x >> {folder}/runs\nrun=$(wc -l < {folder}/runs)\ncat <<END | sed "s/RUN/$run/"\n{answer}\nEND')
    return {"exec": {"command": "./login", "apiVersion": V1, "interactiveMode": "Never"}}


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text().split())


async def test_a_plugins_credential_is_kept_until_it_expires_L163(tmp_path: Path, server: Recorder) -> None:
    clock = FakeClock()
    until = clock.wall().replace(microsecond=0, year=clock.wall().year + 1).isoformat().replace("+00:00", "Z")
    user = plugin(tmp_path, f'{{"token": "t-RUN", "expirationTimestamp": "{until}"}}')
    async with Transport(config(tmp_path, server, user), clock=clock) as transport:
        await ask(transport, 2)
        await clock.advance(366 * 86400)
        await ask(transport, 2)
    assert [one.header("authorization") for one in server.asked] == ["Bearer t-1"] * 2 + ["Bearer t-2"] * 2


async def test_a_401_triggers_one_refresh_for_any_number_of_requests_L163(tmp_path: Path, server: Recorder) -> None:
    server.refuse.add("Bearer t-1")
    async with Transport(config(tmp_path, server, plugin(tmp_path, '{"token": "t-RUN"}'))) as transport:
        refused = await asyncio.gather(*(ask(transport) for _ in range(5)), return_exceptions=True)
        assert [isinstance(one, ApiError) for one in refused] == [True] * 5, "the request itself is not sent again"
        await asyncio.gather(*(ask(transport) for _ in range(5)))
    assert runs(tmp_path) == 2


def certificates(folder: Path, *pairs: tuple[bytes, bytes]) -> dict[str, Any]:
    """A program that gives one pair after the other."""
    for number, (certificate, key) in enumerate(pairs, 1):
        lines = (certificate.decode().replace("\n", "\\n"), key.decode().replace("\n", "\\n"))
        status = f'{{"clientCertificateData": "{lines[0]}", "clientKeyData": "{lines[1]}"}}'
        (folder / f"answer-{number}").write_text(f'{{"apiVersion": "{V1}", "kind": "ExecCredential", "status": {status}}}')
    script(folder / "login", f"echo x >> {folder}/runs\ncat {folder}/answer-$(wc -l < {folder}/runs)")
    return {"exec": {"command": "./login", "apiVersion": V1, "interactiveMode": "Never"}}


async def test_a_plugins_changed_certificate_closes_the_connections_made_with_the_old_one_L163(tmp_path: Path, server: Recorder) -> None:
    server.refuse.add("jane")
    user = certificates(tmp_path, (JANE.certificate, JANE.key), (JOHN.certificate, JOHN.key))
    async with Transport(config(tmp_path, server, user)) as transport:
        refused = await asyncio.gather(*(ask(transport) for _ in range(3)), return_exceptions=True)
        assert [isinstance(one, ApiError) for one in refused] == [True] * 3
        await ask(transport, 2)
    assert [one.certificate for one in server.asked] == ["jane"] * 3 + ["john"] * 2
    assert runs(tmp_path) == 2


async def test_clients_with_the_same_plugin_run_it_once_and_others_do_not_share_L164(tmp_path: Path, server: Recorder) -> None:
    user = plugin(tmp_path, '{"token": "t-RUN"}')
    for _ in range(2):
        async with Transport(config(tmp_path, server, user)) as transport:
            await ask(transport)
    assert runs(tmp_path) == 1
    user["exec"]["args"] = ["--other"]
    async with Transport(config(tmp_path, server, user)) as transport:
        await ask(transport)
    user["exec"]["env"] = [{"name": "A", "value": "b"}]
    async with Transport(config(tmp_path, server, user)) as transport:
        await ask(transport)
    user["exec"]["provideClusterInfo"] = True
    async with Transport(config(tmp_path, server, user)) as transport:
        await ask(transport)
    assert runs(tmp_path) == 4
