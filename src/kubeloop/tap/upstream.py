"""The servers behind a tap: how they are reached and verified, and the Status that clients get when they are not."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from kubeloop.config import ClusterConfig, Credentials, RequestAuthenticator
from kubeloop.config.tls import TlsSource
from kubeloop.endpoints import api_errors
from kubeloop.http1.client_connection import ClientConnection
from kubeloop.http1.dial import Dialer
from kubeloop.http1.errors import ProtocolError, ProxyRefusedError
from kubeloop.meta.errors import ApiError, ConfigError
from kubeloop.reverseproxy.backend import BACKEND_ERRORS, Backend, error_text
from kubeloop.timing import Clock

#: Errors of a connection to an upstream server. A ConfigError names a certificate file that cannot be read or a plugin that failed.
UPSTREAM_ERRORS = (*BACKEND_ERRORS, ConfigError)


@dataclass(frozen=True, slots=True)
class DialedBackend(Backend):
    """A backend that is reached through the proxy that its kubeconfig or the environment names, if there is one."""

    dialer: Dialer | None = None

    async def connect(self) -> ClientConnection:
        """Open a connection.

        Raises:
            OSError, ConnectionEnded, ProtocolError: As for ``Backend.connect``; an error of the proxy is an OSError.
        """
        assert self.dialer is not None
        try:
            return await self.dialer.connect(self.tls)
        except ProxyRefusedError as error:
            raise OSError(str(error)) from None
        except OSError:
            raise
        except (ValueError, OverflowError) as error:  # an impossible name or port in a CONNECT request
            raise OSError(str(error)) from None


class UpstreamServer:
    """One server. Connections to it authenticate with the kubeconfig's client certificate, if it has one.

    >>> upstream = UpstreamServer(load_config(), SystemClock())
    >>> wire = await (await upstream.backend("/version", "", has_credentials=False)).connect()
    """

    def __init__(self, config: ClusterConfig, clock: Clock, keylog: Path | None = None) -> None:
        """Create the upstream side of a tap.

        Args:
            config: Address, trust and client certificate. Its tokens and passwords are not used: the client sends them.
            clock: Measures time limits.
            keylog: A file for the TLS secrets of the connections. None: none.

        Raises:
            ConfigError: The environment names an unusable proxy.
        """
        self._dialer = Dialer(config.server, config.proxy_url, config.tls_server_name, config.source, clock=clock)
        self._config = config
        self._tls = TlsSource(config, clock) if config.secure else None
        self._authenticator = RequestAuthenticator(config, clock)
        self._keylog = keylog

    @property
    def authority(self) -> str:
        """Host and port in the form of a Host header."""
        return self._dialer.authority

    @property
    def url(self) -> str:
        """The URL of the server, without a path."""
        return f"{'https' if self._tls is not None else 'http'}://{self._dialer.authority}"

    @property
    def base(self) -> str:
        """The path before those of the API; usually empty."""
        return self._dialer.base

    def check(self) -> None:
        """Read the files of the configuration.

        Raises:
            ConfigError: A file cannot be read or contains no usable certificate or key.
        """
        if self._tls is not None:
            self._tls.current()

    async def backend(self, path: str, query: str, *, has_credentials: bool) -> DialedBackend:
        """Return the destination of a request.

        Args:
            path: The path, percent-encoded.
            query: The query, without its question mark.
            has_credentials: Whether the request authenticates itself. If it does not, and the user has a credential plugin, the plugin
                runs once for a client certificate: the client ran it too, but could not present the certificate.

        Raises:
            ConfigError: A certificate file cannot be read, or the plugin failed.
        """
        tls = None
        if self._tls is not None:
            tls = self._tls.current(None if has_credentials else await self._authenticator.client_certificate())
            if self._keylog is not None and not tls.keylog_filename:
                tls.keylog_filename = str(self._keylog)
        return DialedBackend(self._dialer.host, self._dialer.port, tls, self._dialer.target_prefix + path, query, dialer=self._dialer)


class UpstreamServers:
    """The servers that clients of a CONNECT proxy reach: the kubeconfig's, and any other, which the system's authorities verify."""

    def __init__(self, main: UpstreamServer, config: ClusterConfig, clock: Clock, keylog: Path | None = None) -> None:
        """Create the servers.

        Args:
            main: The kubeconfig's server.
            config: Its configuration.
            clock: Measures time limits.
            keylog: A file for TLS secrets. None: none.
        """
        url = urlsplit(config.server)
        self._main = main
        self._main_address = (url.hostname or "", url.port or 443)
        self._clock = clock
        self._keylog = keylog
        self._servers: dict[tuple[str, int], UpstreamServer] = {}

    def server(self, host: str, port: int) -> UpstreamServer:
        """Return the server at an address. Servers other than the kubeconfig's never get its client certificate.

        Raises:
            ConfigError: The address is impossible.
        """
        if (host.lower(), port) == self._main_address:
            return self._main
        if (host, port) not in self._servers:
            shown = f"[{host}]" if ":" in host else host
            config = ClusterConfig(server=f"https://{shown}:{port}", name=host, source="CONNECT")
            self._servers[host, port] = UpstreamServer(config, self._clock, self._keylog)
        return self._servers[host, port]


def anonymous(config: ClusterConfig) -> ClusterConfig:
    """Return the configuration without its credentials, so that no client certificate is presented."""
    return msgspec.structs.replace(config, credentials=Credentials())


def unreachable(error: BaseException, backend: Backend | None) -> ApiError:
    """Return the Status for a server that sent no response: 503 if it cannot be reached, 504 after a timeout, else 502."""
    if isinstance(error, ConfigError) or backend is None:
        return api_errors.refusal(502, "BadGateway", f"kubeloop tap: {error}")
    text = f"kubeloop tap: no response from {backend.authority}: {error_text(error, backend)}"
    if isinstance(error, TimeoutError):
        return api_errors.refusal(504, "Timeout", text)
    if isinstance(error, ssl.SSLError | ProtocolError | ConnectionError) and not isinstance(error, ConnectionRefusedError):
        return api_errors.refusal(502, "BadGateway", text)
    return api_errors.refusal(503, "ServiceUnavailable", text)
