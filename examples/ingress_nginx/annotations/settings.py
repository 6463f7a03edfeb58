"""Settings of all servers from the controller's ConfigMap, for the controller and for the commands that explain it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from examples.ingress_nginx.annotations import values
from examples.ingress_nginx.annotations.parsed import Problem
from examples.ingress_nginx.annotations.values import InvalidValue
from examples.ingress_nginx.model.configuration import Settings
from kubeloop.api.core.v1 import ConfigMap

_PROTOCOLS = {name: name for name in ("TLSv1.2", "TLSv1.3")}

#: Field of the settings and parser, by key of the ConfigMap.
_KEYS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "worker-processes": ("worker_processes", lambda value: 0 if value == "auto" else values.integer(1, 256)(value)),
    "keep-alive": ("keepalive", values.seconds(0, 3600)),
    "server-tokens": ("server_tokens", values.boolean),
    "disable-access-log": ("access_log", lambda value: not values.boolean(value)),
    "upstream-keepalive-connections": ("upstream_keepalive", values.integer(0, 65_535)),
    "ssl-protocols": ("ssl_protocols", values.each(values.choice(_PROTOCOLS), separator=" ")),
    "use-http2": ("http2", values.boolean),
    "worker-shutdown-timeout": ("shutdown_seconds", values.seconds(1, 3600)),
    "use-forwarded-headers": ("use_forwarded_headers", values.boolean),
    "proxy-real-ip-cidr": ("trusted_proxies", values.each(values.network)),
    "ssl-redirect": ("ssl_redirect", values.boolean),
    "hsts": ("hsts", values.boolean),
    "hsts-max-age": ("hsts_max_age", values.integer(0, 1 << 31)),
    "hsts-include-subdomains": ("hsts_subdomains", values.boolean),
    "hsts-preload": ("hsts_preload", values.boolean),
}
#: What keys begin with that protect all hosts in ingress-nginx. Without the protection, nothing may be served.
_PROTECTIONS = (
    *("whitelist-source-range", "allowlist-source-range", "denylist-source-range", "block-", "global-auth-"),
    *("enable-modsecurity", "enable-owasp", "modsecurity", "global-rate-limit"),
)
#: Settings that are parts of locations, not of nginx.conf.
LOCATION_FIELDS = ("ssl_redirect", "hsts", "hsts_max_age", "hsts_subdomains", "hsts_preload")


@dataclass(frozen=True, slots=True)
class ConfigMapSettings:
    """The settings of the controller's ConfigMap.

    Attributes:
        settings: The settings of all servers.
        problems: Keys that are not followed, and the reasons, as ``key KEY: REASON``.
        denials: Those of ``problems`` that ask for a protection which this controller does not have. With one of them no configuration is
            served: NGINX keeps the last good one, or does not start.
    """

    settings: Settings
    problems: tuple[str, ...] = ()
    denials: tuple[str, ...] = ()


def read_settings(config_map: ConfigMap | None, fixed: Settings) -> ConfigMapSettings:
    """Return the settings of the controller's ConfigMap.

    Args:
        config_map: The ConfigMap; None if it does not exist.
        fixed: The settings of the command line, from which the addresses always come. Without data in the ConfigMap all of them count.
    """
    data = config_map.data if config_map is not None else {}
    settings, problems = parse_settings(data)
    return ConfigMapSettings(
        replace(settings, http=fixed.http, https=fixed.https) if data else fixed,
        tuple(_text(problem) for problem in problems),
        tuple(_text(problem) for problem in problems if problem.denies),
    )


def missing_text(config_map: tuple[str, str]) -> str:
    """Return the problem of a ConfigMap that the command line names and the cluster does not have."""
    return f"--configmap: ConfigMap {'/'.join(config_map)} does not exist; the default settings are used"


def supported_keys() -> frozenset[str]:
    """Return the keys of the ConfigMap that are followed."""
    return frozenset(_KEYS)


def parse_settings(data: Mapping[str, str]) -> tuple[Settings, tuple[Problem, ...]]:
    """Return the settings of a ConfigMap, and a problem for each key that is not followed, whose ``annotation`` is the key.

    A problem ``denies`` if the key asks for a protection of all hosts that this controller does not have.
    """
    settings = Settings()
    problems = []
    for key, value in sorted(data.items()):
        if key not in _KEYS:
            if key.startswith(_PROTECTIONS) and value.strip().lower() not in ("", "false"):
                advice = "the protection is not supported for all hosts; use annotations of Ingresses, and remove the key"
                problems.append(Problem(key, advice, denies=True))
            else:
                problems.append(Problem(key, "not known to this controller; remove it"))
            continue
        field, parse = _KEYS[key]
        try:
            settings = replace(settings, **{field: parse(value)})
        except InvalidValue as error:
            problems.append(Problem(key, f"the value {error}"))
    return settings, tuple(problems)


def _text(problem: Problem) -> str:
    return f"key {problem.annotation}: {problem.message}"
