"""A client of the JSON-RPC interface of bitcoin daemons.

Source: Bitcoin Core's doc/JSON-RPC-interface.md, and src/rpc/protocol.h for the codes of errors.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import aiohttp

from kubeloop import KubeloopError

PORT = 18332
#: Codes of errors: the daemon is starting, a node is already in the list of added nodes, a node is not in it.
IN_WARMUP = -28
ALREADY_ADDED = -23
NOT_ADDED = -24

#: Largest body that is read: the added nodes of the largest network take 10 KiB.
MAX_BODY = 1 << 20
#: Most added nodes of a daemon that are compared; networks have at most 100.
MAX_NODES = 1000


@dataclass(frozen=True)
class Credentials:
    """User and password of the RPC interface. ``repr`` omits the password."""

    user: str
    password: str = field(repr=False)

    @property
    def header(self) -> str:
        """The value of the header Authorization."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


class RpcError(KubeloopError):
    """A request failed. ``code`` is the daemon's code; 0 if the daemon gave none."""

    def __init__(self, text: str, code: int = 0) -> None:
        self.code = code
        super().__init__(text)


class Unreachable(RpcError):
    """The daemon did not answer, or not in time."""


class WarmingUp(RpcError):
    """The daemon is starting, for example it loads its wallet."""


class CredentialsRejected(RpcError):
    """The daemon rejected the credentials."""


@dataclass(frozen=True)
class RpcCall:
    """A method and its parameters, which are texts."""

    method: str
    params: tuple[str, ...] = ()
    #: Codes of errors that count as success, because the wanted state exists.
    accepted: frozenset[int] = frozenset()


class RpcClient:
    """Sends requests to daemons, and reuses connections.

    Args:
        timeout: Seconds for a whole request.
        url_of: Returns the URL of the daemon with an IP address.

    Example:
        >>> async with RpcClient() as rpc:
        ...     await rpc.added_nodes("127.0.0.2", Credentials("user", "password"))
        ['127.0.0.3']
    """

    def __init__(self, *, timeout: float = 5.0, url_of: Callable[[str], str] | None = None) -> None:
        self._timeout = timeout
        self._url_of = url_of or daemon_url
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        # Requests to pods must not use the proxy of the environment. Daemons set no cookies.
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._timeout),
            # Without a limit for all hosts: a hundred daemons that hang must not keep the others waiting.
            connector=aiohttp.TCPConnector(limit=0, limit_per_host=2, use_dns_cache=False),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._session is not None:
            await self._session.close()

    async def added_nodes(self, ip: str, credentials: Credentials) -> list[str]:
        """Return the addresses that the daemon has in its list of added nodes.

        Raises:
            RpcError: The request failed; see its subclasses.
        """
        found = await self.call(ip, credentials, RpcCall("getaddednodeinfo"))
        if not isinstance(found, list) or not all(isinstance(each, dict) and isinstance(each.get("addednode"), str) for each in found):
            raise RpcError(f"daemon {ip}: getaddednodeinfo returned no list of added nodes")
        if len(found) > MAX_NODES:
            raise RpcError(f"daemon {ip} lists {len(found)} added nodes, more than {MAX_NODES}: remove them from the daemon")
        return [each["addednode"] for each in found]

    async def change_nodes(self, ip: str, credentials: Credentials, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        """Add nodes to the daemon's list, and remove others, in one request.

        Args:
            ip: Address of the daemon.
            credentials: User and password.
            add: Addresses to add; it is no error if the list has an address already.
            remove: Addresses to remove; it is no error if the list lacks an address.

        Raises:
            RpcError: The request failed, or the daemon refused a change. The other changes may be done.
        """
        calls = [RpcCall("addnode", (peer, "add"), frozenset({ALREADY_ADDED})) for peer in add]
        calls += [RpcCall("addnode", (peer, "remove"), frozenset({NOT_ADDED})) for peer in remove]
        if calls:
            await self.batch(ip, credentials, calls)

    async def call(self, ip: str, credentials: Credentials, call: RpcCall) -> Any:
        """Send one request and return its result. Raises RpcError."""
        return _result(ip, call, await self._post(ip, credentials, _request(0, call)))

    async def batch(self, ip: str, credentials: Credentials, calls: Sequence[RpcCall]) -> list[Any]:
        """Send several requests in one body and return their results. Raises RpcError for the first that failed."""
        answers = await self._post(ip, credentials, [_request(number, call) for number, call in enumerate(calls)])
        if not isinstance(answers, list):
            # A daemon that starts answers a batch with a single error.
            raise _failure(ip, calls[0], answers)
        by_id = {answer["id"]: answer for answer in answers if isinstance(answer, dict) and isinstance(answer.get("id"), str)}
        return [_result(ip, call, by_id.get(str(number))) for number, call in enumerate(calls)]

    async def _post(self, ip: str, credentials: Credentials, request: Any) -> Any:
        if self._session is None:
            raise RuntimeError("use the client as: async with RpcClient() as rpc")
        headers = {"Authorization": credentials.header}
        try:
            async with self._session.post(self._url_of(ip), data=json.dumps(request), headers=headers, allow_redirects=False) as response:
                body = await _body(response)
                status = response.status
        except TimeoutError:
            raise Unreachable(f"daemon {ip} did not answer in {self._timeout:g} s") from None
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
            raise Unreachable(f"daemon {ip} cannot be reached: {error}") from None
        if status == 401:
            raise CredentialsRejected(f"daemon {ip} rejected the RPC credentials")
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise RpcError(f"daemon {ip} answered with HTTP status {status} and no JSON") from None


def daemon_url(ip: str, template: str = f"http://{{ip}}:{PORT}/") -> str:
    """Return the URL of the daemon with an IP address. ``{ip}`` in ``template`` stands for the address, in brackets if it is of IPv6."""
    return template.replace("{ip}", f"[{ip}]" if ":" in ip else ip)


async def _body(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_BODY:
            response.close()
            raise aiohttp.ClientPayloadError(f"the answer is longer than {MAX_BODY} bytes")
    return bytes(body)


def _request(number: int, call: RpcCall) -> dict[str, Any]:
    # Newer daemons refuse a "jsonrpc" that is not a text; "1.0" is what bitcoin-cli sends.
    return {"jsonrpc": "1.0", "id": str(number), "method": call.method, "params": list(call.params)}


def _result(ip: str, call: RpcCall, answer: Any) -> Any:
    if not isinstance(answer, dict):
        raise RpcError(f"daemon {ip}: {call.method} got no answer")
    error = answer.get("error")
    if error is None:
        return answer.get("result")
    if isinstance(error, dict) and _code(error) in call.accepted:
        return None
    raise _failure(ip, call, answer)


def _failure(ip: str, call: RpcCall, answer: Any) -> RpcError:
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return RpcError(f"daemon {ip}: {call.method} got an answer without result and error")
    code = _code(error)
    if code == IN_WARMUP:
        # Without the daemon's text, which changes while it starts: each change would be a write of the status.
        return WarmingUp(f"daemon {ip} is starting", code)
    text = "".join(character if character.isprintable() else "?" for character in str(error.get("message", ""))[:200])
    return RpcError(f"daemon {ip}: {call.method}: {text} (code {code})", code)


def _code(error: dict[str, Any]) -> int:
    """Return the code of an error; 0 if it has none, or no plausible one: it becomes part of a message."""
    code = error.get("code")
    return code if isinstance(code, int) and abs(code) < 1 << 31 else 0
