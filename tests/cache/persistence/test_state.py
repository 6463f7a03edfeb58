"""State files byte by byte: a written file is read again, and any other content is refused."""

from __future__ import annotations

import io
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.cache.blobs.blob_store import BlobStore
from kubeloop.cache.blobs.head import Head, HeadReader, StringInterner
from kubeloop.cache.blobs.retention import LEAN
from kubeloop.cache.persistence import state as state_module
from kubeloop.cache.persistence.state import Stamp, StateHeader, StateReader, write_state
from kubeloop.cache.persistence.state_file import CorruptStateFile, Folder

JSON = dict[str, Any]
PATHS = ("spec.nodeName", "spec.ports[*]", "spec.extra")
STAMP = Stamp("uid x", "v1", "Pod", None, None, None, LEAN.form, PATHS)


def reader() -> HeadReader:
    return HeadReader("v1", "Pod", PATHS, BlobStore(), StringInterner())


def pod(number: int, **spec: Any) -> JSON:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"rs-{number % 3}", "uid": "u", "controller": True}
    metadata = {
        "name": f"p{number}",
        "namespace": f"ns-{number % 2}",
        "uid": f"u{number}",
        "resourceVersion": str(number),
        "generation": number,
    }
    metadata |= {"labels": {"app": f"a{number % 4}"}, "ownerReferences": [owner]} if number % 5 else {}
    metadata |= {"deletionTimestamp": "2026-01-01T00:00:00Z"} if number % 7 == 0 else {}
    blob = random.Random(number % 8).randbytes(2000).hex()
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {"nodeName": f"n{number % 3}", "blob": blob, **spec}}


RESTORING = reader()


def heads(made_by: HeadReader, trees: list[JSON]) -> list[Head]:
    made_by.archive.begin_list()
    documents = [msgspec.json.encode(tree) for tree in trees]
    made = [made_by.head(made_by.projection.object(each), memoryview(each), None) for each in documents]
    made_by.archive.end_list()
    return made


def saved(made: list[Head], made_by: HeadReader) -> bytes:
    return b"".join(write_state(StateHeader(STAMP, "99", len(made)), made, made_by))


def restored(content: bytes) -> list[Head]:
    state = StateReader(io.BytesIO(content))
    assert not state.header.stamp.differs(STAMP)
    return [head for some in state.slices(RESTORING) for head in some]


def facts(head: Head) -> tuple[Any, ...]:
    named = (head.namespace, head.name, head.uid, head.resource_version, head.generation, dict(head.labels))
    return (*named, head.owner_references, head.deletion_timestamp, [head.value(path) for path in PATHS], head.document())


def test_heads_with_labels_owners_values_and_dictionaries_are_read_as_they_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "SLICE", 70)
    made_by = reader()
    made = heads(made_by, [pod(number, ports=[80, number], extra={"deep": [number, None, 1.5]}) for number in range(300)])
    assert made_by.archive.dictionaries >= 1
    again = restored(saved(made, made_by))
    assert list(map(facts, again)) == list(map(facts, made))
    assert again[1].labels is again[1 + 4 * 5 * 3].labels, "equal label sets are one"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=6,
)


@settings(max_examples=80)
@given(st.lists(st.fixed_dictionaries({"nodeName": st.none() | st.text(max_size=5), "ports": VALUES, "extra": VALUES}), max_size=4))
def test_whatever_lies_at_the_paths_comes_back(specs: list[JSON]) -> None:
    made_by = reader()
    made = heads(made_by, [pod(number, **spec) for number, spec in enumerate(specs)])
    assert list(map(facts, restored(saved(made, made_by)))) == list(map(facts, made))


def test_no_byte_can_be_changed_without_notice() -> None:
    made_by = reader()
    content = saved(heads(made_by, [pod(number) | {"spec": {}} for number in range(3)]), made_by)
    for place in range(len(content)):
        for changed in (content[place] ^ 1, content[place] ^ 0x80, 0 if content[place] else 255):
            with pytest.raises(CorruptStateFile):
                restored(content[:place] + bytes([changed]) + content[place + 1 :])


def test_no_byte_can_be_missing_without_notice() -> None:
    made_by = reader()
    content = saved(heads(made_by, [pod(number) | {"spec": {}} for number in range(3)]), made_by)
    for length in range(len(content)):
        with pytest.raises(CorruptStateFile):
            restored(content[:length])


def test_a_record_of_another_file_does_not_fit() -> None:
    made_by = reader()
    one, two = (saved(heads(made_by, [pod(number) | {"spec": {}}]), made_by) for number in (1, 2))
    assert len(one) == len(two)
    with pytest.raises(CorruptStateFile):
        restored(one[:-200] + two[-200:])


def test_a_write_that_fails_leaves_the_old_file_and_no_half_of_a_new_one(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cache")
    folder.open()
    with folder.writing("a.state") as file:
        file.write(b"old")

    def fail() -> None:
        with folder.writing("a.state") as file:
            file.write(b"ne")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert (folder.path / "a.state").read_bytes() == b"old"
    assert sorted(path.name for path in folder.path.iterdir()) == ["a.state", "lock"]
    folder.close()


KILLED = """
import sys, time
from pathlib import Path
from kubeloop.cache.persistence.state_file import Folder
folder = Folder(Path(sys.argv[1])); folder.open()
with folder.writing("a.state") as file:
    file.write(b"new"); file.flush(); print("half", flush=True); time.sleep(60)
"""


def test_a_process_killed_in_the_middle_of_a_write_leaves_the_old_file_and_frees_the_folder(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cache")
    folder.open()
    with folder.writing("a.state") as file:
        file.write(b"old")
    folder.close()
    with subprocess.Popen([sys.executable, "-c", KILLED, str(folder.path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"half\n"
        os.kill(process.pid, signal.SIGKILL)
    folder.open()
    found = folder.reading("a.state")
    assert found is not None
    with found:
        assert found.read() == b"old"
    assert sorted(path.name for path in folder.path.iterdir()) == ["a.state", "lock"]
    folder.close()
