"""Parts of nginx.conf beside locations, files beside nginx.conf, and their names."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from examples.ingress_nginx.nginx.quoting import quote


@dataclass(slots=True)
class ConfigurationParts:
    """Parts of nginx.conf beside locations.

    Attributes:
        http: Blocks inside ``http``. Each is written once.
        server: Locations for each server with a location of this policy: for external authentication and for error pages.
        files: Contents by name, for ``NginxProcess.apply``.
    """

    http: dict[str, None] = field(default_factory=dict)
    server: dict[str, None] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    def merge(self, other: ConfigurationParts) -> None:
        self.http |= other.http
        self.server |= other.server
        self.files |= other.files


def digest(*values: object) -> str:
    """Return a short digest of values, for names of parts of nginx.conf and of files."""
    return hashlib.blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def certificate_file(content: str, parts: ConfigurationParts) -> str:
    """Add a file with PEM documents to the parts, and return its name as a parameter."""
    # The digest of the content must not help to guess a key: it is longer than those of names, and the folder is private.
    name = f"tls/{hashlib.sha256(content.encode()).hexdigest()[:32]}.pem"
    parts.files[name] = content.encode()
    return quote(name)


def named(kind: str, *values: object) -> str:
    """Return a name for a variable, a zone or a location of nginx.conf: equal values have equal names."""
    return f"kubeloop_{kind}_{digest(*values)}"
