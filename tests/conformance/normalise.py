"""Makes two runs comparable: values that differ from run to run become placeholders that keep their relations."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

from tests.conformance.trees import dig

#: Cluster IPs; a network's address is none.
ADDRESS = re.compile(r"\b10\.0\.0\.\d{1,3}\b(?!/)")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
JWT = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]+")
AGE = re.compile(r"^(\d+[smhdy])+( ago)?$")
LONG = 3000
HASH_LABELS = ("pod-template-hash", "controller-revision-hash")


class Names:
    """Placeholders that keep relations: the same value gets the same one, named after the step that first showed it."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.known: dict[Any, str] = {}
        self.count: dict[int, int] = {}

    def of(self, value: Any, step: int) -> str:
        if value not in self.known:
            count = self.count[step] = self.count.get(step, 0) + 1
            self.known[value] = f"<{self.kind}@{step}>" if count == 1 else f"<{self.kind}@{step}.{count}>"
        return self.known[value]


def is_collection(doc: Any) -> bool:
    kind = doc.get("kind", "") if isinstance(doc, dict) else ""
    return isinstance(kind, str) and (kind == "Table" or (kind.endswith("List") and "items" in doc))


def normalise(steps: list[dict[str, Any]], sent: str) -> dict[str, Any]:
    """``sent`` is the script's own text: what it says literally stays."""
    return _Normaliser(sent).run(steps)


class _Normaliser:
    def __init__(self, sent: str) -> None:
        self.sent = sent
        self.quoted = set(sent.split('"'))
        self.addresses = set(ADDRESS.findall(sent))
        self.rvs, self.uids, self.names, self.ips, self.ports = Names("rv"), Names("uid"), Names("name"), Names("ip"), Names("port")
        self.ordered: list[str] = []
        self.by_length: list[tuple[str, str]] = []

    def run(self, steps: list[dict[str, Any]]) -> dict[str, Any]:
        for step in steps:
            self._collect(step["body"], step["step"])
            self._hashes(step["body"], step["step"])
            self._generated(step)
        self.ordered = sorted(self.rvs.known, key=int)
        self.by_length = sorted(self.names.known.items(), key=lambda pair: -len(pair[0]))
        done = [
            {
                "step": step["step"],
                "request": self._request(step["request"], step["step"]),
                "status": step["status"],
                "headers": self._change(step["headers"], step["step"]),
                "body": self._change(step["body"], step["step"]),
            }
            for step in steps
        ]
        return {"steps": done, "rvOrder": [self.rvs.known[version] for version in self.ordered]}

    def _name(self, value: str, number: int, prefix: str) -> None:
        if value not in self.names.known:
            self.names.known[value] = prefix + self.names.of(value, number)

    def _collect(self, doc: Any, number: int, bookmark: bool = False) -> None:
        """First pass: object resourceVersions and generated names."""
        if isinstance(doc, list):
            for item in doc:
                self._collect(item, number)
        if not isinstance(doc, dict):
            return
        meta = doc.get("metadata")
        if isinstance(meta, dict):
            version = meta.get("resourceVersion")
            if isinstance(version, str) and version.isdigit() and int(version) > 0 and not is_collection(doc) and not bookmark:
                self.rvs.of(version, number)
            prefix, name = meta.get("generateName"), meta.get("name")
            if prefix and isinstance(name, str) and name.startswith(prefix) and len(name) == len(prefix) + 5 and name not in self.quoted:
                self._name(name, number, prefix)
        for key in sorted(doc):
            self._collect(doc[key], number, doc.get("type") == "BOOKMARK" and key == "object")

    def _hashes(self, doc: Any, number: int) -> None:
        """Hashes that controllers put into names and labels."""
        if isinstance(doc, dict):
            for label in HASH_LABELS:
                value = doc.get(label)
                if isinstance(value, str) and value.split("-")[-1] not in self.names.known and value not in self.quoted:
                    value = value.split("-")[-1]
                    self.names.known[value] = self.names.of(value, number).replace("<name", "<hash")
        for item in doc.values() if isinstance(doc, dict) else doc if isinstance(doc, list) else ():
            self._hashes(item, number)

    def _generated(self, step: dict[str, Any]) -> None:
        prefix = dig(step["request"], "body.metadata.generateName")
        if prefix:
            for name in sorted(set(re.findall(re.escape(prefix) + r"[bcdfghjklmnpqrstvwxz2456789]{5}\b", json.dumps(step["body"])))):
                self._name(name, step["step"], prefix)

    def _at_least(self, version: str) -> str:
        below = [known for known in self.ordered if int(known) <= int(version)]
        return f"<list-rv from {self.rvs.known[below[-1]]}>" if below else "<list-rv>"

    def _text(self, value: str, number: int, key: str | None) -> str:
        sent = self.sent
        for name, placeholder in self.by_length:
            value = value.replace(name, placeholder)
        value = UUID.sub(lambda m: m[0] if m[0] in sent and m[0] not in self.uids.known else self.uids.of(m[0], number), value)
        value = STAMP.sub(
            lambda m: m[0] if m[0] in sent and key not in ("creationTimestamp", "time") else "<microtime>" if m[1] else "<time>", value
        )
        value = JWT.sub("<jwt>", value)
        value = re.sub(r"\n@@ -.*", "\n<diff>", value, flags=re.DOTALL)
        value = re.sub(r"kube-api-access-[a-z0-9]{5}\b", "kube-api-access-<random>", value)
        value = ADDRESS.sub(lambda m: m[0] if m[0] in self.addresses else self.ips.of(m[0], number), value)
        value = re.sub(
            r"\b(\d+):(3[0-2]\d{3})/(TCP|UDP|SCTP)",
            lambda m: m[0] if m[2] in sent else f"{m[1]}:{self.ports.of(int(m[2]), number)}/{m[3]}",
            value,
        )
        value = re.sub(r"(too old resource version: \d+) \(\d+\)", r"\1 (<rv>)", value)
        value = re.sub(r"(Too large resource version: \d+, current:) \d+", r"\1 <rv>", value)
        value = re.sub(r"(127\.0\.0\.1|localhost):\d{4,5}", "<host>", value)
        if "esource version" in value or "esourceVersion" in value:
            value = re.sub(r"\b\d{2,}\b", lambda m: self.rvs.known.get(m[0], m[0]), value)
        if len(value) > LONG and not value.startswith("{"):
            return f"<{len(value)} characters, sha256 {hashlib.sha256(value.encode()).hexdigest()[:12]}>"
        return value

    def _change(self, doc: Any, number: int, key: str | None = None, bookmark: bool = False) -> Any:
        if isinstance(doc, dict):
            return self._object(doc, number, bookmark)
        if isinstance(doc, list):
            if key == "cells":
                doc = ["<age>" if isinstance(cell, str) and AGE.match(cell) else cell for cell in doc]
            return [self._change(item, number, key) for item in doc]
        if isinstance(doc, str):
            if doc in self.rvs.known and (key == "resourceVersion" or (key == "value" and doc not in self.quoted)):
                return self.rvs.known[doc]
            if key == "continue" and doc and doc not in self.sent.split("continue=")[:1]:
                return _continuation(doc)
            return self._text(doc, number, key)
        if isinstance(doc, int) and not isinstance(doc, bool):
            if key in ("nodePort", "healthCheckNodePort") and doc and str(doc) not in self.sent:
                return self.ports.of(doc, number)
            if key in ("iat", "nbf", "exp", "warnafter"):
                return "<unixtime>"
        return doc

    def _object(self, doc: dict[str, Any], number: int, bookmark: bool) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name in sorted(doc):
            value = doc[name]
            if (
                name == "metadata"
                and isinstance(value, dict)
                and isinstance(value.get("resourceVersion"), str)
                and (is_collection(doc) or bookmark)
            ):
                version = value["resourceVersion"]
                value = value | {"resourceVersion": self._at_least(version) if version.isdigit() and int(version) > 0 else version}
            # A key of fieldsV1 may hold a uid: k:{"uid":"..."}.
            shown = UUID.sub(lambda m: self.uids.known.get(m[0], m[0]), name)
            out[shown] = self._change(value, number, name, doc.get("type") == "BOOKMARK" and name == "object")
        if isinstance(out.get("managedFields"), list):
            order = ("operation", "manager", "apiVersion", "subresource")
            out["managedFields"].sort(key=lambda entry: tuple(str(entry.get(part)) for part in order))
        return out

    def _request(self, doc: dict[str, Any], number: int) -> dict[str, Any]:
        out: dict[str, Any] = self._change(doc, number)

        def version(match: re.Match[str]) -> str:
            if match[0] in self.sent and match[2] not in self.rvs.known:
                return match[0]
            return match[1] + (self.rvs.known.get(match[2]) or self._at_least(match[2]))

        path = re.sub(r"(resourceVersion=)(\d+)", version, out["path"])
        out["path"] = re.sub(r"(continue=)(eyJ[\w=%-]+)", r"\1<continue>", path)
        return out


def _continuation(token: str) -> str:
    try:
        inner = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except ValueError:
        return "<continue>"
    return "<continue start=" + repr(inner.get("start")) + ">"
