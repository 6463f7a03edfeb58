"""Transcripts: what a user types, and what kubectl prints. Run against any server; recorded from a real one.

A transcript is a text file::

    ## a remark
    <<< book.yaml            a file in the folder where commands run, up to >>>
    kind: ConfigMap
    >>>
    $ kubectl apply -f book.yaml
    configmap/book created

``$`` begins a command (``{ns}`` is the namespace of the run), what follows is its output, first stdout, then stderr. ``[1]`` ends the
output of a command that exits with that status. Variables may stand before the command: ``$ KUBE_EDITOR=... kubectl edit ...``.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.kubectl.runner import kubectl_binary, kubectl_environment

#: Seconds for one command.
_PATIENCE = 60.0


@dataclass(frozen=True)
class Remark:
    """Lines that nothing is done about: remarks, empty lines."""

    text: str


@dataclass(frozen=True)
class File:
    name: str
    content: str


@dataclass(frozen=True)
class Command:
    """A command, and what it printed when it was recorded."""

    line: str
    output: str


Part = Remark | File | Command


def parse(text: str) -> list[Part]:
    """Raises ValueError: a line belongs to nothing."""
    parts: list[Part] = []
    lines = iter(text.splitlines())
    output: list[str] | None = None
    command = ""

    def finish() -> None:
        nonlocal output
        if output is not None:
            parts.append(Command(command, "\n".join(output).rstrip("\n")))
        output = None

    for number, line in enumerate(lines, start=1):
        if line.startswith("$ "):
            finish()
            command, output = line[2:], []
        elif line.startswith("<<< "):
            finish()
            content = []
            for each in lines:
                if each == ">>>":
                    break
                content.append(each)
            parts.append(File(line[4:].split()[0], "\n".join(content) + "\n"))
        elif line.startswith("## "):
            finish()
            parts.append(Remark(line))
        elif output is not None:
            output.append(line)
        elif not line:
            parts.append(Remark(line))
        else:
            raise ValueError(f"line {number} is neither a remark, a file, a command nor its output: {line!r}")
    finish()
    return parts


def written(parts: Iterable[Part]) -> str:
    """The text of a transcript; the inverse of ``parse`` but for empty lines."""
    found: list[str] = []
    for part in parts:
        if isinstance(part, Remark):
            if part.text:
                found.append(part.text)
        elif isinstance(part, File):
            found.append(f"<<< {part.name}\n{part.content}>>>")
        else:
            found.append(f"$ {part.line}\n{part.output}".rstrip("\n") + "\n")
    return "\n".join(found).rstrip("\n") + "\n"


@dataclass(frozen=True)
class Session:
    """Where commands run: a kubeconfig, a namespace, a home and a folder."""

    kubeconfig: Path
    namespace: str
    home: Path
    folder: Path

    def play(self, parts: Iterable[Part]) -> Iterator[Part]:
        """The same parts, each command with what it prints now."""
        for part in parts:
            if isinstance(part, File):
                (self.folder / part.name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / part.name).write_text(part.content.replace("{ns}", self.namespace))
                yield part
            elif isinstance(part, Command):
                yield Command(part.line, plain(self._run(part.line), self.namespace))
            else:
                yield part

    def _run(self, line: str) -> str:
        words = shlex.split(line.replace("{ns}", self.namespace))
        environment = kubectl_environment(self.home, self.kubeconfig)
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            environment[name] = value
        if words.pop(0) != "kubectl":
            raise ValueError(f"a transcript runs kubectl and nothing else: {line!r}")
        command = [kubectl_binary(), "--namespace", self.namespace, *words]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            env=environment,
            check=False,
            cwd=self.folder,
        )
        printed = "".join(each if each.endswith("\n") or not each else each + "\n" for each in (done.stdout, done.stderr))
        return printed + (f"[{done.returncode}]\n" if done.returncode else "")


_DAYS = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}"
#: What differs from run to run, and what stands for it. In this order.
_CHANGING = tuple(
    (re.compile(pattern), word)
    for pattern, word in (
        (r"[IWE]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ", "<log> "),
        (r"(LIVE|MERGED)-\d+/", r"\1/"),
        (r"/\S*?/(?=(?:LIVE|MERGED)/)", "<folder>/"),
        (r"\t\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ [+-]\d{4}$", " <time>"),
        (r"https://127\.0\.0\.1:\d+", "<server>"),
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z", "<time>"),
        (_DAYS, "<date>"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? [+-]\d{4} UTC", "<date>"),
        (r"(Resource Version: +)\d+", r"\1<rv>"),
        (r"kube-api-access-[a-z0-9]{5}", "kube-api-access-<name>"),
        (r"\bnode-debugger-(\S+)-[a-z0-9]{5}\b", r"node-debugger-\1-<name>"),
        (r"\b(web|agent)-[bcdfghjklmnpqrstvwxz2456789]{8,10}-[bcdfghjklmnpqrstvwxz2456789]{5}\b", r"\1-<hash>-<name>"),
        (r"\bweb-[bcdfghjklmnpqrstvwxz2456789]{8,10}\b", "web-<hash>"),
        (r"\bdebugger-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "debugger-<name>"),
        (r"kubeloop://[0-9a-f]{64}", "kubeloop://<id>"),
        (r"\(x(\d+) over [\dsmhd]+\)", r"(x\1 over <age>)"),
        (r"\bagent-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "agent-<name>"),
        (r"\bweb-[a-z0-9]{8,10} \(", "web-<hash> ("),
        (r"pod-template-hash=[a-z0-9]{8,10}\b", "pod-template-hash=<hash>"),
        (r"(resourceVersion\\?[\":]+ ?\\?\"?)\d+", r"\1<rv>"),
        (r"(uid\\?[\":]+ ?\\?\"?)<uid>", r"\1<uid>"),
        (r"\b10\.(?:0|244)\.\d{1,3}\.\d{1,3}", "<ip>"),
        (r"\b3\d{4}(?=/|\b)", "<port>"),
        (r"\b(?:\d+y)?(?:\d+d)?(?:\d+h)?(?:\d+m)?\d+s\b(?!\.)(?= |$)", "<age>"),
        (r"\b\d+[mhd](?=$)", "<age>"),
        (r"^(?:\d+y)?\d+d(?=  | \()", "<age>"),
        (r" over (?:\d+y)?\d+d\)", " over <age>)"),
    )
)
#: What kubectl's own watch logs when its time is over, or not, as the moment decides.
_REFLECTOR = re.compile(r"(?m)^[IWE]\d{4} \S+ +\d+ reflector\.go:.*\n?")
#: A real server's repair loop, which runs every three minutes, reports a Service that it met between the write and the allocation.
_REPAIR = re.compile(r"(?m)^Events:\n  Type .*\n  ----.*\n(?:.* ipallocator-repair-controller .*\n)+(?!  )")
_DESCRIPTION = re.compile(r"(?m)^DESCRIPTION:\n(?:    .*\n|\n)+")


def plain(printed: str, namespace: str) -> str:
    """Without what differs from run to run, and without upstream's descriptions; columns are two spaces apart, however wide they were."""
    text = _REFLECTOR.sub("", _DESCRIPTION.sub("", printed)).replace(namespace, "<ns>")
    text = _REPAIR.sub("Events:  <none>\n", text)
    lines = []
    for line in text.splitlines():
        changed = line.rstrip()
        for pattern, word in _CHANGING:
            changed = pattern.sub(word, changed)
        indent = len(changed) - len(changed.lstrip(" "))
        lines.append(changed[:indent] + re.sub(r" {2,}", "  ", changed[indent:]))
    return "\n".join(lines).strip("\n")
