"""OpenID discovery for verifiers of service account tokens: ``/.well-known/openid-configuration`` and ``/openid/v1/jwks``.

Source: pkg/serviceaccount/openidmetadata.go; OpenID Connect Discovery 1.0; RFC 7517.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kubeloop.apiserver.authentication.service_accounts.settings import TokenSettings
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.negotiation import check_route
from kubeloop.serving.answer import Answer
from kubeloop.serving.request import Request

CONFIGURATION: Final = "/.well-known/openid-configuration"
KEYS: Final = "/openid/v1/jwks"
_JSON: Final = "application/json"
_KEY_SET: Final = "application/jwk-set+json"


class IssuerDocuments:
    """Serves both documents. ``address``: ``host:port`` of the server."""

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
        """None for other paths.

        Raises:
            MethodNotAllowed, NotAcceptable
        """
        found = self._documents.get(request.path.rstrip("/"))
        if found is None:
            return None
        body, media_type = found
        if request.method != "GET":
            raise api_errors.method_not_allowed()
        check_route(request.header("Accept"), (media_type,))
        return Answer(body=body, content_type=media_type, headers=[("Cache-Control", "public, max-age=3600")], verbatim=True)
