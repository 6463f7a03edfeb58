"""The application: a web server that answers with its pod, its version, and the address from which the request came.

It needs nothing but Python's own library, and listens on the pod's own address, because all process pods share one loopback interface.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 8080


class PodHandler(BaseHTTPRequestHandler):
    """Answers GET and POST with one line of JSON."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        received = len(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        answer = {
            "pod": os.environ.get("POD_NAME", ""),
            "version": os.environ.get("VERSION", ""),
            "from": self.client_address[0],
            "path": self.path,
            "received": received,
        }
        body = json.dumps(answer).encode() + b"\n"
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        # An idle connection would delay the end of the server.
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing: the Router logs each request."""


def main() -> None:
    """Serve until SIGTERM; requests that have begun get their answers."""
    server = ThreadingHTTPServer((os.environ.get("KUBELOOP_POD_IP", "127.0.0.1"), PORT), PodHandler)
    server.daemon_threads = False
    # shutdown() waits for the loop of serve_forever, which runs in the thread that handles signals.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever(poll_interval=0.1)
    server.server_close()


if __name__ == "__main__":
    main()
