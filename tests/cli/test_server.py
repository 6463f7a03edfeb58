"""``kubeloop server`` as a person or a program meets it: a process, its output, its files, its end."""

from __future__ import annotations

import itertools
import json
import re
import resource
import signal
import socket
import ssl
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeloop.cli.long_running import writable_target
from kubeloop.config import load_config
from kubeloop.meta import ConfigError

pytestmark = pytest.mark.embedded


def start(*args: str, controllers: bool = False, **pipes: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kubeloop", "server", *([] if controllers else ["--no-controllers"]), *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **pipes)  # type: ignore[call-overload, no-any-return]  # pipes are Popen's own


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=20)
    return process.returncode, out, err


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    return tmp_path / "kubeconfig"


@pytest.fixture
def running(kubeconfig: Path) -> Iterator[subprocess.Popen[str]]:
    process = start("--kubeconfig", str(kubeconfig))
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def ready(process: subprocess.Popen[str]) -> tuple[str, str]:
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.fullmatch(r"ready (https://127\.0\.0\.1:\d+) kubeconfig=(.+)\n", line)
    assert found is not None, line
    return found[1], found[2]


def test_it_says_when_it_is_ready_writes_a_private_kubeconfig_and_ends_on_sigterm(running: subprocess.Popen[str], kubeconfig: Path) -> None:
    url, written = ready(running)
    assert written == str(kubeconfig)
    assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
    assert [one.name for one in kubeconfig.parent.iterdir()] == ["kubeconfig"]
    config = load_config(kubeconfig)
    assert config.server == url
    with urllib.request.urlopen(f"{url}/readyz", context=config.ssl_context()) as answer:
        assert answer.read() == b"ok"
    running.send_signal(signal.SIGTERM)
    status, out, err = finish(running)
    assert (status, out) == (0, "")
    assert "serving at" in err
    assert "Traceback" not in err


def administrator(kubeconfig: Path) -> ssl.SSLContext:
    config = load_config(kubeconfig)
    certificate, key = config.credentials.client_certificate, config.credentials.client_key
    assert certificate is not None
    assert key is not None
    return config.ssl_context((certificate.read(), key.read()))


def test_a_watch_ends_properly_when_the_server_is_interrupted(running: subprocess.Popen[str], kubeconfig: Path) -> None:
    url, _ = ready(running)
    with urllib.request.urlopen(f"{url}/api/v1/namespaces?watch=1", context=administrator(kubeconfig)) as answer:
        assert b'"ADDED"' in answer.readline()
        running.send_signal(signal.SIGINT)
        answer.read()  # would raise if the stream broke off
    assert finish(running)[0] == 0


def test_a_client_that_does_not_trust_the_authority_does_not_talk(running: subprocess.Popen[str]) -> None:
    url, _ = ready(running)
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(f"{url}/readyz", context=ssl.create_default_context())


def test_a_port_in_use_is_an_error_and_the_exit_status_is_one(kubeconfig: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, out, err = finish(start("--port", str(port), "--kubeconfig", str(kubeconfig)))
    assert (status, out) == (1, "")
    assert f"Error: cannot listen on 127.0.0.1:{port}: " in err
    assert "choose another port" in err
    assert "Traceback" not in err
    assert not kubeconfig.exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        pytest.param(["--token-auth-file", "nosuch.csv"], "Error: cannot read token file nosuch.csv", id="a token file that is not there"),
        pytest.param(
            ["--kubeconfig", "/nosuch/folder/config"],
            "Error: cannot write kubeconfig /nosuch/folder/config",
            id="a folder that is not there",
        ),
    ],
)
def test_it_does_not_start_with(args: list[str], message: str) -> None:
    status, out, err = finish(start(*args))
    assert (status, out) == (1, "")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.skipif(sys.platform != "linux", reason="process pods need Linux")
@pytest.mark.parametrize(
    ("args", "message"),
    [
        pytest.param(
            ["--image-map", "nosuch.yaml"],
            "Error: --image-map nosuch.yaml: No such file or directory; write a file with images: NAME: {command: [...]}",
            id="an image map that is not there",
        ),
        pytest.param(["--image-map", "/dev/null"], "Error: --image-map /dev/null: it must have the form images: ", id="an empty image map"),
        pytest.param(
            ["--data", "/proc/nosuch"],
            "Error: --data /proc/nosuch: No such file or directory; name a folder on a local disk that you may write",
            id="a folder for data that cannot be made",
        ),
    ],
)
def test_process_pods_do_not_start_with(args: list[str], message: str) -> None:
    status, out, err = finish(start("--pods", "process", *args, controllers=True))
    assert (status, out) == (1, "")
    assert message in err
    assert "serving at" not in err
    assert "Traceback" not in err


#: A busy machine may hold a handler up: the log says so, rightly.
SLOW = "kept the event loop waiting"


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def test_with_controllers_it_is_small_says_little_and_takes_bodies_of_any_size(kubeconfig: Path) -> None:
    process = start("--kubeconfig", str(kubeconfig), controllers=True)
    url, _ = ready(process)
    assert process.stderr is not None
    started = ""

    def is_before(line: str) -> bool:
        nonlocal started
        started = line.rstrip("\n")
        return bool(line) and "caches are synced" not in line

    said = itertools.takewhile(is_before, process.stderr)
    lines = [line for line in said if SLOW not in line]
    assert ["serving at" in line for line in lines] == [True], lines
    assert re.search(r" caches are synced, starting \d+ controllers? and 1 more$", started)
    assert len(started) <= 120
    value = "v" * 2_000_000
    large = json.dumps({"kind": "ReplicaSet", "spec": {}, "metadata": {"name": "a", "annotations": {"a": value}}}).encode()
    request = urllib.request.Request(f"{url}/apis/apps/v1/namespaces/default/replicasets", large, {"Content-Type": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, context=administrator(kubeconfig))
    with refused.value:
        assert "metadata.annotations: Too long: may not be more than 262144 bytes" in refused.value.read().decode()
    # The response comes before the server has released the body.
    deadline = time.monotonic() + 10
    while (size := resident_bytes(process.pid)) >= 100 * 2**20:
        assert time.monotonic() < deadline, f"{size / 2**20:.1f} MiB are resident"
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    status, out, err = finish(process)
    assert (status, out, [line for line in err.splitlines() if SLOW not in line]) == (0, "", [])


OTHER = """\
kind: Config
clusters: [{name: prod, cluster: {server: https://prod}}]
users: [{name: jane, user: {token: secret}}]
contexts: [{name: prod, context: {cluster: prod, user: jane}}]
"""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(
            OTHER, "holds other entries (jane, prod), which would be lost, so it is left as it is", id="a kubeconfig of other clusters"
        ),
        pytest.param("my notes", "exists and is not a kubeconfig, so it is left as it is; name another file", id="a file of another kind"),
    ],
)
def test_it_does_not_overwrite(kubeconfig: Path, content: str, message: str) -> None:
    kubeconfig.write_text(content)
    status, out, err = finish(start("--kubeconfig", str(kubeconfig)))
    assert (status, out) == (1, "")
    assert f"Error: {kubeconfig}: {message}" in err
    assert "Traceback" not in err
    assert kubeconfig.read_text() == content


def test_a_path_that_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="/dev/null: not a regular file"):
        writable_target(Path("/dev/null"))
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "target")
    assert writable_target(link) == tmp_path / "target"


def test_it_replaces_the_kubeconfig_of_a_former_run(running: subprocess.Popen[str], kubeconfig: Path) -> None:
    ready(running)
    before = kubeconfig.read_text()
    again = start("--kubeconfig", str(kubeconfig))
    url, _ = ready(again)
    again.terminate()
    assert finish(again)[0] == 0
    assert (load_config(kubeconfig).server, kubeconfig.read_text() != before) == (url, True)


def test_without_its_extra_it_says_what_to_install(kubeconfig: Path) -> None:
    code = "import sys; sys.modules['cryptography'] = None; from kubeloop.cli import main; main()"
    arguments = [sys.executable, "-c", code, "server", "--kubeconfig", str(kubeconfig)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    expected = "Error: the embedded server needs cryptography, which is not installed: pip install 'kubeloop[server]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", expected)
    assert not kubeconfig.exists()


def test_it_ends_with_the_program_that_started_it(kubeconfig: Path) -> None:
    process = start("--kubeconfig", str(kubeconfig), "--exit-with-stdin", stdin=subprocess.PIPE)
    ready(process)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(10) == 0
    process.stdin = None
    process.communicate()


def test_help_needs_no_server() -> None:
    shown = subprocess.run([sys.executable, "-m", "kubeloop", "--help"], capture_output=True, text=True, check=True).stdout
    assert re.search(r"^  server +Run the embedded Kubernetes API server\.$", shown, re.MULTILINE)
