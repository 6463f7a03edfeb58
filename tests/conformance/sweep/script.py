"""The generated scenario of one resource: creations, updates, patches, subresources and deletions, valid and not."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from kubeloop.schema import ResourceInfo, TypeSchema, builtin
from kubeloop.types import JSONObject
from tests.conformance.sweep.values import Values
from tests.conformance.trees import dig, expand, put

Step = dict[str, Any]

HINTS: dict[str, JSONObject] = yaml.load(Path(__file__).with_name("kinds.yaml").read_text(), yaml.CSafeLoader)
_FIELDS = 40
_UPDATES = 24

#: Requests for certificates are compared too, so that one is given.
CSR = (Path(__file__).parent / "request.b64").read_text().strip()


def resources() -> list[ResourceInfo]:
    """The resources of a default server that can be created, without bindings; both versions of a kind that has two."""
    return [one for one in builtin().resources() if "create" in one.verbs and one.gvr.resource != "bindings"]


def title(resource: ResourceInfo) -> str:
    """The scenario's name: ``autoscaling-v1-horizontalpodautoscalers``."""
    gvr = resource.gvr
    return "-".join(part for part in (gvr.group.split(".")[0], gvr.version, gvr.resource) if part)


class Script:
    """Makes the steps of one resource. ``maximal`` is an object that a real server accepted, once it is known."""

    def __init__(self, resource: ResourceInfo) -> None:
        gvr = resource.gvr
        self.resource = resource
        self.hint = HINTS[gvr.resource + (f".{gvr.group}" if gvr.group else "")]
        schemas = builtin()
        root = schemas.kind(resource.gvk)
        assert root is not None, resource.gvk
        self.root: TypeSchema = root
        self.values = Values(schemas)
        prefix = f"/apis/{gvr.group}/{gvr.version}" if gvr.group else f"/api/{gvr.version}"
        #: Kinds that a server does not store are only created.
        self.is_stored = "delete" in resource.verbs
        self.collection = f"{prefix}/namespaces/$ns/{gvr.resource}" if resource.namespaced else f"{prefix}/{gvr.resource}"
        self.name = self.hint.get("name", "a" if resource.namespaced else f"sweep-{gvr.resource}")
        self.path = f"{self.collection}/{self.name}"
        self.variables = {"ns": title(resource), "csr": CSR}
        skipped = self.hint.get("skip", [])
        most = self.hint.get("fields", _FIELDS)
        self.fields = [(".".join(path), node) for path, node in self.values.fields(self.root, most) if ".".join(path) not in skipped]
        self.nodes = dict(self.fields)

    def body(self, fields: Mapping[str, Any] = {}, name: str | None = None, **metadata: Any) -> JSONObject:
        """The smallest object, with these fields."""
        base: JSONObject = expand(copy.deepcopy(self.hint["body"]), self.variables)
        named = {"name": name or self.name} if self.is_stored else {}
        base["metadata"] = {**named, **base.get("metadata", {}), **metadata}
        made = {"apiVersion": self.resource.gvk.api_version, "kind": self.resource.kind, **base}
        for path, value in fields.items():
            self.set(made, path, value)
        return made

    def set(self, obj: JSONObject, path: str, value: Any) -> None:
        """Set a field; parents that lack get what they require."""
        parts = path.split(".")
        for end in range(1, len(parts)):
            parent = ".".join(parts[:end])
            if parent in self.nodes and not dig(obj, parent):
                put(obj, parent, expand(self.values.good(parent, self.nodes[parent], everything=False), self.variables))
        put(obj, path, value)

    def good(self, path: str, *, everything: bool = True) -> Any:
        return expand(self.values.good(path, self.nodes[path], everything=everything), self.variables)

    def filled(self) -> JSONObject:
        """All fields at once, whether or not they go together."""
        made = self.body()
        for path in self.nodes:
            if path.count(".") == 0:
                put(made, path, self.good(path))
        if "status" in self.root.properties:
            made["status"] = expand(self.values.good("status", self.root.properties["status"]), self.variables)
        return made

    def steps(self, maximal: JSONObject | None) -> list[Step]:
        """All steps; cleaning up comes last."""
        made = self._all(maximal)
        if self.hint.get("unordered"):
            return [step | {"unordered": True} for step in made if step.get("accept") != "yaml"]
        return made

    def _all(self, maximal: JSONObject | None) -> list[Step]:
        made = [*self._creations(), *self._fields()]
        if not self.is_stored:
            return made
        made += [*self._reads(), *self._updates(), *self._patches(), *self._subresources(), *self.hint.get("also", [])]
        return [*made, *self._deletions(), *self._maximal(maximal)]

    def _dry(self, body: Any, **also: Any) -> Step:
        return {"post": f"{self.collection}?dryRun=All" if self.is_stored else self.collection, "body": body, **also}

    def _creations(self) -> Iterator[Step]:
        yield self._dry(self.body())
        yield self._dry(self.filled())
        yield self._dry(self.filled(), type="yaml", accept="yaml")
        bare = {"apiVersion": self.resource.gvk.api_version, "kind": self.resource.kind}
        yield self._dry({**bare, "metadata": {}})
        yield self._dry({**bare, "metadata": {"name": self.name}})
        yield self._dry({**self.body(), "apiVersion": "example.com/v1"})
        yield self._dry({**self.body(), "kind": "Other"})
        yield self._dry(self.body(namespace="other"))
        bad = {"bad key!": "bad value!"}
        yield self._dry(self.body(name="Bad Name!", labels=bad, annotations={"bad key!": "x"}, finalizers=["bad"]))
        yield self._dry(
            self.body(
                ownerReferences=[
                    {"apiVersion": "v1", "kind": "", "name": "", "uid": ""},
                    {"apiVersion": "v1", "kind": "Event", "name": "a", "uid": "b"},
                ]
            )
        )
        yield self._dry(self.body(uid="b", resourceVersion="7"))
        yield self._dry(
            self.body(generation=5, selfLink="/a", creationTimestamp="2030-01-02T03:04:05Z", deletionTimestamp="2030-01-02T03:04:05Z")
        )
        unknown = {**self.body(), "unknown": 1, "metadata": {**self.body()["metadata"], "strange": True}}
        separator = "&" if self.is_stored else "?"
        for validation in ("Strict", "Warn", "Ignore"):
            step = self._dry(unknown)
            yield {**step, "post": f"{step['post']}{separator}fieldValidation={validation}"}
        yield {**self._dry({}), "raw": "{]"}
        yield {**self._dry([])}
        yield self._dry(self.body(labels={"a": 1}))
        yield self._dry(self.body(generateName="Bad_", name=""))
        if self.is_stored:
            yield self._dry(self.body(), **{"as": "alice"})

    def _fields(self) -> Iterator[Step]:
        for path in self.nodes:
            yield self._dry(self.body({path: self.good(path)}))
        bad = [(path, value) for path, node in self.nodes.items() if (value := self.values.bad(path, node)) is not None]
        for one, other in itertools.zip_longest(bad[::2], bad[1::2]):
            yield self._dry(self.body(dict([one, other] if other else [one])))
        wrong = {"string": 7, "integer": "x", "boolean": "yes", "array": {"a": 1}, "object": "x"}
        decodable = [(path, builtin().resolve(node).type) for path, node in self.nodes.items()]
        for kind, value in wrong.items():
            for path in [path for path, type_ in decodable if type_ == kind][:2]:
                yield self._dry(self.body({path: value}))

    def _reads(self) -> Iterator[Step]:
        yield {"post": self.collection, "body": self.body(labels={"app": "a"}), "save": {"uid": "metadata.uid"}}
        yield from self._awaited(self.path)
        yield {"get": self.path}
        yield {"get": self.path, "accept": "table"}
        yield {"get": self.path, "accept": "partial"}
        yield {"get": f"{self.collection}?fieldSelector=metadata.name={self.name}", "accept": "table"}
        yield {"get": f"{self.collection}?labelSelector=app%3Da,app!%3Db&fieldSelector=metadata.name%3D{self.name}"}
        yield {"get": f"{self.collection}?fieldSelector=spec.strange=a"}
        yield {"get": f"{self.collection}?labelSelector=a+in+b"}
        yield {"post": self.collection, "body": self.body()}
        yield {"get": self.path, "as": "alice"}
        # Before there are several managers, whose order hangs on the clock: the message shows the whole object.
        yield {"patch": f"{self.path}?fieldValidation=Strict", "type": "merge", "body": {"unknown": 1}}

    def _awaited(self, path: str, *, fullest: bool = False) -> Iterator[Step]:
        """Wait for the status that the server itself writes: its write races with the next request, on a real server too."""
        until = self.hint.get("awaitFullest" if fullest else "await") or self.hint.get("await")
        if until:
            yield {"get": path, "until": until, "quiet": True}

    def _updates(self) -> Iterator[Step]:
        def replace(body: JSONObject, query: str = "?dryRun=All") -> Step:
            return {"put": self.path + query, "body": body}

        yield replace(self.body(labels={"app": "b"}))
        yield replace(self.body(name="other-name"))
        yield replace(self.body(uid="11111111-2222-3333-4444-555555555555"))
        yield replace(self.body(resourceVersion="1"))
        yield replace(self.body(resourceVersion="x"))
        yield replace({**self.body(), "metadata": {}})
        yield replace(self.body(name="Bad Name!", labels={"bad key!": "b"}))
        yield replace(self.body(labels={"bad key!": "b"}, annotations={"bad key!": "x"}, finalizers=["bad"]))
        yield {"put": f"{self.collection}/missing?dryRun=All", "body": self.body(name="missing")}
        yield replace(self.filled())
        chosen = [path for path in self.nodes if path.count(".") <= 1]
        for path in chosen[:_UPDATES]:
            yield replace(self.body({path: self.good(path)}))
        for one, other in zip(chosen[:_UPDATES:2], chosen[1:_UPDATES:2], strict=False):
            values = {path: self.values.bad(path, self.nodes[path]) for path in (one, other)}
            yield replace(self.body({path: value for path, value in values.items() if value is not None}))
        for path in [path for path in chosen if dig(self.body(), path) is not None][:6]:
            changed = self.body()
            put(changed, path, "<delete>")
            yield replace(changed)
        yield replace(self.body(labels={"app": "b"}, annotations={"a": "b"}), "?fieldManager=editor")
        yield replace(self.body(labels={"app": "b"}, annotations={"a": "b"}), "?fieldManager=editor")

    def _patches(self) -> Iterator[Step]:
        def patch(body: Any, type_: str, query: str = "") -> Step:
            return {"patch": self.path + query, "type": type_, "body": body}

        yield patch({"metadata": {"labels": {"tier": "x", "app": None}}}, "merge")
        yield patch({"metadata": {"labels": {"bad key!": "x"}}}, "merge")
        yield patch({"metadata": {"name": "other-name"}}, "merge")
        yield patch({"metadata": {"annotations": {"b": "c", "a": None}}}, "strategic")
        yield patch({"metadata": {"$patch": "bad"}}, "strategic")
        yield patch(
            [{"op": "test", "path": "/metadata/labels/tier", "value": "x"}, {"op": "add", "path": "/metadata/labels/app", "value": "a"}],
            "jsonpatch",
        )
        yield patch([{"op": "remove", "path": "/metadata/strange"}], "jsonpatch")
        yield patch([{"op": "test", "path": "/kind", "value": "x"}], "jsonpatch")
        chosen = [path for path in self.nodes if path.count(".") <= 1]
        for path in chosen[:12]:
            sparse: JSONObject = {}
            self.set(sparse, path, self.good(path))
            yield patch(sparse, "merge", "?dryRun=All")
            yield patch(sparse, "strategic", "?dryRun=All")
            full = self.body()
            self.set(full, path, self.good(path))
            yield patch(full, "apply", "?fieldManager=one&dryRun=All&force=true")
        for path in chosen[:6]:
            sparse = {}
            put(sparse, path, None)
            yield patch(sparse, "merge", "?dryRun=All")
        yield patch(self.body(labels={"app": "z"}), "apply")
        # Upstream lists conflicts with several managers in no fixed order.
        yield patch(self.body(labels={"app": "z"}), "apply", "?fieldManager=one") | {"unordered": True}
        yield patch(self.body(labels={"app": "z", "by": "one"}), "apply", "?fieldManager=one&force=true")
        yield patch(self.body(labels={"app": "y"}), "apply", "?fieldManager=two") | {"unordered": True}
        yield patch(self.body(labels={"app": "z"}), "apply", "?fieldManager=one")
        yield patch({**self.body(), "unknown": 1}, "apply", "?fieldManager=one")
        yield patch(self.body(managedFields=[]), "apply", "?fieldManager=one")
        yield patch({"metadata": {"managedFields": [{}]}}, "merge")
        yield {"patch": f"{self.collection}/{self.name}", "type": "application/other", "body": {}}
        yield {"patch": f"{self.collection}/missing", "type": "merge", "body": {}}

    def _subresources(self) -> Iterator[Step]:
        for sub in self.resource.subresources:
            if sub.name in ("proxy", "attach", "exec", "portforward", "log"):
                continue
            path = f"{self.path}/{sub.name}"
            kind = builtin().kind(sub.kind)
            if kind is None:
                continue
            if sub.kind == self.resource.gvk:
                yield from self._own_kind(path, sub.name, sub.verbs)
                continue
            filled = expand(self.values.good("", kind), self.variables)
            filled |= {"apiVersion": sub.kind.api_version, "kind": sub.kind.kind, "metadata": {"name": self.name}}
            for status in (True, False):
                body = filled if status else {key: value for key, value in filled.items() if key != "status"}
                if "create" in sub.verbs:
                    yield {"post": f"{path}?dryRun=All", "body": body, "drop": ["status.token", "status.expirationTimestamp"]}
                if "update" in sub.verbs:
                    yield {"put": f"{path}?dryRun=All", "body": body}
            if "get" in sub.verbs:
                yield {"get": path}
            if sub.name == "scale":
                for body in (
                    {"spec": {"replicas": 4}},
                    {"spec": {"replicas": -1}},
                    {"metadata": {"name": "other"}},
                    {"spec": {"replicas": "x"}},
                ):
                    whole = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": self.name}, **body}
                    yield {"put": path, "body": whole}
                    yield {"patch": path, "type": "merge", "body": body}
                yield {
                    "patch": f"{path}?fieldManager=one",
                    "type": "apply",
                    "body": {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 5}},
                }

    def _own_kind(self, path: str, name: str, verbs: tuple[str, ...]) -> Iterator[Step]:
        if "get" in verbs:
            yield {"get": path}
        node = self.root.properties.get("status")
        status = expand(self.values.good("status", node), self.variables) if node is not None else {}
        yield {"put": f"{path}?dryRun=All", "body": {**self.filled(), "status": status}}
        yield {"put": path, "body": {**self.body(labels={"app": "s"}), "status": {}}}
        if name == "status":
            yield from self._awaited(self.path)
        if "patch" not in verbs or node is None:
            return
        real = builtin().resolve(node)
        for field, child in sorted(real.properties.items()):
            good = expand(self.values.good(f"status.{field}", child), self.variables)
            yield {"patch": f"{path}?dryRun=All", "type": "merge", "body": {"status": {field: good}}}
            bad = self.values.bad(f"status.{field}", child)
            if bad is not None:
                yield {"patch": f"{path}?dryRun=All", "type": "merge", "body": {"status": {field: bad}}}
        if name == "status":
            bare = {"apiVersion": self.resource.gvk.api_version, "kind": self.resource.kind}
            yield {
                "patch": f"{path}?fieldManager=st&dryRun=All&force=true",
                "type": "apply",
                "body": {**bare, "metadata": {"name": self.name}, "status": status},
            }

    def _deletions(self) -> Iterator[Step]:
        def delete(options: JSONObject | None = None, query: str = "") -> Step:
            return {"delete": self.path + query} | (
                {} if options is None else {"body": {"apiVersion": "v1", "kind": "DeleteOptions", **options}}
            )

        yield delete(None, "?dryRun=All")
        yield delete({"preconditions": {"uid": "b"}})
        yield delete({"preconditions": {"resourceVersion": "1"}})
        yield delete({"propagationPolicy": "Bad", "orphanDependents": True})
        yield delete({"dryRun": ["Bad"], "gracePeriodSeconds": -1})
        yield delete({"strange": 1, "dryRun": ["All"]})
        yield delete(None, "?gracePeriodSeconds=x")
        yield {**delete(), "as": "alice"}
        if self.hint.get("await"):  # the server's own controllers work on it too
            yield delete() | {"quiet": True}
            yield {"get": self.path, "until": {"status": 404}, "quiet": True}
            return
        yield {"patch": self.path, "type": "merge", "body": {"metadata": {"finalizers": ["example.com/a"]}}}
        yield delete({"propagationPolicy": "Background", "gracePeriodSeconds": 0, "preconditions": {"uid": "$uid"}})
        yield {"patch": self.path, "type": "merge", "body": {"metadata": {"finalizers": ["example.com/a", "example.com/b"]}}}
        yield {"patch": self.path, "type": "merge", "body": {"metadata": {"finalizers": None}}}
        yield {"get": self.path}
        yield delete()
        if self.resource.gvr.resource == "namespaces":
            yield {"put": f"{self.path}/finalize", "body": self.body({"spec": {}})}

    def _maximal(self, maximal: JSONObject | None) -> Iterator[Step]:
        """Once more with all that goes together, by server-side apply and an update; then gone."""
        if maximal is None:
            return
        again = {**maximal, "metadata": {**maximal["metadata"], "name": self.name if "name" in self.hint else "full"}}
        path = f"{self.collection}/{again['metadata']['name']}"
        smallest = self.body(name=again["metadata"]["name"])
        yield {"patch": f"{path}?fieldManager=whole", "type": "apply", "body": again}
        yield from self._awaited(path, fullest=True)
        yield {"get": path}
        yield {"get": path, "accept": "table"}
        yield {"patch": f"{path}?fieldManager=whole", "type": "apply", "body": smallest}
        yield from self._awaited(path)
        yield {"put": path, "body": again}
        yield from self._awaited(path, fullest=True)
        yield {"delete": path, "body": {"gracePeriodSeconds": 0}}
