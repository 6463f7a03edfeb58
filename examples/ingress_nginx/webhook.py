"""The validating webhook: it refuses Ingresses that the controller would not serve as written.

It never renders a configuration: ``nginx -t`` of text that anybody may submit lets NGINX's parser run on it (CVE-2025-1974).
``config/webhooks/webhooks.yaml`` is the output of ``kubeloop generate webhooks examples.ingress_nginx.webhook:declared``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from examples.ingress_nginx.ingress.builder import BuilderOptions, IngressBuilder
from examples.ingress_nginx.ingress.records import ClusterObjects, IngressRecord, Key, PathRecord, record_of
from examples.ingress_nginx.model.configuration import PathMatch
from kubeloop.api.networking.v1 import Ingress
from kubeloop.controller.webhooks import AdmissionRequest, Denied, Warnings, Webhooks
from kubeloop.meta import field_error
from kubeloop.meta.field_error import FieldError

WEBHOOK_NAME: Final = "validate.nginx.ingress.kubernetes.io"
WEBHOOK_PATH: Final = "/networking/v1/ingresses"

#: Paths without characters that programs on the way of a request read differently.
_STRICT_PATH = re.compile(r"/[A-Za-z0-9._/-]*\Z")
#: Problems of a record that do not refuse an Ingress: the rest of it is served as written.
_HARMLESS = frozenset({"ResourceBackend"})


class AdmissionLookup(Protocol):
    """Looks up the objects that the decision about an Ingress depends on."""

    def reason_against(self, ingress: Ingress) -> str:
        """Return why the controller does not serve an Ingress; empty: it does."""

    def read(self, ingress: Ingress) -> IngressRecord:
        """Return an Ingress with its annotations parsed."""

    def records_of(self, host: str) -> Iterable[IngressRecord]:
        """Return the served Ingresses of a host."""

    def exists(self, kind: str, key: Key) -> bool:
        """Report whether a Secret or ConfigMap exists."""


@dataclass(frozen=True, slots=True)
class AdmissionReport:
    """One decision, for metrics. ``seconds``: time of the checks."""

    namespace: str
    name: str
    allowed: bool
    seconds: float


class BuilderLookup:
    """Looks up classes, objects and Ingresses where the sync controller has them.

    Args:
        builder: Has the served Ingresses.
        objects: Reads the cluster's objects.
        options: Which Ingresses are served; the options of ``builder``.
    """

    def __init__(self, builder: IngressBuilder, objects: ClusterObjects, options: BuilderOptions) -> None:
        self._builder = builder
        self._objects = objects
        self._options = options

    def reason_against(self, ingress: Ingress) -> str:
        return self._options.classes.reason_against(ingress, self._objects.ingress_class)

    def read(self, ingress: Ingress) -> IngressRecord:
        return record_of(ingress, self._objects, self._options.prefix)

    def records_of(self, host: str) -> Iterable[IngressRecord]:
        return self._builder.records_of(host)

    def exists(self, kind: str, key: Key) -> bool:
        return (self._objects.secret(*key) if kind == "Secret" else self._objects.config_map(*key)) is not None


def hooks_of(cluster: AdmissionLookup, observe: Callable[[AdmissionReport], None] | None = None) -> Webhooks:
    """Return the webhook that decides with the objects of a cluster. ``observe``: called after each decision about a served Ingress."""
    hooks = Webhooks()

    @hooks.validating(Ingress, name=WEBHOOK_NAME, path=WEBHOOK_PATH, operations=["CREATE", "UPDATE"], failure_policy="Fail")
    async def check_ingress(ingress: Ingress, request: AdmissionRequest[Ingress]) -> Warnings | None:
        """Refuse an Ingress of this controller with invalid paths or annotations, or with a host and path of another one."""
        if ingress.metadata.deletion_timestamp is not None or cluster.reason_against(ingress):
            return None
        began = time.perf_counter()
        record = cluster.read(ingress)
        errors = [*_path_errors(ingress), *_record_errors(ingress, record), *_conflicts(record, request.old, cluster)]
        if observe is not None:
            observe(AdmissionReport(*record.key, not errors, time.perf_counter() - began))
        if errors:
            raise Denied(errors=errors)
        warnings = [*record.annotations.warnings, *_harmless(record), *_missing(record, cluster)]
        return Warnings(*warnings) if warnings else None

    return hooks


class _NoCluster:
    """Serves no Ingress: the declaration of the webhook needs no cluster."""

    def reason_against(self, ingress: Ingress) -> str:
        return f"no cluster is connected to look up the class of Ingress {ingress.metadata.name}"

    def read(self, ingress: Ingress) -> IngressRecord:
        raise LookupError(self.reason_against(ingress))

    def records_of(self, host: str) -> Iterable[IngressRecord]:
        raise LookupError(f"no cluster is connected to look up host {host}")

    def exists(self, kind: str, key: Key) -> bool:
        raise LookupError(f"no cluster is connected to look up {kind} {'/'.join(key)}")


#: The webhook for ``kubeloop generate webhooks``, which writes its configuration.
declared: Final = hooks_of(_NoCluster())


def _path_errors(ingress: Ingress) -> Iterator[FieldError]:
    for number, rule in enumerate(ingress.spec.rules):
        for place, found in enumerate(rule.http.paths if rule.http is not None else ()):
            if found.path_type in ("Exact", "Prefix") and not _STRICT_PATH.match(found.path or "/"):
                detail = f"with pathType {found.path_type} it may contain letters, digits, '.', '_', '/' and '-' only"
                yield field_error.invalid(f"spec.rules[{number}].http.paths[{place}].path", found.path, detail)


def _record_errors(ingress: Ingress, record: IngressRecord) -> Iterator[FieldError]:
    annotations = {f"annotation {problem.annotation}: {problem.message}" for problem in record.annotations.problems}
    values = ingress.metadata.annotations
    for problem in record.annotations.problems:
        if not problem.missing:
            field = f"metadata.annotations[{problem.annotation}]"
            yield field_error.invalid(field, values.get(problem.annotation, ""), problem.message)
    for reason, text in record.problems:
        if text not in annotations and reason not in _HARMLESS:
            yield field_error.forbidden("spec" if reason != "InvalidUid" else "metadata.uid", text)


def _harmless(record: IngressRecord) -> Iterator[str]:
    return (text for reason, text in record.problems if reason in _HARMLESS)


def _missing(record: IngressRecord, cluster: AdmissionLookup) -> Iterator[str]:
    """Yield the objects that do not exist yet: the order in which a user creates objects is free."""
    for problem in record.annotations.problems:
        if problem.missing:
            yield f"annotation {problem.annotation}: {problem.message}"
    for _, secret in record.tls:
        if secret and not cluster.exists("Secret", (record.key[0], secret)):
            yield f"spec.tls: secret {record.key[0]}/{secret} does not exist; the default certificate is served until it does"


def _conflicts(record: IngressRecord, old: Ingress | None, cluster: AdmissionLookup) -> Iterator[FieldError]:
    """Yield an error for each host and path of another Ingress. An update passes with the conflicts that it had before.

    A path may have a main Ingress and a canary, each once.
    """
    is_canary = record.annotations.canary is not None
    before: set[tuple[str, str, PathMatch]] = set()
    if old is not None and not cluster.reason_against(old):
        former = cluster.read(old)
        before = set(_paths(former)) if (former.annotations.canary is not None) == is_canary else set()
    for host, path, match in dict.fromkeys(_paths(record)):
        if (host, path, match) in before:
            continue
        for other in cluster.records_of(host):
            same_role = (other.annotations.canary is not None) == is_canary
            if other.key != record.key and same_role and _defines(other.hosts.get(host, ()), path, match):
                text = f'host "{host}" and path "{path}" is already defined in ingress {other.key[0]}/{other.key[1]}'
                yield field_error.forbidden("spec.rules", text)
                break


def _paths(record: IngressRecord) -> Iterator[tuple[str, str, PathMatch]]:
    return ((host, found.path, found.match) for host, paths in record.hosts.items() for found in paths)


def _defines(paths: Iterable[PathRecord], path: str, match: PathMatch) -> bool:
    return any((found.path, found.match) == (path, match) for found in paths)
