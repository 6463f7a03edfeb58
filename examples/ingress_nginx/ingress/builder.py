"""Builds servers, backends and certificates from Ingresses, and after a change only the parts that depend on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from examples.ingress_nginx.ingress.backends import BackendTable
from examples.ingress_nginx.ingress.certificates import CertificateError, certificate_of, is_valid_for
from examples.ingress_nginx.ingress.classes import DEFAULT_CLASSES, ClassRules
from examples.ingress_nginx.ingress.records import ClusterObjects, IngressRecord, Key, record_of
from examples.ingress_nginx.ingress.servers import BuiltServer, ServerBuilder, claimed_names
from examples.ingress_nginx.model.configuration import (
    CATCH_ALL,
    DEFAULT_BACKEND,
    Certificate,
    Changes,
    Configuration,
    ServerKey,
    Settings,
    changes_between,
)

#: A kind and the namespace and name of an object, such as ("Service", "shop", "web").
ObjectRef = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class BuilderOptions:
    """Options of the front end for Ingresses.

    Attributes:
        classes: Which Ingresses are served.
        prefix: Prefix of the annotations.
        default_service: Namespace and name of the service that answers where no path matches; None: NGINX answers 404.
        default_certificate: Namespace and name of the Secret with the default certificate; None: a certificate that NGINX's side makes.
        external_names: Allow services of type ExternalName.
    """

    classes: ClassRules = DEFAULT_CLASSES
    prefix: str = "nginx.ingress.kubernetes.io"
    default_service: Key | None = None
    default_certificate: Key | None = None
    external_names: bool = True


@dataclass(slots=True)
class _Users:
    """Which Ingresses read which objects."""

    of: dict[ObjectRef, set[Key]] = field(default_factory=lambda: defaultdict(set))
    by: dict[Key, tuple[ObjectRef, ...]] = field(default_factory=dict)

    def set(self, key: Key, refs: Iterable[ObjectRef]) -> None:
        for ref in self.by.pop(key, ()):
            self.of[ref].discard(key)
            if not self.of[ref]:
                del self.of[ref]
        if found := tuple(refs):
            self.by[key] = found
            for ref in found:
                self.of[ref].add(key)


class IngressBuilder:
    """Keeps a configuration equal to the Ingresses of a cluster.

    Guarantees:
        After ``update`` with all changed objects the configuration equals that of a new builder (``rebuild``).
        Of two Ingresses with the same host and path, the older one is served; a problem of the other one says so.

    Cost:
        A change of an Ingress builds its hosts; a change of EndpointSlices builds the backends of their service, and no server.

    Args:
        objects: Reads the cluster's objects.
        options: Which Ingresses are served, and how.
        settings: Settings of all servers.
    """

    def __init__(self, objects: ClusterObjects, options: BuilderOptions | None = None, settings: Settings | None = None) -> None:
        self._objects = objects
        self._options = options or BuilderOptions()
        self.configuration = Configuration(settings=settings or Settings())
        #: Reason and text of each problem, by Ingress.
        self.problems: dict[Key, tuple[tuple[str, str], ...]] = {}
        #: Why the present content of a Secret is not used, and its last good certificate is.
        self.stale: dict[Key, str] = {}
        self._good: dict[Key, Certificate] = {}
        #: Why an Ingress is not served.
        self.ignored: dict[Key, str] = {}
        self._reset()

    def _reset(self) -> None:
        options = self._options
        self.records: dict[Key, IngressRecord] = {}
        self._by_host: dict[str, set[Key]] = defaultdict(set)
        self._users = _Users()
        #: For each name that aliases and redirects claim: age of the Ingress, and the host. The first one has the name.
        self._claims: dict[str, set[tuple[tuple[str, str, str], str]]] = defaultdict(set)
        self._built: dict[str, BuiltServer] = {}
        self._certificates: dict[Key, Certificate | CertificateError | None] = {}
        self._backends = BackendTable(self._objects, external_names=options.external_names, default_service=options.default_service)
        self._servers = ServerBuilder(self._backends, self.certificate, self._certificate_for, self.configuration.settings)
        self.problems.clear()
        self.ignored.clear()

    def rebuild(self) -> Changes:
        """Build everything, and return what differs from the configuration before."""
        before = self.configuration
        self.configuration = Configuration(settings=before.settings)
        self._reset()
        for ingress in self._objects.ingresses():
            key = (ingress.metadata.namespace, ingress.metadata.name)
            if reason := self._options.classes.reason_against(ingress, self._objects.ingress_class):
                self.ignored[key] = reason
            else:
                self._add(record_of(ingress, self._objects, self._options.prefix))
        self._build_hosts({CATCH_ALL, *self._by_host})
        self._backends.refresh_default()
        self._publish(set(self._built), self._backends.take_changed())
        self._publish_certificates()
        return changes_between(before, self.configuration)

    def update(self, changed: Iterable[ObjectRef]) -> Changes:
        """Build what depends on the changed objects, and return the parts of the configuration that differ."""
        before = Configuration(dict(self.configuration.servers), dict(self.configuration.backends), dict(self.configuration.certificates))
        ingresses: set[Key] = set()
        hosts: set[str] = set()
        for kind, namespace, name in changed:
            match kind:
                case "Ingress":
                    ingresses.add((namespace, name))
                case "IngressClass":
                    # Rare, and each Ingress may gain or lose its class.
                    return self.rebuild()
                case "EndpointSlice":
                    hosts |= self._hosts_of(self._backends.refresh(namespace, name))
                case "Service":
                    self._backends.refresh(namespace, name)
                    hosts |= self._hosts_of(self._users.of.get(("Service", namespace, name), ()))
                case "Secret" | "ConfigMap":
                    self._certificates.pop((namespace, name), None)
                    ingresses |= self._users.of.get((kind, namespace, name), set())
                    if (namespace, name) == self._options.default_certificate:
                        hosts.add(CATCH_ALL)
        for key in ingresses:
            hosts |= self._read(key)
        self._build_hosts(hosts)
        backends = self._backends.take_changed()
        self._publish(hosts, backends)
        self._publish_certificates()
        return _differences(before, self.configuration, hosts, backends)

    def reads(self, ref: ObjectRef) -> bool:
        """Report whether a change of an object may change the configuration."""
        kind, namespace, name = ref
        if kind in ("Ingress", "IngressClass", "EndpointSlice") or ref in self._users.of:
            return True
        if kind == "Secret" and (namespace, name) in self._certificates:
            # No Ingress uses it now, but its certificate is kept for the next one.
            return True
        return (namespace, name) in (self._options.default_service, self._options.default_certificate)

    def missing_objects(self) -> list[str]:
        """Return what the options name and the cluster does not have as it should."""
        found = []
        if (key := self._options.default_certificate) is not None:
            certificate = self.certificate(key)
            if not isinstance(certificate, Certificate) or not certificate.chain:
                reason = str(certificate) if isinstance(certificate, CertificateError) else f"secret {'/'.join(key)} has no certificate"
                found.append(f"--default-ssl-certificate: {reason}; a self-signed certificate is served")
        if (key := self._options.default_service) is not None and self._backends.get(DEFAULT_BACKEND) is None:
            found.append(f"--default-backend-service: service {'/'.join(key)} does not exist or has no port; NGINX answers 404")
        return found

    def certificate(self, key: Key) -> Certificate | CertificateError | None:
        """Return the certificate of a Secret, the reason why it has none, or None if the Secret does not exist."""
        if key not in self._certificates:
            secret = self._objects.secret(*key)
            self.stale.pop(key, None)
            try:
                self._certificates[key] = None if secret is None else certificate_of(secret)
            except CertificateError as error:
                good = self._good.get(key)
                self._certificates[key] = good or error
                if good is not None:
                    self.stale[key] = str(error)
            found = self._certificates[key]
            if isinstance(found, Certificate):
                self._good[key] = found
            else:
                self._good.pop(key, None)
        return self._certificates[key]

    def records_of(self, host: str) -> list[IngressRecord]:
        """Return the Ingresses of a host, the oldest first."""
        return sorted((self.records[key] for key in self._by_host.get(host, ())), key=lambda record: record.age)

    def _read(self, key: Key) -> set[str]:
        """Read an Ingress again, and return the hosts that it had and has."""
        hosts = self._remove(key)
        ingress = self._objects.ingress(*key)
        self.ignored.pop(key, None)
        if ingress is not None:
            if reason := self._options.classes.reason_against(ingress, self._objects.ingress_class):
                self.ignored[key] = reason
            else:
                hosts |= self._add(record_of(ingress, self._objects, self._options.prefix))
        return hosts

    def _add(self, record: IngressRecord) -> set[str]:
        self.records[record.key] = record
        self.problems[record.key] = record.problems
        for host in record.hosts:
            self._by_host[host].add(record.key)
            for name in claimed_names(record, host):
                self._claims[name].add((record.age, host))
        namespace = record.key[0]
        annotations = record.annotations
        refs: set[ObjectRef] = {("Secret", *secret) for secret in annotations.secrets}
        refs |= {("ConfigMap", *found) for found in annotations.config_maps}
        refs |= {("Secret", namespace, secret) for _, secret in record.tls if secret}
        services = {path.service for paths in record.hosts.values() for path in paths if path.service is not None}
        refs |= {("Service", found.namespace, found.name) for found in services}
        if record.default is not None:
            refs.add(("Service", record.default.namespace, record.default.name))
        if annotations.default_backend:
            refs.add(("Service", namespace, annotations.default_backend))
        self._users.set(record.key, refs)
        return self._affected(record)

    def _remove(self, key: Key) -> set[str]:
        record = self.records.pop(key, None)
        self._users.set(key, ())
        self.problems.pop(key, None)
        if record is None:
            return set()
        affected = self._affected(record)
        for host in record.hosts:
            self._by_host[host].discard(key)
            if not self._by_host[host]:
                del self._by_host[host]
            for name in claimed_names(record, host):
                self._claims[name].discard((record.age, host))
                if not self._claims[name]:
                    del self._claims[name]
        return affected

    def _affected(self, record: IngressRecord) -> set[str]:
        """Return the hosts whose servers depend on a record: those of its rules, and the hosts whose names its aliases claim."""
        names = {name for host in record.hosts for name in claimed_names(record, host)}
        # A host or claim that appears or vanishes takes a name from others or frees it.
        return {*record.hosts, *names, *(host for name in names | set(record.hosts) for _, host in self._claims.get(name, ()))}

    def _rival(self, name: str, host: str) -> str:
        """Return what has a name that an alias or redirect of a host claims; empty: the host may have it."""
        if name in self._by_host:
            return f"an Ingress defines the host {name!r}"
        (_, namespace, ingress), owner = min(self._claims[name])
        return "" if owner == host else f"host {owner!r} of Ingress {namespace}/{ingress}, which is older, has the name {name!r}"

    def _hosts_of(self, keys: Iterable[Key]) -> set[str]:
        return {host for key in keys if key in self.records for host in self.records[key].hosts}

    def _certificate_for(self, host: str) -> tuple[Certificate | None, list[tuple[Key, str, str]]]:
        """Choose the certificate of a host, from the oldest Ingress that has one for it; also the problems of its other Secrets."""
        problems: list[tuple[Key, str, str]] = []
        others: list[Key] = []
        for record in self.records_of(host):
            for hosts, secret in record.tls:
                if not secret or (hosts and host not in hosts):
                    if secret:
                        others.append((record.key[0], secret))
                    continue
                found = self.certificate((record.key[0], secret))
                if isinstance(found, Certificate) and found.chain:
                    if found.names and host != CATCH_ALL and not is_valid_for(found, host):
                        problems.append((record.key, "InvalidCertificate", f"secret {found.name} has no certificate for {host}"))
                    else:
                        if text := self.stale.get((record.key[0], secret), ""):
                            problems.append((record.key, "InvalidCertificate", f"host {host}: {text}; its last good certificate is served"))
                        return found, problems
                else:
                    text = str(found) if isinstance(found, CertificateError) else f"secret {record.key[0]}/{secret} does not exist"
                    if isinstance(found, Certificate):
                        text = f"secret {found.name} has no tls.crt and tls.key"
                    problems.append((record.key, "InvalidCertificate", f"host {host}: {text}; the default certificate is served"))
        for key in others:
            found = self.certificate(key)
            if isinstance(found, Certificate) and found.chain and is_valid_for(found, host):
                return found, problems
        return None, problems

    def _build_hosts(self, hosts: Iterable[str]) -> None:
        for host in hosts:
            records = self.records_of(host)
            old = self._built.pop(host, None)
            if old is not None:
                self._backends.release(old.backends)
            if records or host == CATCH_ALL:
                self._built[host] = self._servers.build(host, records, self._rival)
        touched = {key for host in hosts for key in self._by_host.get(host, ())}
        for key in touched:
            self._collect_problems(key)

    def _collect_problems(self, key: Key) -> None:
        record = self.records[key]
        found = dict.fromkeys(record.problems)
        for host in record.hosts:
            if (built := self._built.get(host)) is not None:
                found |= dict.fromkeys((reason, text) for owner, reason, text in built.problems if owner == key)
        self.problems[key] = tuple(found)

    def _publish(self, hosts: Iterable[str], backends: Iterable[str]) -> None:
        servers = self.configuration.servers
        for host in hosts:
            built = self._built.get(host)
            if built is None:
                servers.pop(((), host), None)
            else:
                servers[(), host] = built.server
        for name in backends:
            backend = self._backends.get(name)
            if backend is None:
                self.configuration.backends.pop(name, None)
            else:
                self.configuration.backends[name] = backend

    def _publish_certificates(self) -> None:
        wanted: dict[str, Certificate] = {}
        for built in self._built.values():
            wanted.update(built.certificates)
        if self._options.default_certificate is not None:
            found = self.certificate(self._options.default_certificate)
            if isinstance(found, Certificate):
                wanted[found.name] = found
        self.configuration.certificates = wanted


def _differences(before: Configuration, now: Configuration, hosts: Iterable[str], backends: Iterable[str]) -> Changes:
    def differing(old: Mapping[str, object], new: Mapping[str, object], names: Iterable[str]) -> set[str]:
        return {name for name in names if old.get(name) != new.get(name)}

    keys: list[ServerKey] = [((), host) for host in hosts]
    servers = {key for key in keys if before.servers.get(key) != now.servers.get(key)}
    certificates = differing(before.certificates, now.certificates, before.certificates.keys() | now.certificates.keys())
    return Changes(servers, differing(before.backends, now.backends, backends), certificates)
