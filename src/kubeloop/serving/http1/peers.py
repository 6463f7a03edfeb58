"""The certificates that the other end of a TLS connection showed."""

from __future__ import annotations

import ssl


def peer_chain(connection: ssl.SSLObject | None) -> tuple[bytes, ...]:
    """Its own, DER, and behind it those by which TLS came to trust it, where Python tells them (3.13). Empty: it showed none."""
    own = connection.getpeercert(binary_form=True) if connection is not None else None
    if own is None:
        return ()
    verified = getattr(connection, "get_verified_chain", None)
    # Of a session that was resumed, nothing is told but the certificate itself.
    return (tuple(verified()) if verified is not None else ()) or (own,)
