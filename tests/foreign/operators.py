"""Definitions and samples of well-known operators, fetched from the Go module proxy, and what a server answers to them.

    python -m tests.foreign.operators KUBECONFIG [OPERATOR ...]

writes what a real server answers into ``expected/operators``: conditions of definitions, and of samples the status, the causes and a
fingerprint of the object with its defaults. No text of an operator is in the project.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from kubeloop.client import Client
from kubeloop.codec.yaml import read_yaml
from kubeloop.meta import AlreadyExists, DecodeError, NotFound
from kubeloop.meta.errors import ApiError
from kubeloop.types import JSONObject

HERE: Final = Path(__file__).parent
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
#: Of many samples, so many are tried, spread evenly.
_MOST_SAMPLES: Final = 15
#: Fields of metadata that differ from run to run.
_VOLATILE: Final = ("uid", "creationTimestamp", "resourceVersion", "managedFields", "name", "namespace")


@dataclass(frozen=True)
class Sample:
    """``place``: its file in the module, and which of the file's documents it is."""

    place: str
    document: JSONObject


@dataclass(eq=False)
class Operator:
    """A row of ``operators.yaml``: a Go module, and the folders in it."""

    name: str
    module: str
    sum: str
    definitions: tuple[str, ...]
    samples: tuple[str, ...]

    @property
    def expected(self) -> Path:
        return HERE / "expected" / "operators" / f"{self.name}.txt"

    @functools.cached_property
    def folder(self) -> Path:
        """The module's folder in Go's module cache, fetched if it is not there.

        Raises:
            AssertionError: it cannot be fetched, or is not what the table says; the text is Go's.
        """
        environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"}
        command = ["go", "mod", "download", "-json", self.module]
        done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, (
            f"{' '.join(command)} failed (it needs the Go module proxy):\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
        found = json.loads(done.stdout)
        assert found["Sum"] == self.sum, f"{self.module} is another than that of operators.yaml: {found['Sum']}"
        return Path(found["Dir"])

    def definition_files(self) -> list[Path]:
        files = [file for folder in self.definitions for file in sorted((self.folder / folder).glob("*.yaml"))]
        return [file for file in files if b"kind: CustomResourceDefinition" in file.read_bytes()]

    @functools.cached_property
    def definition_documents(self) -> list[JSONObject]:
        documents = [document for file in self.definition_files() for document in read_yaml(file.read_bytes(), name=file.name)]
        return [{**document, "status": {}} for document in documents if document["kind"] == "CustomResourceDefinition"]

    @functools.cached_property
    def sample_documents(self) -> list[Sample]:
        """Samples of served kinds. Files that are no YAML but templates are left out."""
        served = {
            (f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"])
            for crd in self.definition_documents
            for version in crd["spec"]["versions"]
            if version["served"]
        }
        found: list[Sample] = []
        for folder in self.samples:
            for file in sorted((self.folder / folder).rglob("*.y*ml")):
                with contextlib.suppress(DecodeError):
                    for number, document in enumerate(read_yaml(file.read_bytes(), name=file.name), 1):
                        if (document.get("apiVersion"), document.get("kind")) in served:
                            found.append(Sample(f"{file.relative_to(self.folder)}:{number}", document))
        step = max(1, len(found) / _MOST_SAMPLES)
        return [found[int(index * step)] for index in range(min(len(found), _MOST_SAMPLES))]


def operators() -> dict[str, Operator]:
    rows = yaml.load((HERE / "operators.yaml").read_text(), yaml.CSafeLoader)
    return {row["name"]: Operator(**{**row, "definitions": tuple(row["definitions"]), "samples": tuple(row["samples"])}) for row in rows}


@contextlib.asynccontextmanager
async def installed(client: Client, operator: Operator) -> AsyncIterator[list[str]]:
    """The operator's definitions on the server; yields a line for each. They are gone again behind the context."""
    documents = operator.definition_documents
    try:
        yield [await _install(client, document) for document in documents]
    finally:
        for document in documents:
            with contextlib.suppress(NotFound):
                await client.transport.request("DELETE", f"{_DEFINITIONS}/{document['metadata']['name']}")
        for document in documents:
            await _gone(client, f"{_DEFINITIONS}/{document['metadata']['name']}")


async def _install(client: Client, document: JSONObject) -> str:
    name = document["metadata"]["name"]
    try:
        await client.transport.request("POST", _DEFINITIONS, body=json.dumps(document).encode())
    except AlreadyExists:
        raise AssertionError(f"{name} is on the server already") from None
    except ApiError as refused:
        return f"{name}: {_refusal(refused)}"
    for _ in range(200):
        answer = await client.transport.request("GET", f"{_DEFINITIONS}/{name}")
        conditions = json.loads(answer.body)["status"].get("conditions") or []
        if _expected_of(document["spec"]["group"]) <= {one["type"] for one in conditions if one["status"] == "True"}:
            break
        await asyncio.sleep(0.05)
    return f"{name}: " + ", ".join(sorted(f"{one['type']} {one['status']} {one['reason']}" for one in conditions))


def _expected_of(group: str) -> set[str]:
    """Conditions that are true at last; a real server sets that of Kubernetes' own groups a little later than the other."""
    own = {"KubernetesAPIApprovalPolicyConformant"} if group.endswith((".k8s.io", ".kubernetes.io")) else set()
    return {"Established", *own}


async def _gone(client: Client, path: str) -> None:
    for number in range(1200):
        try:
            if number % 100 == 99:
                # kube-apiserver's finalizer fails while it makes the storage of a definition, and waits longer each time; a change of
                # the definition lets it try again at once.
                patch = {"metadata": {"annotations": {"kubeloop.dev/deleted-for": f"{number // 20} s"}}}
                await client.transport.request("PATCH", path, body=json.dumps(patch).encode(), content_type="application/merge-patch+json")
            await client.transport.request("GET", path)
        except NotFound:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{path} was deleted a minute ago and is still on the server")


async def tried(client: Client, operator: Operator, namespace: str) -> list[str]:
    """A line for each sample: what the server answers to it in a dry run, unknown fields refused."""
    places = {
        (crd["spec"]["group"], crd["spec"]["names"]["kind"]): (crd["spec"]["names"]["plural"], crd["spec"]["scope"])
        for crd in operator.definition_documents
    }
    return [await _try(client, sample, places, namespace) for sample in operator.sample_documents]


async def _try(client: Client, sample: Sample, places: dict[tuple[str, str], tuple[str, str]], namespace: str) -> str:
    document = json.loads(json.dumps(sample.document))
    group = document["apiVersion"].partition("/")[0]
    plural, scope = places[group, document["kind"]]
    path = f"/apis/{document['apiVersion']}/{plural}"
    if scope == "Namespaced":
        document.setdefault("metadata", {})["namespace"] = namespace
        path = f"/apis/{document['apiVersion']}/namespaces/{namespace}/{plural}"
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    for _ in range(100):
        try:
            answer = await client.transport.request("POST", path, query=query, body=json.dumps(document).encode())
        except NotFound:
            await asyncio.sleep(0.1)  # the server does not serve the definition yet
        except ApiError as refused:
            return f"{sample.place} {document['kind']}: {_refusal(refused)}"
        else:
            return f"{sample.place} {document['kind']}: accepted {_fingerprint(json.loads(answer.body))}"
    raise AssertionError(f"{path} is not served")


def _refusal(refused: ApiError) -> str:
    return " ".join(
        [f"refused {refused.status.code} {refused.status.reason}", *sorted(f"{one.field}={one.reason}" for one in refused.causes)]
    )


def _fingerprint(obj: JSONObject) -> str:
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _VOLATILE}
    return hashlib.sha256(json.dumps({**obj, "metadata": metadata}, sort_keys=True).encode()).hexdigest()[:12]


async def _record(kubeconfig: Path, names: list[str]) -> None:
    async with Client.from_config(kubeconfig) as client:
        for name, operator in operators().items():
            if names and name not in names:
                continue
            async with installed(client, operator) as lines:
                refused = any("refused" in line for line in lines)
                lines += [] if refused else await tried(client, operator, "default")
            operator.expected.parent.mkdir(parents=True, exist_ok=True)
            operator.expected.write_text("\n".join(lines) + "\n")
            print(f"{name}: {len(lines)} lines")


if __name__ == "__main__":
    asyncio.run(_record(Path(sys.argv[1]), sys.argv[2:]))
