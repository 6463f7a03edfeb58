"""Options of the controller, which the command line, tests and benchmarks set."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from examples.ingress_nginx.ingress.builder import BuilderOptions
from examples.ingress_nginx.model.configuration import Settings


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """Options of one replica.

    Attributes:
        builder: Which Ingresses are served, and how.
        settings: Settings of NGINX; those of the ConfigMap come before them.
        config_map: Namespace and name of the ConfigMap with settings; None: none.
        reload_rate: Reloads in a second, after two at once.
        gateway_addresses: A network (CIDR) of which each Gateway gets an address; empty: Gateways share the default listeners.
        nginx: Path of the NGINX program; None: the one of the system, or that of an installed wheel.
        lua: Use Lua where NGINX has it; False: never.
        folder: Folder of NGINX's files; None: a temporary one.
        status_addresses: Addresses for the status of Ingresses; empty: those of ``publish_service``, else of the nodes.
        publish_service: Namespace and name of the Service in front of the controller.
        webhook_port: Port of the validating webhook; 0: it is not served.
        webhook_name: Name of the webhook's Service, of its configuration, and of the Secret with its certificates.
        update_status_on_shutdown: The last replica removes its addresses from the status of Ingresses when it stops.
        pod: Namespace and name of the pod of this replica, for events; empty: unknown.
    """

    builder: BuilderOptions = field(default_factory=BuilderOptions)
    settings: Settings = field(default_factory=Settings)
    config_map: tuple[str, str] | None = None
    reload_rate: float = 0.3
    gateway_addresses: str = ""
    nginx: Path | None = None
    lua: bool = True
    folder: Path | None = None
    status_addresses: tuple[str, ...] = ()
    publish_service: tuple[str, str] | None = None
    webhook_port: int = 0
    webhook_name: str = "kubeloop-ingress-webhooks"
    update_status_on_shutdown: bool = True
    pod: tuple[str, str] = ("", "")
