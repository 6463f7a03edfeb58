"""A stand-in for bitcoind: its list of added nodes, by JSON-RPC. It needs nothing but Python's own library.

The image map ``images.yaml`` runs it for the image of the daemons. It listens on the address in POD_IP.
"""

from __future__ import annotations

import base64
import json
import os
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PORT = 18332
#: The credentials of the image, for daemons without a Secret.
USER, PASSWORD = os.environ.get("BC_RPC_USER", "user"), os.environ.get("BC_RPC_PASSWORD", "password")
AUTHORIZATION = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
ADDED: list[str] = []


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to one request. The codes of errors are bitcoind's."""
    result: Any = None
    error: dict[str, Any] | None = None
    match request.get("method"), *request.get("params", []):
        case "getaddednodeinfo", *_:
            result = [{"addednode": node} for node in ADDED]
        case "addnode", node, "add" if node not in ADDED:
            ADDED.append(node)
        case "addnode", node, "remove" if node in ADDED:
            ADDED.remove(node)
        case "addnode", _, "add":
            error = {"code": -23, "message": "Node already added"}
        case "addnode", _, "remove":
            error = {"code": -24, "message": "Node has not been added"}
        case _:
            error = {"code": -32601, "message": "Method not found"}
    return {"result": result, "error": error, "id": request.get("id")}


class Handler(BaseHTTPRequestHandler):
    """Answers requests, single ones and batches."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.headers.get("Authorization") != AUTHORIZATION:
            self.reply(HTTPStatus.UNAUTHORIZED, b"")
            return
        request = json.loads(body)
        answers = [answer(each) for each in request] if isinstance(request, list) else answer(request)
        self.reply(HTTPStatus.OK, json.dumps(answers).encode() + b"\n")

    def reply(self, status: HTTPStatus, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer((os.environ["POD_IP"], PORT), Handler).serve_forever()
