"""Who a write belongs to: the name of a field manager, as a request says it or as its User-Agent does.

Source: k8s.io/apiserver pkg/endpoints/handlers/create.go (managerOrUserAgent), Kubernetes documentation "Server-Side Apply", "Managers".
"""

from __future__ import annotations

#: Bytes of a manager's name.
LONGEST = 128
#: Of a request that says neither.
UNKNOWN = "unknown"
#: The server itself.
SERVER = "kube-apiserver"


def manager_of(field_manager: str, user_agent: str) -> str:
    """``field_manager`` (already validated) if there is one, else what stands before the first slash of the User-Agent.

    Of the latter only printable characters count, and only as many as fit. Never empty.
    """
    return field_manager or _prefix(user_agent) or UNKNOWN


def _prefix(user_agent: str) -> str:
    name = user_agent.partition("/")[0]
    if name.isascii() and name.isprintable() and len(name) <= LONGEST:
        return name
    kept, size = [], 0
    for char in name:
        if not char.isprintable():
            continue
        size += len(char.encode("utf-8", "surrogatepass"))
        if size > LONGEST:
            break
        kept.append(char)
    return "".join(kept)
