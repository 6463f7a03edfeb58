"""``python -m tools.mutants MODULE``: change a module in small ways and count the changes that its tests notice.

MODULE is a module or a package, such as ``kubeloop.workqueue``. Its tests are those below the folder of ``tests`` with the same name, or
``--tests PATH ...``. A first run of the tests notes which lines each executes. For each mutation a copy of this process (fork) gets the
changed functions and runs the tests that execute the changed lines, the quickest first, until one fails. No file is written: the work tree
stays as it is. Statements outside of functions are not changed, nor is what a test starts as a separate process, such as a server: the
score is that of the lines that tests execute in their own process, and the number of the others is printed beside it.

A mutation is killed if a test fails or does not end in time. The others are printed as diffs, with the score.

Exit status: 0, also with survivors; 1 if the tests fail without a change, or none executes the module.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import random
import signal
import struct
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tools.mutations import Mutation, mutations

ROOT = Path(__file__).resolve().parents[1]
#: Seconds of tests that one mutation may take when all pass.
_BUDGET = 60.0
#: The default limit; on a loaded machine a start of a server takes some seconds.
_LIMIT = 10.0


@dataclass
class Options:
    """What the command line says. ``sample`` 0 means all mutations; ``seed`` chooses which; ``tests`` are paths.

    A test ends in time within ``limit`` seconds and five times what it takes without a change.
    """

    module: str
    tests: list[str]
    sample: int
    seed: int
    limit: float


@dataclass
class Coverage:
    """The tests that passed without a change: seconds of each, and by file and line the tests that execute the line."""

    seconds: dict[str, float] = field(default_factory=dict)
    executing: dict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    failed: list[str] = field(default_factory=list)


def source_files(module: str) -> list[Path]:
    """The files of a module, and of the modules below it."""
    loaded = importlib.import_module(module)
    assert loaded.__file__ is not None
    names = [module]
    if hasattr(loaded, "__path__"):
        names += [each.name for each in pkgutil.walk_packages(loaded.__path__, f"{module}.") if not each.name.endswith("__main__")]
    return sorted({Path(str(importlib.import_module(name).__file__)) for name in names})


def default_tests(module: str) -> list[str]:
    """The folder or files of ``tests`` that mirror a module."""
    *folders, name = module.split(".")[1:]
    parent = ROOT.joinpath("tests", *folders)
    if (parent / name).is_dir():
        return [str(parent / name)]
    return [str(path) for path in sorted(parent.glob(f"test_{name}*.py"))] or [str(parent)]


class Runner:
    """The pytest plugin that runs the mutations instead of the tests."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.status = 0

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        files = source_files(self.options.module)
        items = {item.nodeid: item for item in session.items}
        coverage = _coverage(session.items, {str(path) for path in files})
        for name in coverage.failed:
            print(f"left out, fails without a change: {name}")
        if not coverage.executing:
            print(f"no test of {', '.join(self.options.tests)} that passes executes {self.options.module}; name its tests with --tests")
            self.status = 1
            return True
        chosen = [(path, mutation) for path in files for mutation in mutations(path.read_text())]
        total = len(chosen)
        if 0 < self.options.sample < total:
            chosen = random.Random(self.options.seed).sample(chosen, self.options.sample)
            chosen.sort(key=lambda each: (each[0], each[1].lines))
        functions = _functions({str(path) for path in files})
        results: dict[str, list[tuple[Path, Mutation]]] = defaultdict(list)
        for number, (path, mutation) in enumerate(chosen, 1):
            result = self._try(path, mutation, functions, items, coverage)
            results[result].append((path, mutation))
            print(f"{number}/{len(chosen)} {path.name}:{mutation.lines[0]} {result}", file=sys.stderr, flush=True)
            if result in ("survived", "not executed"):
                print(f"\n{result}:\n{mutation.diff(path.read_text(), _shown(path))}", flush=True)
        killed, alive = len(results["killed"]) + len(results["timed out"]), len(results["survived"])
        score = f"{100 * killed / (killed + alive):.0f} %" if killed + alive else "none"
        unapplied, unexecuted, late = (len(results[name]) for name in ("not applicable", "not executed", "timed out"))
        print(
            f"\n{self.options.module}: {killed} of {killed + alive} mutations killed ({score}), {late} of them by a time limit;"
            f" not counted are {unexecuted} in lines that no test executes in its own process, and {unapplied} that cannot be applied to a"
            f" loaded module; {len(chosen)} of {total} mutations tried"
        )
        return True

    def _try(
        self,
        path: Path,
        mutation: Mutation,
        functions: dict[tuple[str, str, int], list[FunctionType]],
        items: dict[str, pytest.Item],
        coverage: Coverage,
    ) -> str:
        names: set[str] = set()
        for line in range(mutation.lines[0], mutation.lines[1] + 1):
            names |= coverage.executing.get((str(path), line), set())
        if not names:
            return "not executed"
        chosen: list[pytest.Item] = []
        seconds = 0.0
        for name in sorted(names, key=lambda name: (coverage.seconds[name], name)):
            seconds += coverage.seconds[name]
            if chosen and seconds > _BUDGET:
                break
            chosen.append(items[name])

        def work(extend: Callable[[float], None]) -> int:
            if not _apply(path, mutation, functions):
                return 2
            for item, following in _with_next(chosen):
                extend(self.options.limit + 5 * coverage.seconds[item.nodeid])
                if not _run(item, following):
                    return 1
            return 0

        status = _in_copy(work, self.options.limit)
        return {0: "survived", 1: "killed", 2: "not applicable", None: "timed out"}.get(status, "killed")


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def _in_copy(work: Callable[[Callable[[float], None]], int], limit: float) -> int | None:
    """Call ``work`` in a copy of this process and return what it returns; None: it did not end in time.

    ``work`` gets a function that it calls with the seconds until its next call or its end; the first call comes within ``limit`` seconds.
    """
    sys.stdout.flush()
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setsid()
            silent = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(silent, number)
            status = work(partial(_send, writing))
        finally:
            os._exit(status)
    os.close(writing)
    deadline = time.monotonic() + limit
    try:
        while time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                if records := os.read(reading, 1 << 16):
                    deadline = time.monotonic() + struct.unpack("d", records[-8:])[0]
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
        return None
    finally:
        os.close(reading)
        _end_group(pid)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _send(writing: int, seconds: float) -> None:
    os.write(writing, struct.pack("d", seconds))


def _end_group(pid: int) -> None:
    """End a copy and the servers that its tests started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _run(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Run a test; whether it passed."""
    reports = runtestprotocol(item, log=False, nextitem=following)
    return all(report.passed for report in reports)


def _with_next(items: Sequence[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    return zip(items, [*items[1:], None], strict=True)


def _coverage(items: Sequence[pytest.Item], files: set[str]) -> Coverage:
    """Run the tests in a copy and note the lines of ``files`` that each executes."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "coverage"

        def work(extend: Callable[[float], None]) -> int:
            with target.open("w") as stream:
                for item, following in _with_next(items):
                    lines: set[tuple[str, int]] = set()
                    began = time.monotonic()
                    extend(300)
                    with _tracing(files, lines):
                        passed = _run(item, following)
                    record = {"name": item.nodeid, "passed": passed, "seconds": time.monotonic() - began, "lines": sorted(lines)}
                    stream.write(json.dumps(record) + "\n")
                    stream.flush()
            return 0

        _in_copy(work, _LIMIT)
        coverage = Coverage()
        for text in target.read_text().splitlines():
            record = json.loads(text)
            if not record["passed"]:
                coverage.failed.append(record["name"])
                continue
            coverage.seconds[record["name"]] = record["seconds"]
            for file, line in record["lines"]:
                coverage.executing[file, line].add(record["name"])
        return coverage


@contextlib.contextmanager
def _tracing(files: set[str], lines: set[tuple[str, int]]) -> Iterator[None]:
    """Note the lines of ``files`` that this thread and the threads that it starts execute."""

    def local(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return local

    def trace(frame: FrameType, _event: str, _: Any) -> Any:
        return local if frame.f_code.co_filename in files else None

    threading.settrace(trace)
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)
        threading.settrace(None)


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _functions(files: set[str]) -> dict[tuple[str, str, int], list[FunctionType]]:
    """The functions of the loaded modules of ``files``, those in closures and wrapped ones too."""
    gc.unfreeze()  # frozen objects are not listed
    found: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename in files:
            found[_key(each.__code__)].append(each)
    return found


def _apply(path: Path, mutation: Mutation, functions: dict[tuple[str, str, int], list[FunctionType]]) -> bool:
    """Give the loaded functions their changed code; whether there are any."""
    before = _code_of(compile(path.read_text(), str(path), "exec", dont_inherit=True), mutation)
    after = _code_of(compile(mutation.source, str(path), "exec", dont_inherit=True), mutation)
    if before is None or after is None:
        return False
    applied = False
    for old, new in _pairs(before, after):
        for function in functions.get(_key(old), ()):
            try:
                function.__code__ = new
            except ValueError:  # the mutation changes which variables of the function around it are used
                return False
            applied = True
    return applied


def _code_of(code: CodeType, mutation: Mutation) -> CodeType | None:
    """The code of the function around a mutation."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if (inner.co_qualname, inner.co_firstlineno) == (mutation.function, mutation.first):
                return inner
            if (found := _code_of(inner, mutation)) is not None:
                return found
    return None


def _pairs(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    yield before, after
    inner = [[each for each in code.co_consts if isinstance(each, CodeType)] for code in (before, after)]
    for old, new in zip(*inner, strict=False):
        if old.co_name == new.co_name:
            yield from _pairs(old, new)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="make mutants", description="Change a module in small ways and count the changes that its tests notice."
    )
    parser.add_argument("module", help="such as kubeloop.workqueue")
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH", help="tests of the module (default: those with its name)")
    parser.add_argument("--sample", type=int, default=0, metavar="NUMBER", help="try so many mutations (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="chooses the sample (default: 1)")
    limit_help = f"time of a test, beside five times what it takes without a change (default: {_LIMIT:g})"
    parser.add_argument("--limit", type=float, default=_LIMIT, metavar="SECONDS", help=limit_help)
    parsed = parser.parse_args(arguments)
    options = Options(parsed.module, parsed.tests or default_tests(parsed.module), parsed.sample, parsed.seed, parsed.limit)
    runner = Runner(options)
    # Output is not captured here: copies print nothing, and only the results matter.
    status = pytest.main(["-q", "-s", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", *options.tests], plugins=[runner])
    return runner.status or (0 if status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) else int(status))


if __name__ == "__main__":
    sys.exit(main())
