"""Paths that are not resources: ``/healthz``, ``/livez``, ``/readyz``, ``/version`` and the OpenID discovery of service account tokens."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import msgspec

from kubeloop.apiserver.authentication.options import TokenSettings
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.negotiation import JSON, check_route
from kubeloop.endpoints.responses import indented, not_found_page, text
from kubeloop.serving.answer import Answer
from kubeloop.serving.request import Request
from kubeloop.tasks import Supervisor
from kubeloop.types import JSONObject
from kubeloop.version import VERSION

_TEXT: Final = "text/plain; charset=utf-8"

#: The Kubernetes release that this server follows.
KUBERNETES: Final = (1, 36, 3)


class Health:
    """Named health checks, each of which returns True if it passes. ``/healthz/NAME`` runs one check."""

    ENDPOINTS = ("healthz", "livez", "readyz")

    def __init__(self) -> None:
        self._checks: dict[str, dict[str, Callable[[], bool]]] = {one: {} for one in self.ENDPOINTS}
        self._tasks: list[Supervisor] = []
        self.add("ping", lambda: True)

    def add(self, name: str, check: Callable[[], bool], *endpoints: str) -> None:
        """Add a check to ``endpoints``, or to all health endpoints if none is named."""
        for one in endpoints or self.ENDPOINTS:
            self._checks[one][name] = check

    def add_tasks(self, tasks: Supervisor) -> None:
        """Add a check to ``/readyz`` for each background task when it starts."""
        self._tasks.append(tasks)

    def _checks_of(self, endpoint: str) -> dict[str, Callable[[], bool]]:
        if endpoint != "readyz":
            return self._checks[endpoint]
        names = {name: partial(tasks.healthy, name) for tasks in self._tasks for name in tasks.failures}
        return self._checks[endpoint] | names

    def results(self) -> Iterator[tuple[str, str, bool]]:
        """Yield endpoint, name and result of each check."""
        for endpoint in self._checks:
            for name, check in self._checks_of(endpoint).items():
                yield endpoint, name, check()

    def answer(self, request: Request) -> Answer | None:
        """Return the response to a health request, or None for other paths.

        ``?verbose`` lists the checks, ``?exclude=NAME`` skips a check.
        """
        endpoint, slash, name = request.path.removeprefix("/").partition("/")
        if endpoint not in self.ENDPOINTS:
            return None
        if slash:
            check = self._checks_of(endpoint).get(name)
            if check is None:
                return not_found_page()
            # Upstream does not send its usual header X-Content-Type-Options for this response.
            return Answer(body=b"ok", content_type=_TEXT) if check() else text(f"internal server error: {name} failed\n", 500)
        excluded = set(request.query.get("exclude", ()))
        lines, failed = [], []
        for one, check in self._checks_of(endpoint).items():
            if one in excluded:
                lines.append(f"[+]{one} excluded: ok")
            elif check():
                lines.append(f"[+]{one} ok")
            else:
                lines.append(f"[-]{one} failed: reason withheld")
                failed.append(one)
        report = "\n".join(lines)
        if failed:
            return text(f"{report}\n{endpoint} check failed\n", 500)
        if "verbose" in request.query:
            return text(f"{report}\n{endpoint} check passed\n")
        return text("ok")


class Version:
    """Serves ``/version``."""

    def answer(self, request: Request) -> Answer | None:
        """Return the response to a request for ``/version``, or None for other paths. Raises MethodNotAllowed, NotAcceptable."""
        if request.path.startswith("/version/") and request.path.strip("/") != "version":
            raise api_errors.no_such_resource()
        if request.path.rstrip("/") != "/version":
            return None
        if request.method != "GET":
            raise api_errors.method_not_allowed()
        check_route(request.header("Accept"), (JSON,))
        return indented(version())


def version() -> JSONObject:
    """Return the version document as ``kubectl version`` shows it. Its build information names kubeloop."""
    major, minor, patch = KUBERNETES
    return {
        "major": str(major),
        "minor": str(minor),
        "emulationMajor": str(major),
        "emulationMinor": str(minor),
        "minCompatibilityMajor": str(major),
        "minCompatibilityMinor": str(minor - 1),
        "gitVersion": f"v{major}.{minor}.{patch}",
        "gitCommit": f"kubeloop-{VERSION}",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": sys.implementation.name,
        "platform": f"{sys.platform}/{_architecture()}",
    }


def _architecture() -> str:
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


# OpenID discovery, with which other systems verify service account tokens.
# Source: pkg/serviceaccount/openidmetadata.go; OpenID Connect Discovery 1.0; RFC 7517.


CONFIGURATION: Final = "/.well-known/openid-configuration"
KEYS: Final = "/openid/v1/jwks"
_JSON: Final = "application/json"
_KEY_SET: Final = "application/jwk-set+json"


class IssuerDocuments:
    """Serves the OpenID configuration and the key set. ``address`` is ``host:port`` of the server."""

    def __init__(self, settings: TokenSettings, address: str) -> None:
        keys = [key.web_key() for key in settings.all_keys]
        algorithms = sorted({key["alg"] for key in keys})
        configuration = {
            "issuer": settings.issuer,
            "jwks_uri": settings.keys_at or f"https://{address}{KEYS}",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        }
        self._documents = {
            CONFIGURATION: (msgspec.json.encode(configuration), _JSON),
            KEYS: (msgspec.json.encode({"keys": keys}), _KEY_SET),
        }

    def answer(self, request: Request) -> Answer | None:
        """Return the response to a request for one of the documents, or None for other paths.

        Raises:
            MethodNotAllowed: The method is not GET.
            NotAcceptable: The client does not accept the document's media type.
        """
        result = self._documents.get(request.path.rstrip("/"))
        if result is None:
            return None
        body, media_type = result
        if request.method != "GET":
            raise api_errors.method_not_allowed()
        check_route(request.header("Accept"), (media_type,))
        return Answer(body=body, content_type=media_type, headers=[("Cache-Control", "public, max-age=3600")], verbatim=True)
