"""``kubeloop tap`` as a person meets it: a process around kubectl, in its three ways, with its files, signals and exit statuses."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kubeloop.codec import write_yaml
from kubeloop.config import Kubeconfig
from tests.kubectl.runner import Kubectl, kubectl_binary
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server


class Tap:
    """Runs ``kubeloop tap`` with a home and a folder for temporary files of the test."""

    def __init__(self, server: ServerUnderTest, folder: Path, namespace: str) -> None:
        # With embedded certificates, so that changed copies of it work in other folders.
        self.kubeconfig = folder / "flattened"
        self.kubeconfig.write_text(write_yaml(Kubeconfig.read(server.kubeconfig).view(flatten=True, raw=True)))
        self.folder = folder
        self.namespace = namespace
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.environment = {
            "HOME": str(folder),
            "PATH": os.environ.get("PATH", ""),
            "KUBECONFIG": str(self.kubeconfig),
            "TMPDIR": str(self.temporary),
            "PYTHONWARNINGS": "error",
            "COLUMNS": "160",
        }

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "kubeloop", "tap", *args]

    def run(self, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*args),
            capture_output=True,
            text=True,
            timeout=50,
            env={**self.environment, **environment},
            check=False,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
        )
        assert "Traceback" not in done.stderr, done.stderr
        self.check_nothing_left()
        return done

    def kubectl(self, *options: str, args: tuple[str, ...] = ("get", "pods")) -> subprocess.CompletedProcess[str]:
        return self.run(*options, "--", kubectl_binary(), "-n", self.namespace, *args)

    def check_nothing_left(self) -> None:
        assert list(self.temporary.iterdir()) == []

    @contextmanager
    def started(self, *args: str) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            self.command(*args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment, stdin=subprocess.DEVNULL
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def tap(server: ServerUnderTest, tmp_path: Path, namespace: str) -> Tap:
    return Tap(server, tmp_path, namespace)


@pytest.fixture
def kubectl(server: ServerUnderTest, tmp_path: Path, namespace: str) -> Kubectl:
    return Kubectl(Path(server.kubeconfig), tmp_path, namespace)


def not_loopback(tap: Tap) -> Path:
    """A kubeconfig whose server is a name that Go does not take for loopback."""
    text = tap.kubeconfig.read_text()
    changed = re.sub(r"(\n *)server: https://(?:127\.0\.0\.1|localhost):", r"\1tls-server-name: localhost\1server: https://127.1:", text)
    assert changed != text
    file = tap.folder / "by-name"
    file.write_text(changed)
    return file


def requests(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The requests that were shown: verb, resource and parameters."""
    return [line[17:].split("  kubectl/")[0].rstrip() for line in done.stderr.splitlines() if "→" in line[:20]]


def test_a_command_runs_as_without_the_tap_and_its_requests_are_shown(tap: Tap) -> None:
    done = tap.kubectl(args=("get", "serviceaccounts", "-o", "name"))
    assert (done.returncode, done.stdout) == (0, tap_free(tap, "get", "serviceaccounts", "-o", "name"))
    assert requests(done)[-1].startswith(f"LIST serviceaccounts -n {tap.namespace}")
    assert re.search(r"← 200 LIST serviceaccounts .* rv \d+ +\d+ ms  ↓ [0-9.]+ k?B\n", done.stderr)
    assert "kubectl/v1." in done.stderr
    assert re.search(r"kubeloop tap: \d+ requests? on \d connections? in ", done.stderr)


def tap_free(tap: Tap, *args: str) -> str:
    done = subprocess.run([kubectl_binary(), "-n", tap.namespace, *args], capture_output=True, text=True, env=tap.environment, check=True)
    return done.stdout


def test_pages_writes_and_errors_are_shown(tap: Tap, kubectl: Kubectl) -> None:
    for name in ("a", "b", "c"):
        kubectl("create", "configmap", name, "--from-literal=x=1")
    done = tap.kubectl(args=("get", "configmaps", "--chunk-size=2", "-o", "json"))
    assert re.search(r"page 1, 2 items, rv \d+, more follow", done.stderr)
    assert "page 2, " in done.stderr
    done = tap.kubectl(args=("patch", "configmap", "a", "-p", '{"data":{"x":"2"}}'))
    assert re.search(r"← 200 PATCH configmaps a .*\n +data\.x: 1 -> 2\n", done.stderr)
    done = tap.kubectl(args=("get", "configmap", "none"))
    assert done.returncode == 1
    assert re.search(r'← 404 GET configmaps none .* NotFound: configmaps "none" not found', done.stderr)


def test_requests_run_as_the_user_of_the_client_certificate(tap: Tap) -> None:
    direct = tap_free(tap, "auth", "whoami", "-o", "json")
    for way in ((), ("--proxy-url",)):
        assert json.loads(tap.kubectl("-q", *way, args=("auth", "whoami", "-o", "json")).stdout)["status"] == json.loads(direct)["status"]


def test_the_server_keeps_its_address_behind_a_proxy_url(tap: Tap) -> None:
    done = tap.run(
        "--proxy-url", "--", "sh", "-c", f"{kubectl_binary()} config view --minify -o json; {kubectl_binary()} get ns default -o name"
    )
    cluster = json.loads(done.stdout.rpartition("}")[0] + "}")["clusters"][0]["cluster"]
    assert cluster["proxy-url"].startswith("http://127.0.0.1:")
    assert cluster["server"] in tap.kubeconfig.read_text()
    assert done.stdout.endswith("namespace/default\n")
    assert requests(done)[-1].startswith("GET namespaces default")


def test_https_proxy_is_ignored_for_a_server_on_loopback_and_a_warning_says_so(tap: Tap) -> None:
    done = tap.kubectl("--https-proxy", args=("get", "ns", "default", "-o", "name"))
    assert (done.returncode, done.stdout) == (0, "namespace/default\n")
    assert "is on loopback: Go programs (kubectl, client-go) and kubeloop ignore HTTPS_PROXY for it" in done.stderr
    assert requests(done) == []


def test_a_client_refuses_the_certificate_of_the_tap(tap: Tap) -> None:
    done = tap.kubectl("--https-proxy", "--kubeconfig", str(not_loopback(tap)), args=("get", "ns", "default"))
    assert done.returncode == 1
    assert "tls: failed to verify certificate: x509: certificate signed by unknown authority" in done.stderr
    assert re.search(r"! connection to 127\.1:\d+ failed: the client does not trust the certificate of the tap", done.stderr)


def test_a_client_that_trusts_the_tap_passes(tap: Tap) -> None:
    done = tap.kubectl("--https-proxy", "--trust", "--kubeconfig", str(not_loopback(tap)), args=("get", "ns", "default", "-o", "name"))
    assert (done.returncode, done.stdout) == (0, "namespace/default\n")
    assert requests(done)[-1].startswith("GET namespaces default")


def test_a_request_without_a_certificate_is_anonymous(tap: Tap) -> None:
    kubeconfig = str(not_loopback(tap))
    tap.kubectl("--https-proxy", "--trust", "--kubeconfig", kubeconfig)  # kubectl stores discovery, which anonymous users may not read
    done = tap.kubectl("--https-proxy", "--anonymous", "--kubeconfig", kubeconfig, args=("--insecure-skip-tls-verify", "get", "pods"))
    text = f'User "system:anonymous" cannot list resource "pods" in API group "" in the namespace "{tap.namespace}"'
    assert done.returncode == 1
    assert f"Error from server (Forbidden): pods is forbidden: {text}" in done.stderr
    assert "← 403 LIST pods" in done.stderr
    done = tap.kubectl("--https-proxy", "--kubeconfig", kubeconfig, args=("--insecure-skip-tls-verify", "get", "pods"))
    assert done.returncode == 0


def test_a_recording_has_the_conversation_and_no_secret(tap: Tap, kubectl: Kubectl) -> None:
    kubectl("create", "secret", "generic", "x", "--from-literal=a=hidden-value")
    file = tap.folder / "run.har"
    done = tap.kubectl("--record", str(file), args=("get", "secret", "x", "-o", "jsonpath={.data.a}"))
    assert done.stdout == "aGlkZGVuLXZhbHVl"
    assert f"; recorded in {file}" in done.stderr
    text = file.read_text()
    assert "aGlkZGVuLXZhbHVl" not in text
    entry = json.loads(text)["log"]["entries"][-1]
    assert (entry["request"]["method"], entry["_verb"], entry["_resource"], entry["response"]["status"]) == ("GET", "GET", "secrets", 200)
    assert json.loads(entry["response"]["content"]["text"])["data"] == {"a": "***"}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    shown = tap.kubectl("-q", "--show-secrets", "--force", "--record", str(file), args=("get", "secret", "x", "-o", "name"))
    assert shown.stderr == ""
    assert "aGlkZGVuLXZhbHVl" in file.read_text()


def test_the_conversation_goes_to_a_file(tap: Tap) -> None:
    file = tap.folder / "view.txt"
    done = tap.kubectl("-o", "view.txt", args=("get", "--raw", "/nope"))
    assert (done.returncode, done.stderr) == (1, "Error from server (NotFound): the server could not find the requested resource\n")
    started, ended, summary = file.read_text().splitlines()
    assert re.fullmatch(r" *[0-9.]+ +#1 → GET /nope +kubectl/v[0-9.]+", started)
    assert re.fullmatch(r" *[0-9.]+ +#1 ← 404 GET /nope  404 page not found +\d+ ms  ↓ 19 B", ended)
    assert summary.startswith("kubeloop tap: 1 request on 1 connection in ")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = tap.kubectl("--force", "--https-proxy", "-o", "view.txt", args=("get", "--raw", "/version"))
    assert "kubeloop tap: warning: the server" in again.stderr
    assert "kubeloop tap: warning: the server" in file.read_text()
    assert "/nope" not in file.read_text()


def test_a_key_log_has_the_secrets_of_both_sides(tap: Tap) -> None:
    file = tap.folder / "keys"
    tap.kubectl("-q", "--keylog", str(file), args=("get", "ns", "default"))
    lines = [line.split() for line in file.read_text().splitlines() if not line.startswith("#")]
    assert all(len(line) == 3 for line in lines)
    clients = {client for label, client, _ in lines if label in ("CLIENT_TRAFFIC_SECRET_0", "CLIENT_RANDOM")}
    assert len(clients) >= 2
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_recording_is_replayed_and_reported(tap: Tap, kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "a", "--from-literal=x=1")
    file = tap.folder / "run.har"
    recorded = tap.kubectl("-q", "--record", str(file), args=("get", "configmap", "a"))
    kubeconfig = tap.folder / "replay"
    with tap.started("replay", str(file), "--speed", "fast", "--kubeconfig-out", str(kubeconfig)) as process:
        assert process.stdout is not None
        assert re.fullmatch(rf"ready https://127\.0\.0\.1:\d+ kubeconfig={kubeconfig}\n", process.stdout.readline())
        replayed = Kubectl(kubeconfig, tap.folder / "home", tap.namespace)
        assert replayed("get", "configmap", "a") == recorded.stdout
        refused = replayed.refused("get", "configmap", "b")
        assert f"the recording run.har has no response to GET /api/v1/namespaces/{tap.namespace}" in refused
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    done = tap.run("report", str(file))
    page = tap.folder / "run.html"
    assert done.stdout.startswith(f"{page}: 0.")
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert "configmaps" in page.read_text()


def test_a_watch_shows_each_event_with_what_changed(tap: Tap, kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "a", "--from-literal=x=1")
    arguments = ("get", "configmaps", "--field-selector=metadata.name=a", "-w", "-o", "json")
    with tap.started("--", kubectl_binary(), "-n", tap.namespace, *arguments) as process:
        assert process.stderr is not None
        lines: list[str] = []

        def read_to(text: str) -> None:
            while not lines or text not in lines[-1]:
                lines.append(process.stderr.readline())  # type: ignore[union-attr]
                assert lines[-1], lines

        read_to("streaming, headers after")
        kubectl("patch", "configmap", "a", "-p", '{"data":{"x":"2"}}')
        read_to("data.x: 1 -> 2")
        kubectl("delete", "configmap", "a")
        read_to(f"DELETED  {tap.namespace}/a  rv ")
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=20)
        assert process.returncode == 1  # kubectl's own status after a signal
    assert any(re.search(r"→ WATCH configmaps .*resourceVersion=\d+", line) for line in lines)
    assert "1 MODIFIED, 1 DELETED; ended: the client closed the connection" in rest
    tap.check_nothing_left()


@pytest.mark.parametrize(
    ("args", "status"),
    [
        pytest.param(("sh", "-c", "exit 7"), 7, id="its exit status"),
        pytest.param(("sh", "-c", "kill -KILL $$"), 137, id="its signal"),
        pytest.param(("no-such-command",), 127, id="127 if it does not exist"),
        pytest.param(("/etc/passwd",), 126, id="126 if it cannot be executed"),
    ],
)
def test_the_exit_status_is(tap: Tap, args: tuple[str, ...], status: int) -> None:
    done = tap.run("--", *args)
    assert done.returncode == status
    if status in (126, 127):
        assert done.stderr.startswith(f"kubeloop tap: {args[0]}: ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_reach_the_command(tap: Tap, number: signal.Signals) -> None:
    script = f"trap 'echo got; exit 3' {number.name[3:]}; echo ready; while :; do sleep 0.05; done"
    with tap.started("-q", "--", "sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        out, _ = process.communicate(timeout=20)
        assert (process.returncode, out) == (3, "got\n")
    tap.check_nothing_left()


def test_the_terminals_interrupt_reaches_the_command_once(tap: Tap) -> None:
    script = """
import signal, time
received = []
signal.signal(signal.SIGINT, lambda *_: received.append(1))
print("ready", flush=True)
for _ in range(40):
    time.sleep(0.025)
print("got", len(received), flush=True)
"""
    child, terminal = pty.fork()
    if child == 0:
        os.execve(sys.executable, tap.command("-q", "--", sys.executable, "-c", script), tap.environment)
    output = b""
    sent = False
    while select.select([terminal], [], [], 30)[0]:
        try:
            output += os.read(terminal, 4096)
        except OSError:  # the end of the terminal
            break
        if b"ready" in output and not sent:
            os.write(terminal, b"\x03")
            sent = True
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0, output
    assert b"got 1" in output


def test_a_killed_tap_leaves_a_readable_recording(tap: Tap) -> None:
    file = tap.folder / "run.har"
    script = f"{kubectl_binary()} get ns default -o name; echo done; while :; do sleep 0.05; done"
    with tap.started("-q", "--record", str(file), "--", "sh", "-c", script) as process:
        assert process.stdout is not None
        while process.stdout.readline() != "done\n":
            pass
        child = int(
            subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True, check=True).stdout.split()[0]
        )
        process.kill()
        process.wait()
        os.kill(child, signal.SIGKILL)
    done = subprocess.run(tap.command("report", str(file)), capture_output=True, text=True, env=tap.environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "namespaces" in (tap.folder / "run.html").read_text()


@pytest.mark.parametrize(
    ("args", "status", "text"),
    [
        pytest.param((), 2, "no command: write it after --", id="no command"),
        pytest.param(("--",), 2, "no command: write it after --", id="no command after the dashes"),
        pytest.param(("kubectl", "get", "pods"), 2, "To run a program, put -- before it: kubeloop tap -- kubectl get pods", id="no dashes"),
        pytest.param(("--proxy-url", "--https-proxy", "--", "true"), 2, "--proxy-url and --https-proxy exclude each other", id="two ways"),
        pytest.param(("--trust", "--", "true"), 2, "--trust is for --https-proxy", id="trust without a proxy"),
        pytest.param(
            ("--record", "x", "--keylog", "x", "--", "true"), 2, "--record and --keylog name the same file", id="one file for two"
        ),
        pytest.param(("--kubeconfig", "none", "--", "true"), 1, "none: no such file", id="no kubeconfig"),
        pytest.param(("--context", "none", "--", "true"), 1, 'there is no context "none"', id="no context"),
        pytest.param(
            ("--record", "none/x.har", "--", "touch", "started"),
            1,
            "none/x.har: cannot be written (No such file or directory)",
            id="a recording that cannot be written",
        ),
        pytest.param(
            ("--keylog", "none/keys", "--", "touch", "started"),
            1,
            "none/keys: cannot be written (No such file or directory)",
            id="a key log that cannot be written",
        ),
        pytest.param(("--record", "x", "-o", "x", "--", "true"), 2, "--record and --output name the same file", id="one file for both"),
        *(
            pytest.param(
                (option, "flattened", "--", "touch", "started"),
                1,
                "flattened: the file exists; name another one, or overwrite it with --force",
                id=f"{option} with a file that exists",
            )
            for option in ("--record", "--keylog", "--output")
        ),
        pytest.param(("replay", "none.har"), 1, "none.har: cannot be read", id="no recording to replay"),
        pytest.param(("replay", "flattened"), 1, "make one with: kubeloop tap --record run.har -- COMMAND", id="no HAR file to replay"),
        pytest.param(("report", "flattened"), 1, "make one with: kubeloop tap --record run.har -- COMMAND", id="no HAR file to report"),
        pytest.param(("report", "tmp"), 2, "is a directory", id="a folder to report"),
    ],
)
def test_a_mistake_gets_a_message_before_the_command_starts(tap: Tap, args: tuple[str, ...], status: int, text: str) -> None:
    done = tap.run(*args)
    assert done.returncode == status
    assert text in " ".join(done.stderr.split())
    assert not (tap.folder / "started").exists()


def test_a_port_in_use_gets_a_message(tap: Tap) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        files = ("--record", "a.har", "--keylog", "keys", "--output", "view")
        done = tap.run("--port", str(port), *files, "--", "touch", "started")
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another port" in done.stderr
    assert not any((tap.folder / name).exists() for name in ("started", "a.har", "keys", "view"))


def test_a_server_that_is_away_is_named_to_the_client_and_in_the_view(tap: Tap) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    file = tap.folder / "away"
    file.write_text(re.sub(r"server: https://[^\n]+", f"server: https://127.0.0.1:{port}", tap.kubeconfig.read_text()))
    done = tap.kubectl("--kubeconfig", str(file), args=("get", "--raw", "/version"))
    assert done.returncode == 1
    cause = f"kubeloop tap: no response from 127.0.0.1:{port}: dial tcp 127.0.0.1:{port}: connect: connection refused"
    assert f"← 503 GET /version  {cause}" in done.stderr
    assert f"Error from server (ServiceUnavailable): {cause}" in done.stderr


def test_the_help_shows_the_commands_and_examples(tap: Tap) -> None:
    done = tap.run("--help")
    for text in ("kubeloop tap [OPTIONS] -- COMMAND...", "replay", "report", "--https-proxy", "kubeloop tap -- kubectl get pods -w"):
        assert text in done.stdout


def test_the_system_keeps_no_temporary_files(tap: Tap) -> None:
    before = set(Path(tempfile.gettempdir()).glob("kubeloop-tap-*"))
    tap.run("-q", "--", "true", TMPDIR="")
    assert set(Path(tempfile.gettempdir()).glob("kubeloop-tap-*")) <= before
