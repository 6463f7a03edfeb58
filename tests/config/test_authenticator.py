"""Headers that identify the user: rotation of token files, exec plugins, impersonation."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.config import ClusterConfig, Credentials, ExecPlugin, ImpersonatedUser, RequestAuthenticator
from kubeloop.config.authenticator import impersonation_headers
from kubeloop.meta import ConfigError
from kubeloop.timing import FakeClock

V1 = "client.authentication.k8s.io/v1"


def of(credentials: Credentials, clock: FakeClock | None = None) -> RequestAuthenticator:
    return RequestAuthenticator(ClusterConfig(server="https://h", credentials=credentials), clock or FakeClock())


async def token(authenticator: RequestAuthenticator) -> str:
    return (await authenticator.headers()).get("Authorization", "")


async def test_no_credentials_send_no_header() -> None:
    assert await of(Credentials()).headers() == {}


async def test_a_user_name_and_password_are_sent_as_basic() -> None:
    assert await token(of(Credentials(username="me", password="p"))) == "Basic bWU6cA=="


async def test_a_rotated_token_file_is_seen_within_a_minute(tmp_path: Path) -> None:
    file, clock = tmp_path / "token", FakeClock()
    file.write_text("one\n")
    authenticator = of(Credentials(token_file=file), clock)
    assert await token(authenticator) == "Bearer one"
    file.write_text("two")
    assert await token(authenticator) == "Bearer one"
    await clock.advance(60)
    assert await token(authenticator) == "Bearer two"


async def test_a_token_file_of_two_lines_is_named_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first-half\nsecond-half\n")
    with pytest.raises(ConfigError, match=r"tokenFile: .*token: it holds characters that cannot stand in a header") as raised:
        await token(of(Credentials(token_file=file)))
    assert "half" not in str(raised.value)


def test_a_token_or_name_that_cannot_stand_in_a_header_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match='user "u": token: it holds characters') as raised:
        Credentials(token="first\r\nsecond", owner='user "u"')
    assert "first" not in str(raised.value)
    with pytest.raises(ConfigError, match="as-groups"):
        ImpersonatedUser(user="jane", groups=("a\nb",))


async def test_a_refused_token_is_read_again_at_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    authenticator = of(Credentials(token_file=file))
    sent = await authenticator.headers()
    file.write_text("two")
    authenticator.refused(sent)
    assert await token(authenticator) == "Bearer two"


async def test_while_the_file_cannot_be_read_the_old_token_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file, clock = tmp_path / "token", FakeClock()
    file.write_text("one")
    authenticator = of(Credentials(token_file=file), clock)
    await token(authenticator)
    file.unlink()
    await clock.advance(61)
    assert await token(authenticator) == "Bearer one"
    assert "cannot be read" in caplog.text
    assert "one" not in caplog.text.replace(str(file), "")


async def test_a_token_beside_a_file_is_used_until_the_file_is_there(tmp_path: Path) -> None:
    authenticator = of(Credentials(token="fixed", token_file=tmp_path / "absent"))
    assert await token(authenticator) == "Bearer fixed"


async def test_a_token_file_that_was_never_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenFile: .*absent: cannot be read"):
        await token(of(Credentials(token_file=tmp_path / "absent")))


async def test_an_empty_token_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        await token(of(Credentials(token_file=tmp_path / "token")))


def plugin(tmp_path: Path, answer: object, status: int = 0) -> ExecPlugin:
    """A program that counts its runs in a file beside it and prints ``answer``."""
    script = tmp_path / "plugin.py"
    text = answer if isinstance(answer, str) else json.dumps(answer)
    script.write_text(
        f"import os, pathlib, sys\n"
        f"runs = pathlib.Path({str(tmp_path / 'runs')!r})\n"
        f"runs.write_text(runs.read_text() + 'x' if runs.exists() else 'x')\n"
        f"pathlib.Path({str(tmp_path / 'info')!r}).write_text(os.environ['KUBERNETES_EXEC_INFO'] + os.environ.get('EXTRA', ''))\n"
        f"print({text!r}.replace('RUN', str(len(runs.read_text()))))\n"
        f"sys.exit({status})\n"
    )
    # -S and -E: a start without site-packages is faster.
    return ExecPlugin(
        command=sys.executable, args=("-S", "-E", str(script)), env=(("EXTRA", "more"),), owner='user "u"', provide_cluster_info=True
    )


def credential(**status: object) -> dict[str, object]:
    return {"apiVersion": V1, "kind": "ExecCredential", "status": status}


async def test_a_plugin_runs_once_for_many_requests_and_again_when_its_credential_expires(tmp_path: Path) -> None:
    clock = FakeClock()
    expires = clock.wall().replace(microsecond=0)
    until = expires.replace(year=expires.year + 1).isoformat().replace("+00:00", "Z")
    authenticator = of(Credentials(exec=plugin(tmp_path, credential(token="t-RUN", expirationTimestamp=until))), clock)
    assert set(await asyncio.gather(*(token(authenticator) for _ in range(5)))) == {"Bearer t-1"}
    await clock.advance(366 * 86400)
    assert await token(authenticator) == "Bearer t-2"
    info = (tmp_path / "info").read_text()
    assert info.endswith("more")
    spec = json.loads(info.removesuffix("more"))["spec"]
    assert spec["cluster"]["server"] == "https://h"


async def test_a_refused_plugin_token_is_renewed_once(tmp_path: Path) -> None:
    authenticator = of(Credentials(exec=plugin(tmp_path, credential(token="t-RUN"))))
    sent = await authenticator.headers()
    authenticator.refused(sent)
    renewed = await authenticator.headers()
    authenticator.refused(sent)  # a second answer to the old token must not cost the new one
    assert await authenticator.headers() == renewed == {"Authorization": "Bearer t-2"}


async def test_a_plugin_may_give_a_certificate(tmp_path: Path) -> None:
    authenticator = of(Credentials(exec=plugin(tmp_path, credential(clientCertificateData="chain", clientKeyData="key"))))
    assert await authenticator.client_certificate() == (b"chain", b"key")
    assert await authenticator.headers() == {}


@pytest.mark.parametrize(
    ("answer", "status", "message"),
    [
        pytest.param("oops", 0, "printed no ExecCredential", id="a plugin that prints something else"),
        pytest.param(credential(), 0, "printed neither status.token", id="a plugin without a credential"),
        pytest.param(credential(clientCertificateData="c"), 0, "only one of", id="a plugin that gives half a certificate"),
        pytest.param(
            {**credential(token="t"), "apiVersion": "v1"}, 0, 'printed "ExecCredential" of "v1"', id="a plugin of another version"
        ),
        pytest.param(credential(token="t\r\nEvil: 1"), 0, "printed status.token: it holds characters", id="a token with a line break"),
        pytest.param(credential(token="t"), 3, "ended with exit status 3", id="a plugin that fails"),
    ],
)
async def test_a_bad_plugin_is_named(tmp_path: Path, answer: object, status: int, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        await token(of(Credentials(exec=plugin(tmp_path, answer, status))))
    assert message in str(raised.value)
    assert 'user "u": exec: ' in str(raised.value)


async def test_a_plugin_that_is_not_installed_shows_its_hint_without_control_characters() -> None:
    missing = ExecPlugin(command="/nowhere/login", install_hint="install \x1b[31mlogin\nfirst")
    with pytest.raises(ConfigError) as raised:
        await token(of(Credentials(exec=missing)))
    assert "cannot be run (No such file or directory)\ninstall U+001B[31mlogin\nfirst" in str(raised.value)


async def test_a_plugin_that_needs_a_terminal_says_so_where_there_is_none() -> None:
    with pytest.raises(ConfigError, match="there is no terminal here"):
        await token(of(Credentials(exec=ExecPlugin(command="x", interactive="Always"))))


def test_impersonation_escapes_what_cannot_stand_in_a_header_L160() -> None:
    who = ImpersonatedUser(user="jane", uid="7", groups=("devs", "ops"), extra=(("acme.com/project name", ("a",)),))
    assert impersonation_headers(who) == [
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "devs"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-acme.com%2Fproject%20name", "a"),
    ]


@settings(max_examples=50)
@given(st.text(min_size=1))
def test_the_escaped_key_of_an_extra_is_a_header_name_and_round_trips_L160(key: str) -> None:
    (_, (name, value)) = impersonation_headers(ImpersonatedUser(user="u", extra=((key, ("v",)),)))
    escaped = name.removeprefix("Impersonate-Extra-")
    assert re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", escaped)
    assert (unquote(escaped), value) == (key, "v")
