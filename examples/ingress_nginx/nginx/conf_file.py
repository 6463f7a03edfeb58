"""The parts of nginx.conf that do not depend on hosts: processes, logs, defaults of all locations, and the status server.

Paths in the file are relative to the folder of the process, so that its text does not depend on the machine.
"""

from __future__ import annotations

import functools
import getpass
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from examples.ingress_nginx.model.configuration import Listener, Settings
from examples.ingress_nginx.model.policy import DEFAULT_POLICY
from examples.ingress_nginx.nginx.binary import NginxBinary
from examples.ingress_nginx.nginx.process import CONFIGURATION_ID, STATUS_SOCKET
from examples.ingress_nginx.nginx.quoting import network, quote

#: Headers for the backend: name in lower case -> name and value. A location that changes one of them repeats all.
BACKEND_HEADERS: Mapping[str, tuple[str, str]] = {
    name.lower(): (name, value)
    for name, value in (
        ("Host", "$http_host"),
        ("X-Request-ID", "$kubeloop_request_id"),
        ("X-Real-IP", "$remote_addr"),
        ("X-Forwarded-For", "$kubeloop_forwarded_for"),
        ("X-Forwarded-Host", "$http_host"),
        ("X-Forwarded-Port", "$kubeloop_port"),
        ("X-Forwarded-Proto", "$kubeloop_scheme"),
        ("X-Forwarded-Scheme", "$kubeloop_scheme"),
        ("X-Scheme", "$kubeloop_scheme"),
        ("Upgrade", "$http_upgrade"),
        ("Connection", "$kubeloop_connection"),
        # httpoxy: CGI programs take this header for a setting of their HTTP client.
        ("Proxy", '""'),
    )
}

_FORWARDED = """
map $http_x_forwarded_proto $kubeloop_scheme { default $scheme; "~^https?$" $http_x_forwarded_proto; }
map $http_x_forwarded_port $kubeloop_port { default $server_port; "~^[0-9]{1,5}$" $http_x_forwarded_port; }
map $http_x_forwarded_for $kubeloop_forwarded_for { default "$http_x_forwarded_for, $realip_remote_addr"; "" $remote_addr; }
real_ip_header X-Forwarded-For;
real_ip_recursive on;
"""
_DIRECT_VARIABLES = {"$kubeloop_scheme": "$scheme", "$kubeloop_port": "$server_port", "$kubeloop_forwarded_for": "$remote_addr"}
_DIRECT = "\n" + "".join(f'map "" {name} {{ default {value}; }}\n' for name, value in _DIRECT_VARIABLES.items())
_PRINTABLE = '"~^[!-~]{1,128}$"'
_MAPS = r"""
geo $kubeloop_dollar { default "$"; }
map $http_upgrade $kubeloop_connection { default upgrade; "" ""; }
map $request_uri $kubeloop_escaped_uri {
    "~^([^&]*)$" $1;
    "~^([^&]*)&([^&]*)$" $1%26$2;
    "~^([^&]*)&([^&]*)&([^&]*)$" $1%26$2%26$3;
    "~^([^&]*)&([^&]*)&([^&]*)&([^&]*)$" $1%26$2%26$3%26$4;
    "~^([^?&]*)" $1;
    default /;
}
map $http_host $kubeloop_host_port { default ""; "~(:[0-9]{1,5})$" $1; }
map "$kubeloop_scheme:$uri" $kubeloop_redirect_https { default 0; "~^http:/\.well-known/acme-challenge/" 0; "~^http:" 1; }
map $kubeloop_scheme $kubeloop_is_https { default ""; https 1; }
"""


def conf_file(
    binary: NginxBinary,
    settings: Settings,
    http: Sequence[str],
    *,
    main: Sequence[str] = (),
    status_locations: Sequence[str] = (),
    resolvers: Sequence[str] = (),
    request_id: str = "",
) -> str:
    """Return nginx.conf.

    Args:
        binary: The program that reads it.
        settings: Settings of all servers.
        http: Blocks and directives inside ``http``: upstreams, maps, servers.
        main: Directives outside ``http``.
        status_locations: Further locations of the status server, for example for Lua's data.
        resolvers: Addresses of DNS servers; empty: names of backends are not resolved while NGINX runs.
        request_id: Variable with the identifier that Lua has made for a request; empty: NGINX makes all identifiers.
    """
    status = f"""
server {{
    listen unix:{STATUS_SOCKET};
    access_log off;
    location = /configuration-id {{ return 200 "{CONFIGURATION_ID}"; }}
    {_block((*_counters(binary), *status_locations), 4)}
    location / {{ return 404; }}
}}"""
    defaults = (*_http(binary, settings, resolvers), *_identifiers(request_id))
    return "\n".join((*_main(binary, settings), *main, "http {", *defaults, status, *http, "}", ""))


def _identifiers(made: str) -> list[str]:
    # A client's identifier gets into headers and the log: only a printable one is passed on.
    chosen = "map $http_x_request_id $kubeloop_request_id"
    if not made:
        return [f'{chosen} {{ default $request_id; "" $request_id; {_PRINTABLE} $http_x_request_id; }}']
    return [
        # Lua makes none for malformed requests.
        f'map {made} $kubeloop_own_id {{ default {made}; "" $request_id; }}',
        f'{chosen} {{ default $kubeloop_own_id; "" $kubeloop_own_id; {_PRINTABLE} $http_x_request_id; }}',
    ]


def listen(listener: Listener, binary: NginxBinary, settings: Settings, *, default: bool = False) -> list[str]:
    """Return the ``listen`` directives of a listener: for IPv4 and IPv6 if it has no address. ``default``: of the default server."""
    flags = " default_server" if default else ""
    if listener.tls:
        flags += " ssl" if binary.http2_directive or not settings.http2 else " ssl http2"
    elif listener.http2_only and not binary.http2_directive:
        flags += " http2"
    if listener.address:
        address = f"[{listener.address}]" if ":" in listener.address else listener.address
        return [f"listen {quote(f'{address}:{listener.port}')}{flags};"]
    return [f"listen {address}:{listener.port}{flags};" for address in (("*", "[::]") if _has_ipv6() else ("*",))]


def seconds(value: float) -> str:
    """Return a time as NGINX reads it: at least one millisecond."""
    return f"{int(value)}s" if value == int(value) else f"{max(1, round(value * 1000))}ms"


def system_resolvers(path: Path = Path("/etc/resolv.conf")) -> tuple[str, ...]:
    """Return the DNS servers of the machine."""
    try:
        found = re.findall(r"^\s*nameserver\s+([0-9a-fA-F.:]+)\s*$", path.read_text(), re.MULTILINE)
    except OSError:
        return ()
    return tuple(f"[{address}]" if ":" in address else address for address in found)


@functools.cache
def _has_ipv6() -> bool:
    return Path("/proc/net/if_inet6").exists()


def _counters(binary: NginxBinary) -> list[str]:
    return ["location = /stub-status { stub_status; }"] if binary.stub_status else []


def _block(lines: Sequence[str], indent: int) -> str:
    return ("\n" + " " * indent).join(lines)


def _main(binary: NginxBinary, settings: Settings) -> list[str]:
    lines = [f'load_module "{module}";' for module in binary.modules]
    if os.geteuid() == 0:
        # NGINX's default user could not read the private folder. Images run the controller without root.
        lines.append(f"user {quote(getpass.getuser(), variables=False)};")
    return [
        *lines,
        "daemon off;",
        "pid nginx.pid;",
        "lock_file nginx.lock;",
        "error_log error.log notice;",
        f"worker_processes {settings.worker_processes or 'auto'};",
        f"worker_shutdown_timeout {seconds(settings.shutdown_seconds)};",
        "pcre_jit on;",
        "events { worker_connections 16384; multi_accept on; }",
    ]


def _http(binary: NginxBinary, settings: Settings, resolvers: Sequence[str]) -> list[str]:
    default = DEFAULT_POLICY
    # NGINX would look the variables of _DIRECT up in their maps for each request.
    direct = {} if settings.use_forwarded_headers else _DIRECT_VARIABLES
    headers = [
        f"{kind}_set_header {name} {direct.get(value, value)};" for kind in ("proxy", "grpc") for name, value in sent_headers(kind).values()
    ]
    temporary = [f"{kind}_temp_path temp/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")]
    return [
        *temporary,
        "map_hash_bucket_size 128;",
        "map_hash_max_size 65536;",
        "server_names_hash_bucket_size 512;",
        "server_names_hash_max_size 65536;",
        "variables_hash_bucket_size 256;",
        "variables_hash_max_size 65536;",
        "proxy_headers_hash_bucket_size 128;",
        "proxy_headers_hash_max_size 2048;",
        _FORWARDED if settings.use_forwarded_headers else _DIRECT,
        *(f"set_real_ip_from {network(found)};" for found in settings.trusted_proxies if settings.use_forwarded_headers),
        _MAPS,
        "log_format kubeloop '$remote_addr [$time_iso8601] \"$request\" $status $body_bytes_sent $request_time '",
        '    \'"$host" "$upstream_addr" $upstream_status $upstream_response_time $kubeloop_request_id\';',
        "access_log access.log kubeloop buffer=64k flush=1s;" if settings.access_log else "access_log off;",
        f"server_tokens {'on' if settings.server_tokens else 'off'};",
        f"keepalive_timeout {settings.keepalive}s;",
        "default_type text/plain;",
        "sendfile on;",
        "tcp_nopush on;",
        "reset_timedout_connection on;",
        "client_header_buffer_size 1k;",
        "large_client_header_buffers 4 8k;",
        "server_name_in_redirect off;",
        "port_in_redirect off;",
        "absolute_redirect off;",
        # A location passes a request on with error_page, and the named location has error pages too.
        "recursive_error_pages on;",
        *(["http2 on;"] if binary.http2_directive and settings.http2 else []),
        f"ssl_protocols {' '.join(settings.ssl_protocols)};",
        "ssl_session_cache shared:kubeloop:10m;",
        "ssl_session_tickets off;",
        "ssl_prefer_server_ciphers on;",
        *([f"resolver {' '.join(resolvers)} valid=30s;", "resolver_timeout 10s;"] if resolvers else []),
        "proxy_http_version 1.1;",
        "proxy_redirect off;",
        "proxy_ssl_server_name off;",
        f"client_max_body_size {default.body_size};",
        *timeout_lines("proxy", default.timeouts.connect, default.timeouts.send, default.timeouts.read),
        *timeout_lines("grpc", default.timeouts.connect, default.timeouts.send, default.timeouts.read),
        "proxy_buffering off;",
        "proxy_request_buffering on;",
        f"proxy_buffer_size {default.buffering.size};",
        f"proxy_buffers {default.buffering.count} {default.buffering.size};",
        f"proxy_busy_buffers_size {default.buffering.size};",
        *(f"{kind}_next_upstream {' '.join(default.retries.on)};" for kind in ("proxy", "grpc")),
        *(f"{kind}_next_upstream_tries {default.retries.tries};" for kind in ("proxy", "grpc")),
        *headers,
    ]


def sent_headers(kind: str) -> dict[str, tuple[str, str]]:
    """Return the headers for backends that ``proxy`` or ``grpc`` sets; gRPC has no Connection and Upgrade (RFC 9113, 8.2.2)."""
    return {key: value for key, value in BACKEND_HEADERS.items() if kind == "proxy" or key not in ("connection", "upgrade")}


def timeout_lines(kind: str, connect: float, send: float, read: float) -> list[str]:
    """Return the timeouts of ``proxy`` or ``grpc``, in seconds."""
    named = (("connect", connect), ("send", send), ("read", read))
    return [f"{kind}_{name}_timeout {seconds(value)};" for name, value in named]
