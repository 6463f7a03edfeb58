"""Credential plugins as programs: their input, their limits, and the errors when they fail."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import sys
from pathlib import Path

import pytest

from kubeloop.config import ClusterConfig, Credentials, ExecPlugin, PluginPolicy, RequestAuthenticator
from kubeloop.config.plugins import source
from kubeloop.config.plugins.source import MOST_OUTPUT, printable
from kubeloop.meta import ConfigError
from kubeloop.timing import FakeClock
from tests.config.documents import V1, script

V1BETA1 = "client.authentication.k8s.io/v1beta1"
OWNER = '/home/me/.kube/config: user "u" (context "x")'


def answer(version: str = V1, status: str = '{"token": "t"}') -> str:
    return f'{{"apiVersion": "{version}", "kind": "ExecCredential", "status": {status}}}'


def plugin(
    command: Path | str, *, version: str = V1, interactive: str = "Never", policy: PluginPolicy | None = None, **more: str
) -> ExecPlugin:
    return ExecPlugin(
        command=str(command),
        api_version=version,
        interactive=interactive,
        owner=OWNER,
        policy=policy or PluginPolicy(),
        install_hint=more.get("hint", ""),
        timeout=float(more.get("timeout", 60)),
    )


async def token(plugin: ExecPlugin, clock: FakeClock | None = None) -> str:
    config = ClusterConfig(server="https://h", credentials=Credentials(exec=plugin))
    return (await RequestAuthenticator(config, clock or FakeClock()).headers()).get("Authorization", "")


async def failure(plugin: ExecPlugin) -> str:
    with pytest.raises(ConfigError) as raised:
        await token(plugin)
    assert OWNER in str(raised.value)
    return str(raised.value)


async def test_a_plugin_of_v1beta1_is_asked_and_answers_in_v1beta1(tmp_path: Path) -> None:
    command = script(tmp_path / "login", f"echo \"$KUBERNETES_EXEC_INFO\" > {tmp_path}/info\necho '{answer(V1BETA1)}'")
    assert await token(plugin(command, version=V1BETA1)) == "Bearer t"
    info = {"kind": "ExecCredential", "apiVersion": V1BETA1, "spec": {"interactive": False}}
    assert json.loads((tmp_path / "info").read_text()) == info


async def test_a_plugin_that_answers_in_another_version_is_an_error_that_says_which(tmp_path: Path) -> None:
    text = await failure(plugin(script(tmp_path / "login", f"echo '{answer(V1BETA1)}'")))
    assert f'printed "ExecCredential" of "{V1BETA1}"; wanted ExecCredential of {V1}: make exec.apiVersion what the plugin prints' in text


@pytest.mark.parametrize(
    ("status", "message"),
    [
        pytest.param("{}", "printed neither status.token nor status.clientCertificateData", id="nothing"),
        pytest.param('{"token": null}', "printed neither", id="null"),
        pytest.param('{"clientKeyData": "k"}', "printed only one of", id="a key without a certificate"),
        pytest.param('{"token": 7}', "with a field of another type", id="a token that is a number"),
        pytest.param('{"token": "t", "expirationTimestamp": "soon"}', "with a field of another type", id="a time that is none"),
        pytest.param('{"token": "t", "expirationTimestamp": "2030-01-01T00:00:00"}', "has no time zone", id="a time without a zone"),
    ],
)
async def test_an_answer_without_a_usable_credential_is_an_error(tmp_path: Path, status: str, message: str) -> None:
    assert message in await failure(plugin(script(tmp_path / "login", f"echo '{answer(status=status)}'")))


async def test_what_a_failing_plugin_said_is_shown_without_control_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = await failure(plugin(script(tmp_path / "login", "printf 'log in first\\033[31m\\n' >&2; exit 7")))
    assert 'ended with exit status 7: it said "log in first [31m"' in text
    assert "log in first" in capsys.readouterr().err, "and it was shown as it came"


async def test_a_plugin_that_fails_is_run_once_for_all_who_wait_and_again_for_the_next(tmp_path: Path) -> None:
    failing = plugin(script(tmp_path / "login", f"echo x >> {tmp_path}/runs; exit 1"))
    said = await asyncio.gather(*(failure(failing) for _ in range(5)))
    assert len(set(said)) == 1
    assert (tmp_path / "runs").read_text() == "x\n"
    await failure(failing)
    assert (tmp_path / "runs").read_text() == "x\nx\n"


async def test_a_plugin_that_prints_without_end_is_killed(tmp_path: Path) -> None:
    text = await failure(plugin(script(tmp_path / "login", "exec cat /dev/zero")))
    assert f"printed more than {MOST_OUTPUT >> 20} MiB" in text


async def test_a_plugin_that_does_not_end_is_killed(tmp_path: Path) -> None:
    text = await failure(plugin(script(tmp_path / "login", "exec sleep 1000"), timeout="0.05"))
    assert "did not end within 0.05 s and was killed; run it by hand to see what it waits for" in text


async def test_a_child_that_holds_the_output_open_does_not_outlive_the_timeout(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "held")
    held = os.open(tmp_path / "held", os.O_RDWR)  # the child reads from it until this is closed
    try:
        command = script(tmp_path / "login", f"cat {tmp_path}/held &\necho '{answer()}'")
        assert "did not end within" in await failure(plugin(command, timeout="0.05"))
    finally:
        os.close(held)


async def test_a_request_that_is_given_up_ends_the_plugin_that_it_waits_for(tmp_path: Path) -> None:
    started = tmp_path / "pid"
    os.mkfifo(started)
    waiting = asyncio.create_task(token(plugin(script(tmp_path / "login", f"echo $$ > {started}; exec sleep 1000"))))
    process = int(await asyncio.to_thread(started.read_text))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


async def test_a_plugin_that_is_not_installed_shows_its_hint_at_most_ten_times_an_hour_L164() -> None:
    missing, clock = plugin("kubeloop-no-such-plugin", hint="brew install it"), FakeClock()

    async def hinted() -> bool:
        with pytest.raises(ConfigError, match="exec: kubeloop-no-such-plugin: cannot be run") as raised:
            await token(missing, clock)
        return "brew install it" in str(raised.value)

    assert [await hinted() for _ in range(12)] == [True] * 10 + [False] * 2
    await clock.advance(3600)
    assert await hinted()


def test_control_characters_of_install_hints_are_named_before_printing_M174() -> None:
    assert printable("a\x1b[1mb\x07\tc\nd\u200b\u00e9") == "aU+001B[1mbU+0007\tc\ndU+200B\u00e9"


@pytest.mark.parametrize(
    ("allowed", "runs"),
    [
        pytest.param(None, True, id="all"),
        pytest.param((), False, id="none"),
        pytest.param(("FOLDER/login",), True, id="its path"),
        pytest.param(("login",), True, id="its name, where PATH leads to it"),
        pytest.param(("FOLDER/other", "aws"), False, id="others"),
    ],
)
async def test_a_policy_decides_which_plugins_may_run_L164(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: tuple[str, ...] | None, runs: bool
) -> None:
    command = script(tmp_path / "login", f"echo '{answer()}'")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    policy = PluginPolicy(allowed=None if allowed is None else tuple(entry.replace("FOLDER", str(tmp_path)) for entry in allowed))
    if runs:
        assert await token(plugin(command, policy=policy)) == "Bearer t"
    else:
        assert "login may not run: it allows" in await failure(plugin(command, policy=policy))


@pytest.mark.parametrize("entry", ["", "./login", "a/../b"])
def test_a_policy_that_could_never_match_is_refused(entry: str) -> None:
    with pytest.raises(ConfigError, match="is not a command"):
        PluginPolicy(allowed=(entry,))


@pytest.mark.parametrize(
    ("mode", "interactive"),
    [
        pytest.param("Never", False, id="a plugin that never asks is not given the terminal"),
        pytest.param("IfAvailable", True, id="a plugin that may ask gets it"),
        pytest.param("Always", True, id="a plugin that must ask gets it"),
    ],
)
async def test_at_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, interactive: bool) -> None:
    command = script(
        tmp_path / "login", f"echo \"$KUBERNETES_EXEC_INFO\" > {tmp_path}/info\ntest -t 0; echo $? > {tmp_path}/tty\necho '{answer()}'"
    )
    outer, inner = pty.openpty()
    kept = os.dup(0)
    try:
        os.dup2(inner, 0)
        with os.fdopen(os.dup(inner)) as terminal:
            monkeypatch.setattr(sys, "stdin", terminal)
            assert await token(plugin(command, interactive=mode)) == "Bearer t"
    finally:
        os.dup2(kept, 0)
        for one in (kept, outer, inner):
            os.close(one)
    assert json.loads((tmp_path / "info").read_text())["spec"]["interactive"] is interactive
    assert (tmp_path / "tty").read_text() == ("0\n" if interactive else "1\n")


async def test_without_a_terminal_a_plugin_that_must_ask_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    command = script(tmp_path / "login", f"touch {tmp_path}/ran")
    assert "interactiveMode is Always, and there is no terminal here; run it once at a terminal" in await failure(
        plugin(command, interactive="Always")
    )
    assert not (tmp_path / "ran").exists()


async def test_no_more_than_a_bounded_number_of_credentials_is_kept(tmp_path: Path) -> None:
    command = script(tmp_path / "login", f"echo '{answer()}'")
    for number in range(100):
        source.source_of(ExecPlugin(command=str(command), args=(str(number),)), ClusterConfig(server="https://h"))
    assert len(source._sources) <= 64
