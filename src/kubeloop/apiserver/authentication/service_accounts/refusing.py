"""Why a token is refused, in Kubernetes' words: for TokenReviews, never for whoever sent it as a credential."""

from __future__ import annotations


class TokenRefused(Exception):
    """A token of an issuer that is believed is not in force. The text never holds the token."""
