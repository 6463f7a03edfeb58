"""What no module does without a reason that stands here: swallow a cancellation, bypass the clock, or run a task without an owner."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import kubeloop

SOURCES = Path(kubeloop.__file__).parent

#: A finding: the function it stands in, and the code.
Finding = tuple[str, str]


def catches_cancellation(node: ast.AST) -> str:
    """An ``except`` that catches cancellations and raises nothing; or one of ``suppress``."""
    if isinstance(node, ast.ExceptHandler):
        caught = _names(node.type)
        raises = any(isinstance(part, ast.Raise) for statement in node.body for part in ast.walk(statement))
        if not raises and caught & {"everything", "CancelledError", "BaseException"}:
            return f"except {', '.join(sorted(caught))}"
    if isinstance(node, ast.Call) and _name(node.func) == "suppress":
        caught = set().union(*(_names(one) for one in node.args))
        if caught & {"CancelledError", "BaseException"}:
            return f"suppress({', '.join(sorted(caught))})"
    return ""


def raises_in_a_group_handler(node: ast.AST) -> str:
    """A ``raise`` in ``except*``: Python 3.11.2 puts the error into an ExceptionGroup (CPython issue 103590)."""
    if isinstance(node, ast.TryStar):
        parts = [part for handler in node.handlers for statement in handler.body for part in ast.walk(statement)]
        if any(isinstance(part, ast.Raise) for part in parts):
            return "raise in except*"
    return ""


def waits_for_the_end(node: ast.AST) -> str:
    """``asyncio.wait`` for all of some tasks: a second cancellation ends it, and leaves them running."""
    if isinstance(node, ast.Call) and _dotted(node.func) == "asyncio.wait":
        named = {one.arg for one in node.keywords}
        return "" if named & {"timeout", "return_when"} else "asyncio.wait"
    return ""


def bypasses_the_clock(node: ast.AST) -> str:
    """A reading of a clock, a pause or a limit that goes past ``kubeloop.timing.Clock``."""
    if isinstance(node, ast.ImportFrom) and node.module == "time":
        return "from time import"
    if isinstance(node, ast.Attribute):
        text = _dotted(node)
        if text in ("time.monotonic", "time.time", "time.perf_counter", "time.sleep", "datetime.now", "datetime.utcnow"):
            return text
    if not isinstance(node, ast.Call):
        return ""
    function = _dotted(node.func)
    if function in ("asyncio.timeout", "asyncio.timeout_at", "asyncio.sleep") and node.args:
        constant = node.args[0].value if isinstance(node.args[0], ast.Constant) else ...
        return "" if constant in (None, 0) else function
    if function == "asyncio.wait_for":
        return function
    if function == "asyncio.wait" and any(one.arg == "timeout" for one in node.keywords):
        return "asyncio.wait(timeout=)"
    receiver, _, method = function.rpartition(".")
    if receiver.endswith(("loop", "get_running_loop()")) and method in ("time", "call_later", "call_at"):
        return f"loop.{method}"
    return ""


def starts_a_lasting_task(node: ast.AST) -> str:
    """A task that is kept in an attribute, so that it outlives the call that starts it, without a ``Supervisor``."""
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        kept = [one for target in targets for one in ast.walk(target) if isinstance(one, ast.Attribute)]
        if kept:
            called = [_name(one.func) for one in ast.walk(node.value) if isinstance(one, ast.Call)]
            if {"create_task", "ensure_future"} & set(called):
                return ast.unparse(kept[0])
    return ""


def _names(node: ast.expr | None) -> set[str]:
    if node is None:
        return {"everything"}
    if isinstance(node, ast.Starred):
        return _names(node.value)
    if isinstance(node, ast.Tuple):
        return set().union(*map(_names, node.elts))
    return set() if "concurrent" in _dotted(node) else {_name(node)}


def _name(node: ast.expr) -> str:
    return _dotted(node).rpartition(".")[2]


def _dotted(node: ast.expr) -> str:
    """``asyncio.get_running_loop().time`` and the like; of another expression nothing but its attributes."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return f"{_dotted(node.func)}()" if isinstance(node, ast.Call) else ""


#: What a module holds that anything can be found in.
_WORDS = re.compile(r"asyncio|CancelledError|BaseException|except:|\btime\b|\.now\b|loop")


#: Nodes that a finding can be.
_KINDS = (ast.ExceptHandler, ast.TryStar, ast.Call, ast.Attribute, ast.ImportFrom, ast.Assign, ast.AnnAssign)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
#: Nodes below which there is none of them.
_LEAVES = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop, ast.alias)


@cache
def modules() -> dict[Path, list[tuple[str, ast.AST]]]:
    """The nodes of all modules in which something may be found, each with the function or class that it stands in."""
    texts = {file: file.read_text() for file in sorted(SOURCES.rglob("*.py")) if file.relative_to(SOURCES).parts[0] != "api"}
    return {file: nodes(text) for file, text in texts.items() if _WORDS.search(text)}


def nodes(text: str) -> list[tuple[str, ast.AST]]:
    """Those nodes that a finding can be, each with the function or class that it stands in; in no order. There are a million nodes."""
    found: list[tuple[str, ast.AST]] = []
    left: list[tuple[ast.AST, str]] = [(ast.parse(text), "")]
    while left:
        node, within = left.pop()
        if isinstance(node, _SCOPES):
            within = f"{within}.{node.name}" if within else node.name
        if isinstance(node, _KINDS):
            found.append((within, node))
        for value in vars(node).values():
            if isinstance(value, list):
                left += [(one, within) for one in value if isinstance(one, ast.AST) and not isinstance(one, _LEAVES)]
            elif isinstance(value, ast.AST) and not isinstance(value, _LEAVES):
                left.append((value, within))
    return found


def findings(among: list[tuple[str, ast.AST]], find: Callable[[ast.AST], str]) -> Iterator[Finding]:
    """Each finding, with the function or class that it stands in."""
    return ((within, found) for within, node in among if (found := find(node)))


def all_findings(find: Callable[[ast.AST], str]) -> Counter[str]:
    """Findings in all modules, by package and function: modules move more often."""
    return Counter(
        f"{file.relative_to(SOURCES).parts[0]} {within}: {found}"
        for file, among in modules().items()
        for within, found in findings(among, find)
    )


#: Where a cancellation is caught and not raised, and why the caller's own is not lost.
CAUGHT = {
    "blocking EnteredContext._hold": "hands the cancellation to the __aexit__ of the block, and the task ends with it",
    "blocking in_own_thread.ask.job": "runs in a thread; the error is raised where it is awaited",
    "cache Registration._call": "_contain raises the task's own cancellation",
    "cache Registration._finish": "_contain raises the task's own cancellation",
    "controller ThreadExecutor._work": "runs in a thread; the error is raised in the loop",
    "controller Workers._attempt": "a clause above raises the task's own cancellation",
    "tasks wait_all": "raised when all futures are done",
    "tasks end_tasks": "raised when all tasks have ended",
    "tasks Supervisor.stop": "raised when all tasks have ended",
    "tasks close_all": "raised when all steps have run",
    "transport _Streamed._fill": "the last step of a task that is cancelled by its owner only",
}

#: Where all of some tasks are awaited and a second cancellation may leave them running, and why.
WAITS = {
    "controller _end": "work that ignores a second cancellation keeps its lease until that expires",
    "controller Group.cancel": "work of the program that ignores its cancellation; a second signal ends the process",
    "controller Runner._called": "a reconcile in a thread, which cannot be ended",
    "proxy PythonCallable._in_loop": "ends the task when it is cancelled; a callable may ignore that",
    "proxy PythonCallable._in_thread": "a call in a thread, which cannot be ended",
    "proxy SharedCall._run": "the earlier call is that of other callers; close ends both",
    "serving Listener._until_end": "ends the stream when it is cancelled",
    "tasks wait_all": "waits again",
    "testing _ended": "runs in finish, which a second cancellation does not interrupt",
    "tasks result_of": "leaves the future running on purpose; the caller ends it",
    "tasks wait_within": "cancels nothing",
}

_REAL = "a process or a person of this machine, whose time is real"
_COST = "measures what work costs, which only the machine's clock can tell"
_KUBELET = "a limit of one socket to a kubelet; no clock is injected there"
_SOCKET = "limits of one socket of a listener, against peers whose time is real; no clock is injected there"
_CERTIFICATE = "the validity of certificates, which TLS compares with the machine's clock"
_SHOWN = "the time of day, shown to a person"
_BACKEND = "a limit of one socket to an aggregated server; no clock is injected there"
_IN_PROCESS = "the silence of a server in this process, by the loop that both run in; the limit of the request goes by the clock"
_IN_TESTS = "testing waits for real servers and programs"

#: Functions, and whole packages, that bypass ``kubeloop.timing.Clock``, and why.
CLOCKS = {
    "apiserver Admission._measured": _COST,
    "apiserver Backends.get_from": _BACKEND,
    "apiserver proxy_to_service": _BACKEND,
    "apiserver AuditLog._rotate": "the name of a rotated file",
    "apiserver Authenticator._of_certificate": _CERTIFICATE,
    "apiserver FlowControl.": "shares the time of the event loop, which is the machine's",
    "reverseproxy Backend.connect": _KUBELET,
    "apiserver _refused": _KUBELET,
    "reverseproxy _Translation._command": _KUBELET,
    "reverseproxy _pings": _KUBELET,
    "reverseproxy _refusal": _KUBELET,
    "apiserver : time.time": "the start of the process",
    "apiserver ServingCertificates._mark": _CERTIFICATE,
    "apiserver _untrusted": _CERTIFICATE,
    "blocking LoopThread._end": "the end of a thread, for callers in other threads",
    "cache ObservableInformers._write_dump": _SHOWN,
    "cache Lister.stream_heads": _COST,
    "cache ReflectorTarget.": _COST,
    "cli ": _REAL,
    "meta list_html": _SHOWN,
    "client PortStream.finish": "the last words of a connection that has ended",
    "client ExecSession._receive": "the last words of a connection that has ended",
    "client WriteListeners.now": "compared with the times of the cache, which are perf_counter's",
    "config _locked": _REAL,
    "config run": _REAL,
    "controller set_condition": "the default of an argument: the time of day in an object",
    "controller contained": "hooks have no clock; the API server that waits for the answer has the machine's",
    "controller Endpoint.__init__": "the default of an argument",
    "http1 BufferedConnection._read_by_peer": _SOCKET,
    "http1 _now": "the Date header",
    "pki ": _CERTIFICATE,
    "serving ": _SOCKET,
    "testing ": _IN_TESTS,
    "kubelet ContainerProcess.close": "waits for a process, which lives in real time",
    "kubelet ContainerProcess.copy_output": "waits for the pipes of a process that has ended, which live in real time",
    "kubelet Launcher.close": "waits for the pipes of a process that has ended, which live in real time",
    "kubelet _over_spdy": "waits for the client to close its socket, which lives in real time",
    "kubelet remove_tree": "waits for killed processes to leave a cgroup, which live in real time",
    "kubelet _stored": "a certificate ends in real time",
    "timing ": "the clocks themselves",
    "transport InProcessSender.send": _IN_PROCESS,
    "transport _Streamed.chunk": _IN_PROCESS,
    "transport _plugins": _CERTIFICATE,
}

#: Tasks without a ``Supervisor``: who ends them, and who learns of their failure.
TASKS = {
    "kubelet ContainerProcess.open": "ends with the process, whose end it reports; close awaits it",
    "apiserver SqliteStorage._add": "writes what waits; its errors are those of the writes, and close awaits it",
    "apiserver WatchCache.start": "its failure ends all watches and fails the check etcd of /livez and /readyz",
    "blocking RunningCall._start": "a call of another thread, which gets the error",
    "blocking EnteredContext._enter": "a block of another thread, which gets the error",
    "client PortStream.__init__": "ends with its connection; close logs its error",
    "client PortTransport.__init__": "a failure closes the connection, and is logged",
    "client PortTransport._lose": "a failure is logged by Forwarding.close",
    "client WebSocket.__init__": "ends with its connection",
    "controller EventSender.start": "a failure costs the events of one step, is logged, and the sender goes on",
    "controller Background.run": "run awaits it: its failure stops the manager",
    "controller Group._run": "its failure stops the manager, which raises it",
    "controlplane ElectedRunnable.run": "run awaits it: its failure stops the manager",
    "controller Leadership.begin": "its failure stops the manager, which raises it",
    "controller Leadership._stand": "its failure stops the manager, which raises it",
    "proxy SharedCall.__call__": "its callers get the error, and close ends it",
    "serving ServerConnection.connection_made": "answers one connection, and ends with it",
    "tasks SupervisedTask.__init__": "the supervisor itself",
    "transport _Streamed.__init__": "the reader of the stream gets its error",
}

CHECKS = pytest.mark.parametrize(
    ("find", "allowed", "advice"),
    [
        pytest.param(catches_cancellation, CAUGHT, "raise it, or use end_tasks, finish or wait_all", id="a cancellation is swallowed"),
        pytest.param(raises_in_a_group_handler, {}, "raise after the try statement", id="an error is put into a group"),
        pytest.param(waits_for_the_end, WAITS, "use end_tasks or wait_all", id="a second cancellation leaves tasks running"),
        pytest.param(bypasses_the_clock, CLOCKS, "use the injected clock: clock.sleep, TimeLimit, wait_within", id="the clock is bypassed"),
        pytest.param(starts_a_lasting_task, TASKS, "use Supervisor.start", id="a task has no supervisor"),
    ],
)


@CHECKS
def test_nowhere_without_a_reason(find: Callable[[ast.AST], str], allowed: dict[str, str], advice: str) -> None:
    found = all_findings(find)
    new = {one: count for one, count in found.items() if not any(one.startswith(reason) for reason in allowed)}
    assert new == {}, f"{advice}; or say in this file why it is right"
    assert [one for one in allowed if not any(each.startswith(one) for each in found)] == [], "reasons for code that is no longer there"


@pytest.mark.parametrize(
    ("find", "code", "expected"),
    [
        (catches_cancellation, "try:\n  await a\nexcept asyncio.CancelledError:\n  pass", 1),
        (catches_cancellation, "try:\n  await a\nexcept (ValueError, CancelledError):\n  return", 1),
        (catches_cancellation, "try:\n  await a\nexcept:\n  log()", 1),
        (catches_cancellation, "with contextlib.suppress(asyncio.CancelledError):\n  await a", 1),
        (catches_cancellation, "try:\n  await a\nexcept BaseException:\n  close()\n  raise", 0),
        (catches_cancellation, "try:\n  await a\nexcept Exception:\n  pass", 0),
        (catches_cancellation, "try:\n  a()\nexcept concurrent.futures.CancelledError:\n  pass", 0),
        (raises_in_a_group_handler, "try:\n  a()\nexcept* OSError as errors:\n  raise first(errors) from None", 1),
        (raises_in_a_group_handler, "try:\n  a()\nexcept* OSError as errors:\n  failure = errors", 0),
        (waits_for_the_end, "await asyncio.wait([a])", 1),
        (waits_for_the_end, "await asyncio.wait([a, b], return_when=asyncio.FIRST_COMPLETED)", 0),
        (bypasses_the_clock, "await asyncio.sleep(1)", 1),
        (bypasses_the_clock, "await asyncio.sleep(0)", 0),
        (bypasses_the_clock, "async with asyncio.timeout(seconds): pass", 1),
        (bypasses_the_clock, "async with asyncio.timeout(None): pass", 0),
        (bypasses_the_clock, "await asyncio.wait_for(a, 5)", 1),
        (bypasses_the_clock, "ends = time.monotonic() + 5", 1),
        (bypasses_the_clock, "asyncio.get_running_loop().call_later(5, end)", 1),
        (bypasses_the_clock, "self._clock.call_later(5, end)", 0),
        (bypasses_the_clock, "await clock.sleep(1)", 0),
        (starts_a_lasting_task, "self._task = asyncio.create_task(work())", 1),
        (starts_a_lasting_task, "task = asyncio.create_task(work())", 0),
        (starts_a_lasting_task, "self._task = tasks.start(work, name='a')", 0),
    ],
)
def test_a_check_finds(find: Callable[[ast.AST], str], code: str, expected: int) -> None:
    assert len(list(findings(nodes(code), find))) == expected
