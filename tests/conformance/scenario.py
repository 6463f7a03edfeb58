"""Runs one scenario: its steps in order, each answer noted. The format is described in README.md."""

from __future__ import annotations

import base64
import csv
import json
import os
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509

from tests.conformance.normalise import normalise
from tests.conformance.trees import dig, expand, put
from tests.conformance.wire import Headers, Server, Watch, decode, headers_of, plain_bookmark

Step = dict[str, Any]

TYPES = {
    "json": "application/json",
    "yaml": "application/yaml",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "jsonpatch": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
    "applycbor": "application/apply-patch+cbor",
    "cbor": "application/cbor",
    "protobuf": "application/vnd.kubernetes.protobuf",
}
ACCEPTS = {
    "json": "application/json",
    "yaml": "application/yaml",
    "protobuf": "application/vnd.kubernetes.protobuf",
    "table": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "tableonly": "application/json;as=Table;v=v1;g=meta.k8s.io",
    "partial": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "partiallist": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "aggregated": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
}
VERBS = ("get", "post", "put", "patch", "delete", "head", "options")
GROUPS = {
    "apps": "apps/v1",
    "batch": "batch/v1",
    "net": "networking.k8s.io/v1",
    "rbac": "rbac.authorization.k8s.io/v1",
    "policy": "policy/v1",
    "hpa": "autoscaling/v2",
    "coord": "coordination.k8s.io/v1",
    "disc": "discovery.k8s.io/v1",
    "authz": "authorization.k8s.io/v1",
}
ROOTS = {
    "crds": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "authnroot": "/apis/authentication.k8s.io/v1",
    "authzroot": "/apis/authorization.k8s.io/v1",
    "rbacroot": "/apis/rbac.authorization.k8s.io/v1",
    "admission": "/apis/admissionregistration.k8s.io/v1",
}


def scenarios(place: Path) -> Iterator[tuple[str, Step]]:
    """Every scenario of a folder: a file may hold several as YAML documents, each with a name."""
    for file in sorted(place.rglob("*.yaml")):
        for scenario in yaml.load_all(file.read_text(), yaml.CSafeLoader):
            if scenario:
                yield scenario.get("name", file.stem), scenario


def scenario_names(place: Path) -> list[str]:
    """The names of a folder's scenarios, without reading what they do: enough to list the tests."""
    return [name for file in sorted(place.rglob("*.yaml")) for name in re.findall(r"^name: *(\S+)$", file.read_text(), re.MULTILINE)]


class Run:
    """One scenario on one server. ``steps`` holds what was answered; ``surprises`` what the script did not expect."""

    def __init__(self, server: Server, scenario: Step, name: str, timeout: float = 5) -> None:
        self.server, self.scenario, self.name, self.timeout = server, scenario, name, timeout
        ns = scenario["namespace"] if isinstance(scenario.get("namespace"), str) else name
        self.vars: dict[str, Any] = {"ns": ns, "core": f"/api/v1/namespaces/{ns}", **ROOTS}
        self.vars |= {short: f"/apis/{group}/namespaces/{ns}" for short, group in GROUPS.items()}
        for key, value in (scenario.get("vars") or {}).items():
            self.vars[key] = expand(value, self.vars)
        self.watches: dict[str, tuple[Watch, str, Step]] = {}
        self.steps: list[Step] = []
        self.given = json.dumps(scenario, ensure_ascii=False)  # literal values of the script stay as they are in the recording
        self.surprises: list[str] = []

    def run(self) -> dict[str, Any]:
        self._prepare()
        for step in self.scenario["steps"]:
            before = len(self.steps)
            try:
                self.step(step)
            except Exception as error:  # noqa: BLE001 - a server far from the expected one must not shift the numbers of later steps
                self.surprises.append(f"{self.name} step {before + 1} {step}: {error!r}")
                if len(self.steps) == before and not step.get("quiet") and any(key in step for key in (*VERBS, "collect")):
                    method = next((verb for verb in VERBS if verb in step), "watch")
                    request = {"method": method.upper(), "path": str(step.get(method, ""))}
                    self.steps.append({"step": before + 1, "request": request, "status": 0, "headers": {}, "body": {"$error": repr(error)}})
        for watch, _, _ in self.watches.values():
            watch.collect(0, 0, 0)
        recording = {"scenario": self.name, "about": self.scenario.get("about", ""), **normalise(self.steps, self.given)}
        if self.scenario.get("rvOrder") is False:  # objects that the server itself wrote, in no fixed order
            recording["rvOrder"] = []
        return recording

    def _prepare(self) -> None:
        # Lists of the scenario's namespace must not depend on what another scenario left behind: each has its own.
        if not self.scenario.get("namespace", True):
            return
        metadata = {"name": self.vars["ns"], "labels": self.scenario.get("namespaceLabels") or {}}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        self.step({"post": "/api/v1/namespaces", "body": body, "quiet": True, "expect": [201, 409]})
        if self.scenario.get("serviceaccount"):
            body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            self.step({"post": "$core/serviceaccounts", "body": body, "quiet": True, "expect": [201, 409]})

    def step(self, step: Step) -> None:
        step = dict(step)
        if "repeat" in step:
            times = expand(step.pop("repeat"), self.vars)
            for index, value in enumerate(times if isinstance(times, list) else range(times)):
                self.vars |= {"i": index, "it": value}
                self.step(step)
        elif "sleep" in step:
            time.sleep(step["sleep"])
        elif "compact" in step:
            self._compact(int(expand(step["compact"], self.vars)))
        elif "set_vars" in step:
            for key, value in step["set_vars"].items():
                self.vars[key] = expand(value, self.vars)
        elif "watch" in step:
            self._open(step)
        elif "collect" in step:
            self._collect(step)
        else:
            self._request(step)

    def _compact(self, revision: int) -> None:
        if self.server.compact.startswith("http://"):  # etcd's own gateway
            urllib.request.urlopen(self.server.compact, json.dumps({"revision": str(revision)}).encode(), timeout=20).close()
            return
        headers = {"Host": self.server.url.netloc, "Authorization": self.server.authorization("admin"), "Content-Type": "application/json"}
        path = self.server.compact.replace("{revision}", str(revision))
        status, _, data = self.server.request("POST", path, b"{}", headers)
        if status >= 300:
            raise RuntimeError(f"compaction at {revision}: HTTP {status} {data[:200]!r}")

    def _open(self, step: Step) -> None:
        path = expand(step["path"], self.vars)
        path += ("&" if "?" in path else "?") + "watch=1"
        if "timeoutSeconds" not in path:
            path += "&timeoutSeconds=20"
        _, headers, _ = self._message(step)
        self.watches[step["watch"]] = (Watch(self.server, path, headers), path, step)

    def _collect(self, step: Step) -> None:
        watch, path, opened = self.watches[step["collect"]]
        frames = watch.collect(step.get("frames"), step.get("patience", 8), step.get("linger", 0.25))
        shown = step | {"accept": opened.get("accept", "json"), "as": opened.get("as")}
        document = {"frames": settle(frames, bool(step.get("unordered")), "frames" in step)}
        self._record(shown, "WATCH", path, None, watch.response.status, headers_of(watch.response), document)

    def _message(self, step: Step) -> tuple[bytes | None, Headers, Any]:
        """Body and headers of a step, and the body as the recording shows it."""
        headers: Headers = {"Host": self.server.url.netloc, "User-Agent": step.get("agent", "probe/1")}
        accept = step.get("accept", "json")
        if accept is not None:
            headers["Accept"] = ACCEPTS.get(accept, accept)
        authorization = self.server.authorization(expand(step.get("as"), self.vars))
        if authorization:
            headers["Authorization"] = authorization
        body, shown = self._body(step)
        if body is not None and step.get("type") != "none":
            headers["Content-Type"] = TYPES.get(step.get("type", "json"), step.get("type", "json"))
        for key, value in (step.get("headers") or {}).items():
            headers[key] = expand(value, self.vars)
        return body, headers, shown

    def _body(self, step: Step) -> tuple[bytes | None, Any]:
        if "big" in step:
            shown: Any = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"}, "data": {"k": "x" * step["big"]}}
            return json.dumps(shown).encode(), shown
        if "raw" in step:
            shown = expand(step["raw"], self.vars)
            return (shown, {"$bytes": "saved"}) if isinstance(shown, bytes) else (shown.encode(), shown)
        if "body" in step:
            shown = expand(step["body"], self.vars)
            for where, value in (step.get("set") or {}).items():
                put(shown, where, expand(value, self.vars))
            if step.get("type") == "yaml":
                return yaml.safe_dump(shown).encode(), shown
            return json.dumps(shown, separators=(",", ":") if self.scenario.get("dense") else None).encode(), shown
        return None, None

    def _request(self, step: Step) -> None:
        method = next(verb for verb in VERBS if verb in step)
        path = urllib.parse.quote(expand(step[method], self.vars), safe="/?&=%:,;+*()!~@$'")
        deadline = time.monotonic() + step.get("patience", self.timeout)
        while True:
            body, headers, shown = self._message(step)
            status, found, data = self.server.request(method.upper(), path, body, headers)
            document = decode(data, found) if data else None
            if "until" not in step or self._reached(step["until"], status, document):
                break
            if time.monotonic() > deadline:
                self.surprises.append(f"{self.name} step {len(self.steps) + 1} {method.upper()} {path}: never came to {step['until']}")
                break
            time.sleep(0.05)
        if "save_raw" in step:
            self.vars[step["save_raw"]] = data
        source = document.get("$yaml", document) if isinstance(document, dict) else document
        for key, where in (step.get("save") or {}).items():
            self.vars[key] = dig(source, where)
        self._record(step, method.upper(), path, shown, status, found, document)

    @staticmethod
    def _reached(until: Step, status: int, document: Any) -> bool:
        there = dig(document, until["path"]) if "path" in until else None
        return ("status" not in until or until["status"] == status) and (
            "path" not in until or (there is not None if until.get("present") else str(there) == str(until.get("equals")))
        )

    def _record(self, step: Step, method: str, path: str, shown: Any, status: int, headers: Headers, document: Any) -> None:
        number = len(self.steps) + 1
        expected = step.get("expect", status)
        if status not in (expected if isinstance(expected, list) else [expected]):
            self.surprises.append(
                f"{self.name} step {number} {method} {path}: status {status}, expected {expected}: {json.dumps(document)[:200]}"
            )
        if step.get("quiet"):
            return
        if "claims" in step and status < 300:
            part = dig(document, step["claims"]).split(".")[1]
            document["$claims"] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        if "certificate" in step and status < 300 and (content := dig(document, step["certificate"])):
            document["$certificate"] = shown_certificate(base64.b64decode(content))
        if "select" in step and isinstance(document, dict) and status < 300:
            document = {"$select": {where if isinstance(where, str) else " ".join(where): dig(document, where) for where in step["select"]}}
        if step.get("unordered") and isinstance(document, dict):
            _sort(document)
        if "drop" in step and status < 300:
            for where in step["drop"]:
                put(document, where, "<delete>")
        request = {"method": method, "path": path}
        for key in ("as", "accept", "type", "headers", "agent", "note"):
            if step.get(key) is not None:
                request[key] = expand(step[key], self.vars)
        if shown is not None:
            request["body"] = shown
        self.steps.append({"step": number, "request": request, "status": status, "headers": headers, "body": document})


def shown_certificate(content: bytes) -> dict[str, Any]:
    """Return the values of a PEM certificate that do not differ from run to run."""
    certificate = x509.load_pem_x509_certificate(content)
    extensions = {extension.oid.dotted_string: extension for extension in certificate.extensions}
    values: dict[str, Any] = {oid: extension.value for oid, extension in extensions.items()}
    usages = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
    )
    valid = round((certificate.not_valid_after_utc - certificate.not_valid_before_utc).total_seconds())
    return {
        "subject": certificate.subject.rfc4514_string(),
        "keyUsage": [usage for usage in usages if getattr(values.get("2.5.29.15"), usage, False)],
        "extendedKeyUsage": [purpose.dotted_string for purpose in values.get("2.5.29.37", ())],
        "names": [str(name.value) for name in values.get("2.5.29.17", ())],
        "isCA": getattr(values.get("2.5.29.19"), "ca", None),
        "critical": sorted(oid for oid, extension in extensions.items() if extension.critical),
        "extensions": sorted(extensions),
        # A long one ends with the certificate of the authority, which every run makes.
        "valid": f"{valid} seconds" if valid < 30 * 86400 else f"{round(valid / 86400)} days",
    }


def settle(frames: list[Any], unordered: bool, counted: bool) -> list[Any]:
    """Plain bookmarks come by the clock: keep the last one, at the end, and none where the script counts frames."""
    kept = [frame for frame in frames if not plain_bookmark(frame)]
    if unordered:
        kept.sort(key=lambda f: (str(dig(f, "object.metadata.namespace")), str(dig(f, "object.metadata.name")), str(f.get("type"))))
    return kept if counted else kept + [frame for frame in frames if plain_bookmark(frame)][-1:]


def _sort(document: Step) -> None:
    """For answers whose order follows a Go map: sort causes (and the message made of them), rules and items."""
    causes = dig(document, "details.causes") or []
    before = _joined(causes)
    causes.sort(key=lambda cause: (str(cause.get("field")), str(cause.get("reason")), str(cause.get("message"))))
    if before and before in document.get("message", ""):
        document["message"] = document["message"].replace(before, _joined(causes))
    for rules in ("resourceRules", "nonResourceRules"):
        (dig(document, ["status", rules]) or []).sort(key=lambda rule: json.dumps(rule, sort_keys=True))
    if isinstance(document.get("items"), list):
        document["items"].sort(key=lambda item: (str(dig(item, "metadata.namespace")), str(dig(item, "metadata.name"))))


def _joined(causes: list[Step]) -> str:
    """Causes as a message lists them: each text once."""
    return ", ".join(dict.fromkeys(f"{cause.get('field')}: {cause.get('message')}" for cause in causes))


def write_tokens(file: Path) -> None:
    """The users that the scenarios act as, in Kubernetes' token file format."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(["admin-token", "oracle-admin", "admin-uid", "system:masters"])
        rows.writerow(["alice-token", "alice", "alice-uid", "devs"])
        rows.writerow(["bob-token", "bob", "bob-uid", "devs,ops"])
