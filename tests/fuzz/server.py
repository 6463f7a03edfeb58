"""A server under fuzz, in a separate process: sends it requests, and reports the faults of its answers."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from kubeloop.config import load_config
from kubeloop.testing import LocalCluster
from tests.fuzz.requests import BOOKS, ELSEWHERE, Sent

#: Seconds within which each request must be answered, also those of others meanwhile.
PATIENCE = 10.0
#: Bytes of memory that all that is sent may take beside what the server had.
ALLOWED = 64 << 20
#: The server's words after an unexpected exception.
_UNEXPECTED = b"the server met an unexpected condition"


class Fuzzed:
    """A context manager. ``wrong`` collects what must not be; each finding names its request."""

    def __init__(self) -> None:
        self._cluster = LocalCluster(controllers=False, history_revisions=200)
        #: With and without the administrator's certificate.
        self._connections: dict[bool, http.client.HTTPSConnection] = {}
        self._others = threading.Thread(target=self._ask, name="another client")
        self._ended = threading.Event()
        self.statuses: dict[int, int] = {}
        self.wrong: list[str] = []
        self.served = 0

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        config = load_config(self._cluster.kubeconfig)
        pair = config.credentials.client_certificate, config.credentials.client_key
        assert pair[0] is not None
        assert pair[1] is not None
        self._tls = config.ssl_context((pair[0].read(), pair[1].read()))
        assert config.ca is not None
        self._anonymous = ssl.create_default_context(cadata=config.ca.read().decode())
        self._port = int(self._cluster.url.rpartition(":")[2])
        self.send(
            Sent(
                "POST",
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                {"Content-Type": "application/json"},
                json.dumps(BOOKS).encode(),
            )
        )
        self._resident = self._memory("VmRSS")
        Path(f"/proc/{self._cluster.pid}/clear_refs").write_text("5")  # the peak is measured from now on
        self._others.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._others.join()
        self._close()
        self._cluster.__exit__(kind, error, trace)

    @property
    def grown(self) -> int:
        """Bytes that the server took at most since it was ready."""
        return self._memory("VmHWM") - self._resident

    @property
    def log(self) -> str:
        return self._cluster.log

    def send(self, sent: Sent) -> str:
        """Return the fault of the answer, or "" if it has none."""
        began = time.monotonic()
        try:
            status, body = self._cut_off(sent) if sent.cut else self._answer(sent)
        except TimeoutError:
            self._close()
            return self._found(sent, f"no answer within {PATIENCE:g} s")
        except (ConnectionError, http.client.HTTPException, ssl.SSLError) as error:
            self._close()
            # An answer before the end of a body that is too long may be lost as the connection closes.
            if sent.cut or len(sent.body) > 3 << 20:
                return ""
            return self._found(sent, f"the connection ended: {error!r}")
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if _UNEXPECTED in body or (status >= 500 and b"Status" not in body and not _is_of_a_server_that_is_not_there(sent, status, body)):
            return self._found(sent, f"{status}: {body[:400]!r}")
        if time.monotonic() - began > PATIENCE:
            return self._found(sent, "answered too late")
        return ""

    def _found(self, sent: Sent, message: str) -> str:
        finding = f"{sent}\n    {message}"
        self.wrong.append(finding)
        return finding

    def _answer(self, sent: Sent) -> tuple[int, bytes]:
        connection = self._connections.get(sent.alone)
        if connection is None:
            tls = self._anonymous if sent.alone else self._tls
            connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=PATIENCE, context=tls)
            self._connections[sent.alone] = connection
        connection.putrequest(sent.method, _ascii(sent.path), skip_accept_encoding=True)
        for name, value in sent.headers.items():
            connection.putheader(name, value.encode())
        if sent.body or sent.method not in ("GET", "HEAD"):
            connection.putheader("Content-Length", str(len(sent.body)))
        connection.endheaders(sent.body or None)
        response = connection.getresponse()
        streams = any(word in sent.path for word in ("watch=", "/watch/", "follow="))
        if (streams and response.status == 200) or response.status == 101:
            self._close()  # a stream goes on; that it began is what counts
            return response.status, b""
        return response.status, response.read()

    def _cut_off(self, sent: Sent) -> tuple[int, bytes]:
        """Promises more than it sends, and goes."""
        lines = [f"{sent.method} {_ascii(sent.path)} HTTP/1.1", "Host: x", *(f"{name}: {value}" for name, value in sent.headers.items())]
        lines += [f"Content-Length: {len(sent.body) + sent.cut}", "", ""]
        with (
            socket.create_connection(("127.0.0.1", self._port), timeout=PATIENCE) as plain,
            self._tls.wrap_socket(plain, server_hostname="127.0.0.1") as wire,
        ):
            wire.sendall("\r\n".join(lines).encode() + sent.body[: 1 << 16])
        return 0, b""

    def _ask(self) -> None:
        """Another client, who must be served all the time."""
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=PATIENCE, context=self._tls)
        while not self._ended.wait(0.02):
            try:
                connection.request("GET", "/api/v1/namespaces/default")
                status = connection.getresponse()
                status.read()
            except (OSError, http.client.HTTPException) as error:
                self.wrong.append(f"another client was not served: {error!r}")
                connection.close()
                continue
            if status.status != 200:
                self.wrong.append(f"another client got {status.status}")
            self.served += 1
        connection.close()

    def _close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _memory(self, field: str) -> int:
        lines = Path(f"/proc/{self._cluster.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))


def _is_of_a_server_that_is_not_there(sent: Sent, status: int, body: bytes) -> bool:
    """What kube-aggregator says, in plain text, of an API that is another server's."""
    is_expected = body.startswith((b"service unavailable", b"error trying to reach service")) or (sent.method == "HEAD" and not body)
    return status == 503 and sent.path.startswith(ELSEWHERE) and is_expected


def _ascii(path: str) -> str:
    return "".join(char if " " < char < "\x7f" else f"%{ord(char) & 255:02x}" for char in path)
