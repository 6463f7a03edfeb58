"""Commands that run in the tests' own process: what they leave there, and the processes that they start."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import kubeloop
from kubeloop.cli.new import changes


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Commands set up logging for all of the process; the tests after them must not notice."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    levels = {name: logger.level for name, logger in root.manager.loggerDict.items() if isinstance(logger, logging.Logger)}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, logger in root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger):
            logger.setLevel(levels.get(name, logging.NOTSET))


#: Reads a request from each line, and answers with the status of the copy of this process that it runs the program in.
_FORKS = """
import json, os, sys
import kubeloop.api.apps.v1, kubeloop.cli.generate, kubeloop.cli.generators, kubeloop.client.waits, kubeloop.controller.permissions
import kubeloop.controller.children.writer, kubeloop.controller.controllerutil.status_writer, kubeloop.controller.webhooks.server
for line in sys.stdin:
    request = json.loads(line)
    if (copy := os.fork()) == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]), flush=True)
else:
    sys.exit()
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for number in (1, 2):
    os.dup2(os.open(f"{request['output']}.{number}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
os.chdir(request["folder"])
sys.argv[1:] = request["arguments"]
exec(request["program"], {"__name__": "__main__"})
"""


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Like ``subprocess.run`` of a Python program, in the copy of a process that has imported what ``kubeloop generate`` imports.

    Folder, arguments, output and status are as in a new process, whose imports would take half a second of the processor each time.
    """
    output = tmp_path_factory.mktemp("forks") / "output"
    environment = {**os.environ, "PYTHONPATH": str(Path(kubeloop.__file__).parent.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", _FORKS], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        requests, statuses = process.stdin, process.stdout
        assert requests is not None
        assert statuses is not None

        def run(words: list[str], *, cwd: Path, **_options: object) -> subprocess.CompletedProcess[str]:
            python, option, program, *arguments = words
            assert (python, option) == (sys.executable, "-c")
            request = {"folder": str(cwd.absolute()), "program": program, "arguments": arguments, "output": str(output)}
            requests.write(json.dumps(request) + "\n")
            requests.flush()
            status = int(statuses.readline())
            written, errors = (Path(f"{output}.{number}").read_text() for number in (1, 2))
            return subprocess.CompletedProcess(words, status, written, errors)

        yield run


@pytest.fixture
def forked_generate(forks: Callable[..., subprocess.CompletedProcess[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """``kubeloop new`` and ``kubeloop add`` make manifests in forks."""
    monkeypatch.setattr(changes, "subprocess", SimpleNamespace(run=forks))
