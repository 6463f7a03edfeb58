"""Parts of the model as JSON documents, as Lua reads them: ``s:GROUP:HOST`` servers, ``b:NAME`` backends, ``c:NAME`` certificates.

Text from outside is data here and never becomes a part of nginx.conf; what reaches a request line or a header is checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from examples.ingress_nginx.model.configuration import (
    Affinity,
    Backend,
    Balance,
    Certificate,
    Condition,
    Endpoint,
    Location,
    PathMatch,
    Rewrite,
    Route,
    Server,
    Source,
    Target,
)
from examples.ingress_nginx.model.policy import Policy
from examples.ingress_nginx.nginx.quoting import UnsafeText, header_name, pcre_literal, token

#: A JSON object.
Document = dict[str, Any]
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_VARIABLE = re.compile(r"[a-z][a-z0-9_]{0,200}")
_encoder = msgspec.json.Encoder()


def encode(document: Document) -> str:
    """Return a document as JSON."""
    return _encoder.encode(document).decode()


def server_document(server: Server, policy_name: Callable[[Policy], str], warn: Callable[[str], None]) -> Document:
    """Return the document of a server.

    Args:
        server: The server.
        policy_name: Returns the name of the location that has the directives of a policy.
        warn: Gets a message about each location that cannot be served.
    """
    document: Document = {"host": server.host}
    if server.one_label and server.host.startswith("*."):
        document["one_label"] = True
    if server.certificate:
        document["certificate"] = server.certificate
    in_order = any(location.match is PathMatch.REGEX for location in server.locations)
    places: dict[str, list[Document]] = {}
    by_path: dict[tuple[str, str], Document] = {}
    for location in server.locations:
        place = "exact" if location.match is PathMatch.EXACT else "ordered" if in_order else "prefix"
        try:
            found = _location_document(location, policy_name)
        except UnsafeText as error:
            warn(f"{server.host}{location.path[:60]!r} is not served: {error}")
            continue
        if place != "ordered" and (first := by_path.setdefault((place, found["path"]), found)) is not found:
            # "/a" and "/a/" are the same prefix: the second one's routes are compared where those of the first one do not fit.
            first["routes"] += found["routes"]
        else:
            places.setdefault(place, []).append(found)
    return document | places


def redirect_document(host: str) -> Document:
    """Return the document of a name whose requests are redirected to a host."""
    return {"host": host, "redirect": _checked(host)}


def backend_document(backend: Backend) -> Document:
    """Return the document of a backend; raises UnsafeText."""
    document: Document = {"endpoints": [_endpoint_document(endpoint) for endpoint in backend.endpoints if endpoint.has_address]}
    if (named := next((endpoint for endpoint in backend.endpoints if not endpoint.has_address), None)) is not None:
        # NGINX resolves the name for each request; Lua's balancer takes addresses only.
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,253}", named.address):
            raise UnsafeText(f"{named.address[:40]!r} is no DNS name")
        document["name"] = f"{named.address}:{named.port}"
    elif backend.affinity is not None:
        document["affinity"] = _affinity_document(backend.affinity)
    elif backend.hash_by:
        document["hash_by"] = [{"text": part[1:]} if part.startswith("=") else {"variable": _variable(part)} for part in backend.hash_by]
    elif backend.balance is Balance.LEAST_CONNECTIONS:
        document["least_busy"] = True
    return document


def certificate_document(certificate: Certificate) -> Document:
    """Return the document of a certificate that servers present."""
    return {"chain": certificate.chain, "key": certificate.key}


def _location_document(location: Location, policy_name: Callable[[Policy], str]) -> Document:
    # Most of 10,000 locations have one route with one target and no conditions.
    path = location.path.rstrip("/") if location.match is PathMatch.PREFIX else location.path
    document: Document = {"path": path, "routes": [_route_document(route, location, policy_name) for route in location.routes]}
    if location.match is PathMatch.REGEX:
        document["pattern"] = "^" + path
    return document


def _route_document(route: Route, location: Location, policy_name: Callable[[Policy], str]) -> Document:
    document: Document = {"policy": policy_name(route.policy)}
    if route.origin:
        document["origin"] = route.origin.replace("\t", " ")
    if route.targets:
        document["targets"] = [_target_document(target, policy_name) for target in route.targets]
    if route.conditions:
        document["conditions"] = [_condition_document(condition) for condition in route.conditions]
    if route.rewrite is not None:
        document["rewrite"] = _rewrite_document(route.rewrite, location)
    redirect = route.policy.redirect
    if redirect is not None and redirect.replace_prefix:
        document["rest"] = "" if redirect.path.rstrip("/") else "/"
    return document


def _target_document(target: Target, policy_name: Callable[[Policy], str]) -> Document:
    document: Document = {"backend": target.backend}
    if target.weight != 1:
        document["weight"] = max(0, target.weight)
    if target.policy is not None:
        document["policy"] = policy_name(target.policy)
    return document


def _condition_document(condition: Condition) -> Document:
    document: Document = {"source": condition.source.value, "value": condition.value}
    match condition.source:
        case Source.HEADER:
            document["name"] = "http_" + header_name(condition.name).lower().replace("-", "_")
        case Source.COOKIE:
            document["name"] = _cookie_pattern(condition.name)
        case Source.QUERY:
            document["name"] = condition.name
        case Source.METHOD:
            pass
    if condition.regex:
        document |= {"regex": True, "value": rf"^(?=.)(?:{condition.value})\z"}
    if condition.negate:
        document["negate"] = True
    return document


def _rewrite_document(rewrite: Rewrite, location: Location) -> Document:
    path, question, args = _checked(rewrite.replacement).partition("?")
    if location.match is PathMatch.REGEX:
        document: Document = {"path": _template(path)}
        if question:
            document["args"] = _template(args)
        return document
    literal = "/" + path.lstrip("/")
    if rewrite.prefix and location.match is PathMatch.PREFIX:
        return {"path": [literal.rstrip("/")], "prefix": True}
    return {"path": [literal]} | ({"args": [args]} if question else {})


def _template(text: str) -> list[str | int]:
    """Return literal pieces and numbers of groups."""
    pieces = re.split(r"\$([1-9])", text)
    return [int(piece) if index % 2 else piece for index, piece in enumerate(pieces) if piece]


def _endpoint_document(endpoint: Endpoint) -> Document:
    address = f"[{endpoint.address}]" if ":" in endpoint.address else endpoint.address
    return {"address": address, "port": endpoint.port}


def _affinity_document(affinity: Affinity) -> Document:
    attributes = [f"Path={_attribute(affinity.path or '/')}"]
    if affinity.domain:
        attributes.append(f"Domain={_attribute(affinity.domain)}")
    if affinity.max_age is not None:
        attributes.append(f"Max-Age={affinity.max_age}")
    if affinity.same_site:
        attributes.append(f"SameSite={_attribute(affinity.same_site)}")
    token(affinity.cookie)
    document: Document = {
        "cookie": affinity.cookie,
        "pattern": _cookie_pattern(affinity.cookie),
        "attributes": "".join(f"; {attribute}" for attribute in (*attributes, "HttpOnly")),
    }
    if affinity.expires is not None:
        document["expires"] = affinity.expires
    if affinity.secure is not None:
        document["secure"] = affinity.secure
    if affinity.change_on_failure:
        document["change_on_failure"] = True
    return document


def _cookie_pattern(name: str) -> str:
    token(name)
    return rf"(?:^|;)\s*{pcre_literal(name)}=([^;]*)"


def _attribute(text: str) -> str:
    if ";" in text or "," in text:
        raise UnsafeText(f"{text[:40]!r} is no attribute of a cookie")
    return _checked(text)


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise UnsafeText(f"{name[:40]!r} is no variable to choose an endpoint by")
    return name


def _checked(text: str) -> str:
    if (found := _CONTROL.search(text)) is not None:
        raise UnsafeText(f"{text[:40]!r} has the control character {found.group()!r}")
    return text
