"""A picture of the way of a request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def picture(port: int, pods: Mapping[str, str], router: str | None) -> Iterator[str]:
    """Yield the lines of a picture: above the way of a request, below the way of the addresses.

    Args:
        port: Port of NGINX.
        pods: Name -> address of each pod.
        router: Address of the Router; None: NGINX knows the pods.
    """
    way = f"client --> NGINX :{port} --> "
    informed = "API server --> controller"
    if router is not None:
        way += f"Router {router} --> "
        informed = f"API server --> kubeloop proxy ({router}) --> controller; API server --> Router"
    yield ""
    for number, (name, address) in enumerate(sorted(pods.items())):
        fork = way if not number else "+-> ".rjust(len(way))
        yield f"  {fork}{address.ljust(15)} {name}"
    yield f"  addresses: {informed}"
    yield ""
