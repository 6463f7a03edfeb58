"""Client certificates: the user is the common name, the groups are the organizations.

Source: Kubernetes documentation, "Authenticating" (X.509 client certificates).
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from kubeloop.apiserver.authentication.users import AUTHENTICATED, User


def is_valid_now(certificate: Mapping[str, Any]) -> bool:
    # Not the server's own clock, which a test may have set to any time: certificates are issued at the real one.
    return _seconds(certificate["notBefore"]) <= time.time() < _seconds(certificate["notAfter"])


# Each request of a connection shows the same certificate.
_seconds = lru_cache(maxsize=1024)(ssl.cert_time_to_seconds)


def certificate_user(certificate: Mapping[str, Any]) -> User:
    name = ""
    groups = []
    for relative in certificate.get("subject", ()):
        for kind, value in relative:
            if kind == "commonName":
                name = value
            elif kind == "organizationName":
                groups.append(value)
    return User(name, (*groups, AUTHENTICATED))
