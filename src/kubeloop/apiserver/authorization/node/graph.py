"""Which nodes need which objects, kept as pods, volumes, attachments and slices come and go.

Source: k8s.io/kubernetes plugin/pkg/auth/authorizer/node/graph.go.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kubeloop.apiserver.authorization.node.references import Reference, of_pod, of_volume

JSONObject = dict[str, Any]


class NodeGraph:
    """Each ``put_`` method takes namespace, name and object, None when it is gone."""

    def __init__(self) -> None:
        #: How many pods of a node need an object.
        self._needed: dict[Reference, Counter[str]] = {}
        self._pods: dict[tuple[str, str], tuple[str, set[Reference]]] = {}
        self._volumes: dict[str, tuple[Reference, set[Reference]]] = {}
        self._volumes_by_secret: dict[Reference, set[str]] = {}
        #: Objects that are of one node as a whole.
        self._owned: dict[Reference, str] = {}

    def put_pod(self, namespace: str, name: str, pod: JSONObject | None) -> None:
        node, needs = self._pods.pop((namespace, name), ("", set()))
        for one in needs:
            counts = self._needed[one]
            counts[node] -= 1
            if not counts[node]:
                del counts[node]
            if not counts:
                del self._needed[one]
        node = "" if pod is None else (pod.get("spec") or {}).get("nodeName") or ""
        if pod is not None and node:
            needs = of_pod(pod) | {Reference("pods", namespace, name)}
            self._pods[namespace, name] = node, needs
            for one in needs:
                self._needed.setdefault(one, Counter())[node] += 1

    def put_volume(self, _: str, name: str, volume: JSONObject | None) -> None:
        for secret in self._volumes.pop(name, (None, set()))[1]:
            self._volumes_by_secret[secret].discard(name)
            if not self._volumes_by_secret[secret]:
                del self._volumes_by_secret[secret]
        claim, secrets = (None, set()) if volume is None else of_volume(volume)
        if claim is not None:
            self._volumes[name] = claim, secrets
            for secret in secrets:
                self._volumes_by_secret.setdefault(secret, set()).add(name)

    def put_attachment(self, _: str, name: str, attachment: JSONObject | None) -> None:
        self._own("volumeattachments", name, attachment)

    def put_slice(self, _: str, name: str, slice_: JSONObject | None) -> None:
        self._own("resourceslices", name, slice_)

    def _own(self, resource: str, name: str, obj: JSONObject | None) -> None:
        node = "" if obj is None else (obj.get("spec") or {}).get("nodeName") or ""
        reference = Reference(resource, "", name)
        if node:
            self._owned[reference] = node
        else:
            self._owned.pop(reference, None)

    def relates(self, node: str, to: Reference) -> bool:
        """Whether the node's pods need an object, or it is the node's own."""
        if node in self._needed.get(to, ()) or self._owned.get(to) == node:
            return True
        if to.resource == "persistentvolumes":
            return self._uses(node, to.name)
        return to.resource == "secrets" and any(self._uses(node, volume) for volume in self._volumes_by_secret.get(to, ()))

    def _uses(self, node: str, volume: str) -> bool:
        found = self._volumes.get(volume)
        return found is not None and node in self._needed.get(found[0], ())
