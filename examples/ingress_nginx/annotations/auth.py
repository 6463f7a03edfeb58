"""Annotations that protect a location: passwords, subrequests, client certificates and networks. A refused value denies requests."""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import urlsplit, urlunsplit

from examples.ingress_nginx.annotations import values
from examples.ingress_nginx.annotations.reader import AnnotationReader
from examples.ingress_nginx.annotations.values import InvalidValue
from examples.ingress_nginx.model.configuration import CATCH_ALL, ClientAuth
from examples.ingress_nginx.model.policy import BasicAuth, ExternalAuth, Policy
from kubeloop.api.core.v1 import Secret

#: Stands in URLs of ``ExternalAuth`` for the host of the server, until ``bind_host`` replaces it.
HOST_VARIABLE = "$host"

_AUTH_DETAILS = (
    *("auth-signin", "auth-signin-redirect-param", "auth-method", "auth-response-headers"),
    *("auth-request-redirect", "auth-always-set-cookie"),
)
_TLS_DETAILS = ("auth-tls-verify-client", "auth-tls-verify-depth", "auth-tls-error-page", "auth-tls-pass-certificate-to-upstream")
_VERIFY = {word: word for word in ("on", "off", "optional", "optional_no_ca")}
#: The first URL, in the ways in which it is written behind ``rd=``. The renderers add it themselves.
_FIRST_URL = re.compile(r"(?:(?:\$scheme|https)://\$(?:host|http_host|best_http_host))?\$(?:escaped_)?request_uri")
_PLACEHOLDER = "host.invalid"
_USER = re.compile(r"[^\x00-\x20\x7f:#][^\x00-\x1f\x7f:]{0,254}")
_HASH = re.compile(r"[A-Za-z0-9$./{}+=-]{1,255}")


def read_basic_auth(reader: AnnotationReader) -> BasicAuth | None:
    """Read auth-type, auth-secret, auth-secret-type and auth-realm."""
    kind = reader.read("auth-type", values.choice({"basic": "basic"}), "", denies=True)
    name, secret = reader.secret("auth-secret")
    form = reader.read("auth-secret-type", values.choice({"auth-file": "file", "auth-map": "map"}), "file", denies=True)
    realm = reader.read("auth-realm", values.phrase, "Authentication Required", denies=True)
    if not kind:
        reader.expect("auth-type: basic", "auth-secret", "auth-secret-type", "auth-realm", denies=True)
        return None
    users = ""
    if not reader.has("auth-secret"):
        reader.refuse("auth-type", "it needs auth-secret, the name of a Secret with the users", denies=True)
    elif secret is not None:
        try:
            users = _users(secret, form)
        except InvalidValue as error:
            reader.refuse("auth-secret", f"the Secret {reader.namespace}/{name} {error}", denies=True)
    return BasicAuth(realm, users)


def read_external_auth(reader: AnnotationReader) -> ExternalAuth | None:
    """Read auth-url and the annotations that belong to it."""
    url = reader.read("auth-url", _url, "", denies=True)
    signin, parameter = reader.read("auth-signin", _signin, ("", ""), denies=True)
    result = ExternalAuth(
        url=url,
        method=reader.read("auth-method", values.method, "", denies=True),
        signin=signin,
        redirect_param=reader.read("auth-signin-redirect-param", values.parameter, parameter or "rd", denies=True),
        response_headers=reader.read("auth-response-headers", values.each(values.header_name), (), denies=True),
        request_redirect=reader.read("auth-request-redirect", values.page, "", denies=True),
        always_set_cookie=reader.read("auth-always-set-cookie", values.boolean, False, denies=True),
    )
    if url:
        return result
    if not reader.has("auth-url"):
        reader.expect("auth-url", *_AUTH_DETAILS, denies=True)
    return None


def bind_host(policy: Policy, host: str) -> Policy:
    """Return the policy for one host: the host replaces ``$host`` in the URLs of external authentication.

    A server for many names has no host for such a URL: its policy answers 503.
    """
    auth = policy.external_auth
    if auth is None or HOST_VARIABLE not in auth.url + auth.signin:
        return policy
    if host == CATCH_ALL or host.startswith("*"):
        return replace(policy, status=503)
    bound = replace(auth, url=auth.url.replace(HOST_VARIABLE, host), signin=auth.signin.replace(HOST_VARIABLE, host))
    return replace(policy, external_auth=bound)


def read_client_auth(reader: AnnotationReader) -> ClientAuth | None:
    """Read auth-tls-*."""
    name, secret = reader.secret("auth-tls-secret")
    verify = reader.read("auth-tls-verify-client", values.choice(_VERIFY), "on", denies=True)
    result = ClientAuth(
        authority=f"{reader.namespace}/{name}",
        verify=verify,
        depth=reader.read("auth-tls-verify-depth", values.integer(1, 100), 1, denies=True),
        error_page=reader.read("auth-tls-error-page", values.page, "", denies=True),
        pass_certificate=reader.read("auth-tls-pass-certificate-to-upstream", values.boolean, False, denies=True),
    )
    if verify == "off":
        return None
    if not reader.has("auth-tls-secret"):
        reader.expect("auth-tls-secret", *_TLS_DETAILS, denies=True)
        return None
    if secret is not None and not secret.data.get("ca.crt"):
        message = f"the Secret {result.authority} has no ca.crt; add the certificates of the authorities that sign clients' certificates"
        reader.refuse("auth-tls-secret", message, denies=True)
    return result if name else None


def read_networks(reader: AnnotationReader) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the networks that may and those which must not send requests."""
    networks = values.each(values.network, limit=2000)
    none: tuple[str, ...] = ()
    allow = reader.read_alias("allowlist-source-range", "whitelist-source-range", networks, none, denies=True)
    deny = reader.read("denylist-source-range", networks, none, denies=True)
    return allow, deny


def _url(value: str) -> str:
    """Return a URL whose host may be ``$host``."""
    scheme, separator, rest = value.partition("://")
    if rest == HOST_VARIABLE or rest.startswith((f"{HOST_VARIABLE}/", f"{HOST_VARIABLE}?", f"{HOST_VARIABLE}:")):
        literal = values.url(f"{scheme}{separator}{_PLACEHOLDER}{rest.removeprefix(HOST_VARIABLE)}")
        return literal.replace(_PLACEHOLDER, HOST_VARIABLE, 1)
    if "$" in value:
        raise InvalidValue("has a variable; only $host in place of the host is replaced")
    return values.url(value)


def _signin(value: str) -> tuple[str, str]:
    """Return a URL, and the name of its parameter that holds the first URL; empty: it has none."""
    try:
        parts = urlsplit(value)
    except ValueError as error:
        raise InvalidValue('is not a URL such as "https://example.com/path"') from error
    found, rest = "", []
    for part in parts.query.split("&") if parts.query else ():
        name, _, text = part.partition("=")
        if _FIRST_URL.fullmatch(text):
            found = values.parameter(name)
        else:
            rest.append(part)
    return _url(urlunsplit(parts._replace(query="&".join(rest))) if found else value), found


def _users(secret: Secret, form: str) -> str:
    """Return the lines of an htpasswd file."""
    if form == "map":
        lines = [f"{user}:{_decode(password).strip()}" for user, password in sorted(secret.data.items())]
    elif "auth" not in secret.data:
        raise InvalidValue("has no key auth; add one with the content of an htpasswd file, or set auth-secret-type: auth-map")
    else:
        lines = [line for raw in _decode(secret.data["auth"]).split("\n") if (line := raw.rstrip("\r ")) and not line.startswith("#")]
    users = []
    for number, line in enumerate(lines, 1):
        user, _, rest = line.partition(":")
        if not _USER.fullmatch(user) or not _HASH.fullmatch(rest.partition(":")[0]):
            raise InvalidValue(f"has an entry (number {number}) that is not user:hash; write it with htpasswd")
        users.append(f"{user}:{rest.partition(':')[0]}")
    if not users:
        raise InvalidValue("has no users; add one with htpasswd")
    return "\n".join(users) + "\n"


def _decode(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidValue("is not text in UTF-8; write it with htpasswd") from error
