"""Backends as ``upstream`` blocks.

Without Lua, a cookie for affinity differs from ingress-nginx: the cookie holds a random key, and a consistent hash of it chooses the
endpoint. So most clients, not all, keep their endpoint when others come and go; and ``change_on_failure`` and ``expires`` have no effect
(``max_age`` has).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from examples.ingress_nginx.model.configuration import Affinity, Backend, Balance, Endpoint, Settings
from examples.ingress_nginx.nginx.parts import digest
from examples.ingress_nginx.nginx.quoting import UnsafeText, map_regex, pcre_literal, quote, token

_HASH_VARIABLES = frozenset(
    (
        *("request_uri", "uri", "args", "query_string", "host", "http_host", "scheme", "server_name", "server_port", "content_type"),
        *("remote_addr", "binary_remote_addr", "remote_port", "remote_user", "request_method", "request_id"),
        *("ssl_client_fingerprint", "ssl_client_s_dn", "ssl_session_id"),
    )
)
_HASH_PREFIXES = ("http_", "arg_", "cookie_")


@dataclass(frozen=True, slots=True)
class Upstream:
    """A backend in nginx.conf.

    Attributes:
        target: What a pass directive names: the upstream, or a variable with the DNS name of the endpoint; empty: no endpoints.
        before: Directives of a location before the pass directive.
        text: Blocks inside ``http``.
        key: Variable that is equal for the requests of a client, if the backend has affinity.
    """

    target: str
    before: tuple[str, ...] = ()
    text: str = ""
    key: str = ""

    @property
    def interface(self) -> tuple[str, tuple[str, ...], str]:
        """The parts that locations hold: while they are equal, a change of endpoints changes no location."""
        return self.target, self.before, self.key


def upstream(backend: Backend, settings: Settings) -> Upstream:
    """Return a backend as NGINX knows it; raises UnsafeText."""
    if not backend.endpoints:
        return Upstream("")
    named = [endpoint for endpoint in backend.endpoints if not endpoint.has_address]
    if named:
        # NGINX resolves a variable for each request, and an upstream's names only when it starts, where an unknown name is an error.
        target = _dns_target(named[0])
        return Upstream("$kubeloop_target", (f"set $kubeloop_target {quote(target)};",))
    name = f"backend-{backend.name}" if re.fullmatch(r"[a-z0-9.-]{1,300}", backend.name) else f"backend_{digest(backend.name)}"
    blocks: list[str] = []
    before: tuple[str, ...] = ()
    sticky = ""
    lines = []
    if backend.affinity is not None:
        sticky, before = _sticky(backend.affinity, blocks)
        lines.append(f"hash {sticky} consistent;")
    elif backend.hash_by:
        lines.append(f"hash {_hash_key(backend.hash_by)} consistent;")
    elif backend.balance is Balance.LEAST_CONNECTIONS:
        lines.append("least_conn;")
    # Kubernetes decides by readiness which endpoints get requests, so NGINX does not count failures.
    lines += [f"server {_address(endpoint)} max_fails=0;" for endpoint in backend.endpoints]
    if settings.upstream_keepalive:
        lines.append(f"keepalive {int(settings.upstream_keepalive)};")
    blocks.append(f"upstream {name} {{ {' '.join(lines)} }}")
    return Upstream(name, before, "\n".join(blocks), sticky)


def cookie_map(name: str, variable: str) -> str:
    """Return a map that sets a variable to the value of a cookie. NGINX's ``$cookie_NAME`` takes no name with ``-`` and ignores case."""
    token(name)
    pattern = map_regex(rf"(?:^|;)\s*{pcre_literal(name)}=([^;]*)")
    return f'map $http_cookie ${variable} {{ default ""; {pattern} $1; }}'


def _sticky(affinity: Affinity, blocks: list[str]) -> tuple[str, tuple[str, ...]]:
    name = f"kubeloop_sticky_{digest(affinity)}"
    blocks.append(cookie_map(affinity.cookie, f"{name}_cookie"))
    blocks.append(f'map ${name}_cookie ${name}_key {{ default ${name}_cookie; "" $request_id; }}')
    parts = [f"{token(affinity.cookie)[1:-1]}=$request_id", f"Path={_attribute(affinity.path or '/')}"]
    if affinity.domain:
        parts.append(f"Domain={_attribute(affinity.domain)}")
    if affinity.max_age is not None:
        parts.append(f"Max-Age={int(affinity.max_age)}")
    if affinity.same_site:
        parts.append(f"SameSite={_attribute(affinity.same_site)}")
    secure = "; Secure" if affinity.secure else ""
    if affinity.secure is None:
        secure = f"${name}_secure"
        blocks.append(f'map $kubeloop_is_https ${name}_secure {{ default ""; 1 "; Secure"; }}')
    blocks.append(f'map ${name}_cookie ${name}_set {{ default ""; "" "{"; ".join((*parts, "HttpOnly"))}{secure}"; }}')
    return f"${name}_key", (f"add_header Set-Cookie ${name}_set always;",)


def _attribute(text: str) -> str:
    if ";" in text or "," in text:
        raise UnsafeText(f"{text[:40]!r} is no attribute of a cookie")
    return quote(text)[1:-1]


def _hash_key(parts: tuple[str, ...]) -> str:
    texts = []
    for part in parts:
        if part.startswith("="):
            texts.append(quote(part[1:])[1:-1])
        elif part in _HASH_VARIABLES or (part.startswith(_HASH_PREFIXES) and re.fullmatch(r"[a-z0-9_]{6,200}", part)):
            texts.append(f"${{{part}}}")
        else:
            raise UnsafeText(f"{part[:40]!r} is no variable to choose an endpoint by")
    return f'"{"".join(texts)}"'


def _address(endpoint: Endpoint) -> str:
    return f"[{endpoint.address}]:{int(endpoint.port)}" if ":" in endpoint.address else f"{endpoint.address}:{int(endpoint.port)}"


def _dns_target(endpoint: Endpoint) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,253}", endpoint.address):
        raise UnsafeText(f"{endpoint.address[:40]!r} is no DNS name")
    return f"{endpoint.address}:{int(endpoint.port)}"
