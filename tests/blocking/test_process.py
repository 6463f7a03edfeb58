"""Behaviour that needs a separate process: Ctrl-C, forks, the end of the interpreter. Each script runs with warnings as errors."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
from dataclasses import dataclass

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.meta import AlreadyExists, ObjectMeta
from tests.servers import ServerUnderTest

# A server that takes requests and never answers. ``requested`` is called when a whole request has come; ``gone`` holds what came of a
# connection's end.
SILENT = """
import atexit, os, queue, signal, socket, sys, threading
from kubeloop.blocking import Client, Transport
from kubeloop.config import ClusterConfig
from kubeloop.api.core.v1 import ConfigMap

listener = socket.create_server(("127.0.0.1", 0))
atexit.register(listener.close)
gone = queue.SimpleQueue()

# The parent process may ignore SIGINT, as shells do for background processes; Python raises no KeyboardInterrupt then.
signal.signal(signal.SIGINT, signal.default_int_handler)

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

def serve(requested, answer=b""):
    connection, _ = listener.accept()
    with connection:
        head = b""
        while b"\\r\\n\\r\\n" not in head:
            head += connection.recv(65536)
        connection.sendall(answer)
        requested()
        gone.put(connection.recv(65536))

def start(requested, answer=b""):
    threading.Thread(target=serve, args=(requested, answer)).start()

def silent_client():
    return Client(Transport(ClusterConfig(server=f"http://127.0.0.1:{listener.getsockname()[1]}")), namespace="default")

WATCHING = b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
"""
FEW = 30


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def run(script: str, *arguments: str) -> Ended:
    command = [sys.executable, "-W", "error", "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)


INTERRUPTED = {
    "a request": """
start(interrupt)
with silent_client() as client:
    client.get(ConfigMap, "a")
""",
    "a page of a list": """
start(interrupt)
with silent_client() as client:
    next(iter(client.list_stream(ConfigMap)))
""",
    "a watch": """
start(interrupt, WATCHING)
with silent_client() as client, client.watch(ConfigMap, resource_version="7") as events:
    next(iter(events))
""",
    "a block that is being entered": """
start(interrupt)
with silent_client() as client, client.transport.stream("GET", "/") as opened:
    pass
""",
    "the body of a block": """
start(interrupt, WATCHING)
with silent_client() as client, client.transport.stream("GET", "/") as opened:
    threading.Event().wait()
""",
}


def test_ctrl_c_ends_what_runs_and_its_request_and_nothing_is_left() -> None:
    script = SILENT
    for name, body in INTERRUPTED.items():
        script += f"try:{textwrap.indent(body, '    ')}except KeyboardInterrupt:\n    print({name!r}, gone.get(timeout={FEW}))\n"
    assert run(script) == Ended(0, "".join(f"{name} b''\n" for name in INTERRUPTED), "")


def test_a_client_goes_on_after_ctrl_c() -> None:
    answer = 'b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok"'
    script = f"""{SILENT}
with silent_client() as client:
    start(interrupt)
    try:
        client.get(ConfigMap, "a")
    except KeyboardInterrupt:
        gone.get(timeout={FEW})
    start(lambda: None, {answer})
    print(client.transport.request("GET", "/").body)
"""
    assert run(script) == Ended(0, "b'ok'\n", "")


def test_a_function_that_exits_ends_its_call_and_not_the_loop() -> None:
    script = f"""{SILENT}
from kubeloop.blocking import retry_on_error
def refuse(error):
    raise SystemExit(3)
def attempt():
    raise LookupError
try:
    retry_on_error(attempt, refuse)
except SystemExit as error:
    print("exit", error.code)
with silent_client() as client:
    print(client.namespace)
"""
    assert run(script) == Ended(0, "exit 3\ndefault\n", "")


SAMPLE = """
import sys
from kubeloop.api.core.v1 import ConfigMap
from kubeloop.blocking import Client, InformerFactory
"""


@pytest.mark.embedded
@pytest.mark.parametrize(
    "body",
    [
        pytest.param("raise SystemExit", id="an unclosed client"),
        pytest.param(
            "watch = client.watch(ConfigMap).__enter__(); next(iter(watch)); "
            "stream = iter(client.list_stream(ConfigMap, limit=1)); next(stream)",
            id="a watch that goes on, and a list that was left in the middle",
        ),
        pytest.param(
            "informers = InformerFactory(client).__enter__(); informers.for_kind(ConfigMap).on_event(added=print); del informers",
            id="informers that run",
        ),
    ],
)
def test_the_interpreter_ends_without_a_word(server: ServerUnderTest, body: str) -> None:
    with contextlib.suppress(AlreadyExists):
        server.administrator.create(ConfigMap(metadata=ObjectMeta(name="listed", namespace="default")))
    made = "client = Client.from_config(sys.argv[1]); client.list(ConfigMap)"
    ended = run(f"{SAMPLE}\n{made}\n{body}", str(server.kubeconfig))
    assert (ended.code, ended.err) == (0, "")


@pytest.mark.embedded
def test_an_unreferenced_client_closes_its_connections() -> None:
    answer = 'b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok"'
    script = f"""{SILENT}
client = silent_client()
start(lambda: None, {answer})
client.transport.request("GET", "/")
del client
print(gone.get(timeout={FEW}))
"""
    assert run(script) == Ended(0, "b''\n", "")


@pytest.mark.embedded
def test_after_a_fork_a_new_client_works_and_an_old_one_says_why_it_does_not(server: ServerUnderTest) -> None:
    script = f"""{SAMPLE}
import os, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
old = Client.from_config(sys.argv[1])
old.list(ConfigMap)
child = os.fork()
if child == 0:
    try:
        old.list(ConfigMap)
    except RuntimeError as error:
        print(str(error).replace(str(os.getppid()), "PARENT"))
    with Client.from_config(sys.argv[1]) as new:
        print(len(new.list(ConfigMap, label_selector="none=none")))
    sys.exit(0)
print(os.waitpid(child, 0)[1], len(old.list(ConfigMap, label_selector="none=none")))
"""
    ended = run(script, str(server.kubeconfig))
    said = "made in process PARENT, before a fork, and its connections belong to that process: make a new client in this one"
    assert (ended.err, ended.code, ended.out) == ("", 0, f"{said}\n0\n0 0\n")
