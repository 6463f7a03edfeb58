"""Files of recorded answers: one step per line, in a folder for each Kubernetes version that they come from.

The first line is the recording without its steps. So ``git diff`` between two versions shows the steps that answer otherwise.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

from kubeloop.types import JSONObject

#: The minor version whose answers are compared.
KUBERNETES = "1.36"
FOLDER = Path(__file__).parent / "recorded" / KUBERNETES
_PLAIN, _COMPRESSED = ".jsonl", ".jsonl.gz"


def files(which: str) -> Iterator[Path]:
    """Yield the recordings of a set (``plain``, ``with-controllers``, ``sweep``) by name."""
    return iter(sorted(one for one in (FOLDER / which).iterdir() if one.name.endswith((_PLAIN, _COMPRESSED))))


def name_of(file: Path) -> str:
    """Return the name of the scenario of a recording."""
    return file.name.removesuffix(".gz").removesuffix(_PLAIN)


def path_of(which: str, name: str) -> Path:
    """Return the path of a recording; those of the sweep are compressed."""
    return FOLDER / which / f"{name}{_COMPRESSED if which == 'sweep' else _PLAIN}"


def load(file: Path) -> JSONObject:
    """Read a recording: ``scenario``, ``steps``, ``rvOrder``, and in the sweep ``script``."""
    content = file.read_bytes()
    head, *steps = (gzip.decompress(content) if file.suffix == ".gz" else content).splitlines()
    recording: JSONObject = json.loads(head)
    recording["steps"] = [json.loads(step) for step in steps]
    return recording


def save(file: Path, recording: JSONObject) -> None:
    """Write a recording: the same bytes for the same recording."""
    head = {key: value for key, value in recording.items() if key != "steps"}
    lines = [json.dumps(one, separators=(",", ":"), ensure_ascii=False) for one in (head, *recording["steps"])]
    content = ("\n".join(lines) + "\n").encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(content, 9, mtime=0) if file.suffix == ".gz" else content)
