"""An Ingress after one reading: its rules and annotations as the builder needs them, kept until the Ingress changes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from examples.ingress_nginx.annotations.expressions import expression
from examples.ingress_nginx.annotations.parse import parse_annotations
from examples.ingress_nginx.annotations.parsed import Annotations, Objects
from examples.ingress_nginx.annotations.values import InvalidValue
from examples.ingress_nginx.model.configuration import CATCH_ALL, Affinity, Balance, PathMatch
from kubeloop.api.core.v1 import Service
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.api.networking.v1 import Ingress, IngressBackend, IngressClass

#: Namespace and name.
Key = tuple[str, str]

#: Paths that NGINX, its logs and other programs read alike: no control characters, and nothing that needs another notation in a path.
_NOT_IN_PATH = re.compile(r"[\x00-\x20\x7f\"\\{};#]")
#: NGINX reads parameters of up to 4,096 bytes, and a path stands beside other text.
MAX_PATH = 1024
_HOST = re.compile(r"(?:\*\.)?(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*\Z")
_UID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")


class ClusterObjects(Objects, Protocol):
    """Reads the objects of the cluster, from a cache or from a table of a test."""

    def ingresses(self) -> Iterable[Ingress]: ...

    def ingress(self, namespace: str, name: str) -> Ingress | None: ...

    def ingress_class(self, name: str) -> IngressClass | None: ...

    def service(self, namespace: str, name: str) -> Service | None: ...

    def slices(self, namespace: str, service: str) -> Iterable[EndpointSlice]: ...


# Named tuples, because builders hash tens of thousands of them.


class ServiceRef(NamedTuple):
    """A port of a service, as an Ingress names it."""

    namespace: str
    name: str
    port: int | str


class PathRecord(NamedTuple):
    """A path of a rule. ``service`` None: a backend that is no service."""

    path: str
    match: PathMatch
    service: ServiceRef | None


class Balancing(NamedTuple):
    """How a backend chooses an endpoint: the annotations of an Ingress that belong to its backends.

    ``cluster_ip``: the only endpoint is the cluster IP of the service.
    """

    balance: Balance = Balance.ROUND_ROBIN
    affinity: Affinity | None = None
    hash_by: tuple[str, ...] = ()
    cluster_ip: bool = False


USUAL_BALANCING = Balancing()


@dataclass(frozen=True, slots=True)
class IngressRecord:
    """What the builder knows of an Ingress.

    Attributes:
        age: Creation time, namespace and name: of two Ingresses with the same path, the one with the lower age wins.
        hosts: Paths by host; ``CATCH_ALL`` for rules without a host.
        tls: Hosts in lower case and the name of the Secret, as spec.tls lists them. No hosts: all hosts of the Ingress.
        problems: Reason and text of each part that is not served as written.
    """

    key: Key
    age: tuple[str, str, str]
    annotations: Annotations
    hosts: dict[str, tuple[PathRecord, ...]]
    default: ServiceRef | None
    tls: tuple[tuple[frozenset[str], str], ...]
    balancing: Balancing
    problems: tuple[tuple[str, str], ...]

    def wants_tls(self, host: str) -> bool:
        """Report whether spec.tls lists a host; a canary has no server, whose TLS it could change."""
        return self.annotations.canary is None and any(not hosts or host in hosts for hosts, _ in self.tls)

    @property
    def origin(self) -> str:
        return f"Ingress {self.key[0]}/{self.key[1]}"


def record_of(ingress: Ingress, objects: Objects, prefix: str) -> IngressRecord:
    """Read an Ingress: invalid hosts, paths and annotations become problems, and the rest of it is served."""
    metadata = ingress.metadata
    namespace, name = metadata.namespace, metadata.name
    problems: list[tuple[str, str]] = []
    annotations = parse_annotations(metadata.annotations, namespace, name, objects, prefix=prefix)
    problems += [("AnnotationParsingFailed", f"annotation {problem.annotation}: {problem.message}") for problem in annotations.problems]
    hosts: dict[str, list[PathRecord]] = {}
    for number, rule in enumerate(ingress.spec.rules):
        host = (rule.host or CATCH_ALL).lower()
        if host != CATCH_ALL and (len(host) > 253 or not _HOST.match(host)):
            problems.append(("InvalidHost", f"spec.rules[{number}].host: {_shortened(host)} is not the name of a host"))
            continue
        paths = hosts.setdefault(host, [])
        for place, found in enumerate(rule.http.paths if rule.http is not None else ()):
            path = found.path or "/"
            regex = found.path_type == "ImplementationSpecific" and (annotations.use_regex or "$" in annotations.rewrite_target)
            if (problem := _problem_of(path, regex=regex)) is not None:
                problems.append(("InvalidPath", f"spec.rules[{number}].http.paths[{place}].path: {_shortened(path)} {problem}"))
                continue
            match = PathMatch.REGEX if regex else PathMatch.EXACT if found.path_type == "Exact" else PathMatch.PREFIX
            if match is PathMatch.PREFIX and path != "/":
                # Trailing slashes do not count: networking.k8s.io/v1, HTTPIngressPath.pathType.
                path = path.rstrip("/") or "/"
            paths.append(PathRecord(path, match, _service(found.backend, namespace)))
            if found.backend.service is None:
                problems.append(("ResourceBackend", f"path {path}: only services are supported; the default backend answers"))
    if metadata.uid and not _UID.match(metadata.uid):
        problems.append(("InvalidUid", "metadata.uid is no UUID; the Ingress is not served"))
        hosts = {}
    default = _service(ingress.spec.default_backend, namespace) if ingress.spec.default_backend is not None else None
    if ingress.spec.default_backend is not None and default is None:
        problems.append(("ResourceBackend", "spec.defaultBackend: only services are supported; it is ignored"))
    if default is not None and not hosts:
        hosts = {CATCH_ALL: []}
    return IngressRecord(
        (namespace, name),
        (str(metadata.creation_timestamp or ""), namespace, name),
        annotations,
        {host: tuple(paths) for host, paths in hosts.items()},
        default,
        tuple((frozenset(host.lower() for host in entry.hosts), entry.secret_name or "") for entry in ingress.spec.tls),
        Balancing(annotations.balance, annotations.affinity, annotations.hash_by, annotations.service_upstream),
        tuple(problems),
    )


def expressions(paths: Iterable[PathRecord]) -> dict[PathRecord, PathRecord]:
    """Return all paths of a host that has an expression as expressions, in the order in which NGINX compares them.

    Exact paths come first, then longer texts before shorter ones. Paths that are no expressions keep their case and their whole elements.
    """
    ordered = sorted(paths, key=lambda path: (path.match is not PathMatch.EXACT, -len(path.path), path.path))
    return {path: path._replace(path=_as_expression(path), match=PathMatch.REGEX) for path in ordered}


def _as_expression(path: PathRecord) -> str:
    if path.match is PathMatch.REGEX:
        return expression(path.path, counts=True)
    literal = re.escape(path.path)
    if path.match is PathMatch.EXACT:
        return rf"(?-i){literal}\z"
    return "(?-i)/" if path.path == "/" else rf"(?-i){literal}(?:/|\z)"


def _service(backend: IngressBackend, namespace: str) -> ServiceRef | None:
    if backend.service is None:
        return None
    port = backend.service.port
    return ServiceRef(namespace, backend.service.name, port.name or port.number or 0)


def _problem_of(path: str, *, regex: bool) -> str | None:
    """Return why a path cannot be served; None: it can be."""
    if not path.startswith("/"):
        return "does not begin with a slash"
    if len(path) > MAX_PATH:
        return f"has more than {MAX_PATH} characters"
    if regex:
        try:
            expression(path, counts=True)
        except InvalidValue as error:
            return str(error)
        return None
    found = _NOT_IN_PATH.search(path)
    return None if found is None else f"has the character {found[0]!r}, which paths here do not have"


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
