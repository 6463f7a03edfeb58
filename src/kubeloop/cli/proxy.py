"""``kubeloop proxy``: a proxy in front of an API server that changes what its clients see, as a command."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from kubeloop.cli.flags import FILE, FOLDER, flag, with_flags
from kubeloop.cli.group import CommandGroup
from kubeloop.cli.long_running import refuse_options, shutdown_event, writable_target
from kubeloop.cli.proxy_rules import schema_command, test_command
from kubeloop.cli.server_logging import FORMATS, configure
from kubeloop.meta.errors import ConfigError, KubeloopError
from kubeloop.meta.repr import counted

if TYPE_CHECKING:
    from kubeloop.endpoints.access import User
    from kubeloop.proxy.server import ProxyServer
    from kubeloop.proxy.upstream import FrontProxyCertificate
    from kubeloop.serving.answer import Answer
    from kubeloop.serving.listener import Listener

_LOG = logging.getLogger("kubeloop.cli.proxy")

_PATH = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True)
class ProxyFlags:
    """Flags of ``kubeloop proxy``."""

    rules: Path | None = flag(
        type=_PATH, help="RewriteRules: a YAML or JSON file, or a folder of them. Default: everything passes unchanged."
    )
    kubeconfig: Path | None = flag(type=FILE, help="Kubeconfig of the cluster. Default: $KUBECONFIG, or ~/.kube/config.")
    context: str | None = flag(help="Context of the kubeconfig. Default: the current one.")
    bind_address: str = flag("127.0.0.1", show_default=True, help="Address to listen on.")
    port: int = flag(0, type=click.IntRange(0, 65535), help="Port to listen on. Default: a free one.")
    advertise_address: str = flag(
        "",
        metavar="HOST[:PORT]",
        help="Address at which clients reach the proxy: kubeconfigs and its certificate name it. Default: --bind-address and --port.",
    )
    kubeconfig_out: Path | None = flag(type=FILE, help="Write the kubeconfig for clients to this file. Default: a temporary file.")
    user_kubeconfig: tuple[str, ...] = flag(
        (),
        metavar="USER[:GROUP,...]=FILE",
        help="Write a kubeconfig for another user, whom the proxy impersonates. May be repeated.",
    )
    data_dir: Path | None = flag(
        type=FOLDER, help="Folder of the authority that signs certificates. Default: a new authority at each start."
    )
    client_ca_file: Path | None = flag(type=FILE, help="Authorities of client certificates besides the proxy's own, PEM.")
    proxy_client_cert_file: Path | None = flag(
        type=FILE,
        help="Certificate of a front proxy: name users to the API server by X-Remote-* instead of impersonating them, PEM.",
    )
    proxy_client_key_file: Path | None = flag(type=FILE, help="Private key of --proxy-client-cert-file, PEM.")
    dry_run: bool = flag(False, help="Log what the rules would change, and change nothing.")
    explain: bool = flag(False, help="Name the rules that touched a response in the header Kubeloop-Rules.")
    cache: bool = flag(False, help="Answer gets, lists and watches of all clients from one list and watch per resource.")
    health: str = flag("", metavar="HOST:PORT", help="Serve /livez, /readyz and /metrics there over HTTP. Default: nowhere.")
    logging_format: str = flag("text", type=click.Choice(FORMATS), show_default=True, help="Format of the log on stderr.")
    verbose: bool = flag(False, "-v", "--verbose", help="Log everything.")
    exit_with_stdin: bool = flag(False, help="End when standard input ends.")


@click.group(cls=CommandGroup, invoke_without_command=True)
@with_flags(flags=ProxyFlags)
@click.pass_context
def proxy(context: click.Context, flags: ProxyFlags) -> None:
    """Run a proxy in front of a cluster that changes what its clients see.

    Prints "ready URL kubeconfig=FILE" when it answers; ends on SIGINT or SIGTERM.
    Rules say which objects are hidden or changed, and for which clients: see docs/proxy.md.
    """
    if context.invoked_subcommand is not None:
        refuse_options(context, "proxy")
        return
    configure(flags.logging_format, 4 if flags.verbose else 0)
    folder = None
    target = flags.kubeconfig_out
    if target is None:
        folder = tempfile.mkdtemp(prefix="kubeloop-proxy-")
        target = Path(folder, "kubeconfig")
    try:
        asyncio.run(_run(flags, target.absolute()))
    except (KubeloopError, OSError) as error:
        raise click.ClickException(str(error)) from None
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0)


proxy.add_command(schema_command)
proxy.add_command(test_command)


async def _run(flags: ProxyFlags, target: Path) -> None:
    # Before the imports, which take most of the start, so that a signal during them leaves nothing behind.
    ending = shutdown_event(exit_with_stdin=flags.exit_with_stdin)

    from kubeloop.config import load_config
    from kubeloop.pki.files import write_secret
    from kubeloop.proxy.server import ProxyOptions, ProxyServer

    files = [(target, None), *((path, user) for user, path in map(_user_and_file, flags.user_kubeconfig))]
    written = [(writable_target(path), path, user) for path, user in files]
    options = ProxyOptions(
        host=flags.bind_address,
        port=flags.port,
        advertised=advertised_address(flags.advertise_address),
        rules=flags.rules,
        data_dir=flags.data_dir,
        client_ca=_read(flags.client_ca_file),
        front_proxy=_front_proxy(flags.proxy_client_cert_file, flags.proxy_client_key_file),
        dry_run=flags.dry_run,
        explain=flags.explain,
        cache=flags.cache,
    )
    config = load_config(flags.kubeconfig, flags.context)
    _check_outputs(written, flags.kubeconfig)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ProxyServer(config, options))
        for file, path, user in written:
            try:
                write_secret(file, server.kubeconfig(user))
            except OSError as error:
                raise ConfigError(f"cannot write kubeconfig {path}: {error.strerror or error}") from None
        if flags.health:
            stack.push_async_callback((await _serve_health(flags.health, server)).close)
        rules = f"{counted(len(server.rules.rules), 'rule')} of {flags.rules}" if flags.rules is not None else "no rules"
        _LOG.info("%s in front of %s as %s; %s", server.url, config.server, server.user.name, rules)
        print(f"ready {server.url} kubeconfig={target}", flush=True)
        await ending.wait()


def _check_outputs(outputs: list[tuple[Path, Path, User | None]], kubeconfig: Path | None) -> None:
    """Refuse to write a kubeconfig over a file from which the cluster is read.

    Raises:
        ConfigError: One of the outputs is such a file, or two outputs are one file.
    """
    named = [kubeconfig] if kubeconfig is not None else [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    sources = {path.resolve() for path in named or [Path.home() / ".kube" / "config"]}
    seen: set[Path] = set()
    for target, path, _ in outputs:
        if target in sources:
            raise ConfigError(f"{path}: the proxy reads its cluster from this file, so it is left as it is; name another file for clients")
        if target in seen:
            raise ConfigError(f"{path}: two kubeconfigs would be written to this file; name another one")
        seen.add(target)


async def _serve_health(address: str, server: ProxyServer) -> Listener:
    from kubeloop.endpoints.responses import finish, not_found_page, text
    from kubeloop.serving.answer import Answer, Reply
    from kubeloop.serving.listener import Listener
    from kubeloop.serving.request import Request

    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f'--health "{address}": must be HOST:PORT, such as 127.0.0.1:8081')

    async def handle(request: Request) -> Reply:
        if request.path == "/metrics":
            answer = Answer(body=server.metrics().encode(), content_type="text/plain; version=0.0.4; charset=utf-8", verbatim=True)
        elif request.path in ("/livez", "/healthz"):
            answer = text("ok")  # a restart would not repair rules, and would end the rules in force
        elif request.path == "/readyz":
            answer = readiness(server, verbose="verbose" in request.query)
        else:
            answer = not_found_page()
        finish(request, answer)
        return answer

    listener = Listener(handle, None, host=host.strip("[]"), port=int(port))
    await listener.bind()
    await listener.serve()
    return listener


def readiness(server: ProxyServer, *, verbose: bool) -> Answer:
    """Return the response to ``/readyz``, in the form of an API server."""
    from kubeloop.endpoints.responses import text

    checks = server.checks()
    failed = any(checks.values())
    if not failed and not verbose:
        return text("ok")
    lines = [f"[-]{name} failed: {fault}" if fault else f"[+]{name} ok" for name, fault in checks.items()]
    if notice := server.notice():
        lines.append(f"[!]{notice}")
    return text("\n".join([*lines, f"readyz check {'failed' if failed else 'passed'}\n"]), 503 if failed else 200)


def advertised_address(address: str) -> tuple[str, int] | None:
    """Return host and port of --advertise-address; port 0 is that of --port. None: no address."""
    from kubeloop.meta.names import dns1123_subdomain
    from kubeloop.proxy.server import is_address

    if not address:
        return None
    authority = f"[{address}]" if is_address(address) and ":" in address else address
    try:
        parts = urlsplit(f"//{authority}")
        host, port = (parts.hostname or "", parts.port) if parts.netloc == authority and "@" not in authority else ("", None)
    except ValueError:
        host, port = "", None
    if port == 0 or not (is_address(host) or not dns1123_subdomain(host)):
        raise ConfigError(f'--advertise-address "{address}": must be HOST[:PORT], such as proxy.example.com:6443 or 192.0.2.7')
    if is_address(host) and ip_address(host).is_unspecified:
        raise ConfigError(f'--advertise-address "{address}": no client can connect to this address; name the address of a machine')
    return host, port or 0


def _front_proxy(certificate: Path | None, key: Path | None) -> FrontProxyCertificate | None:
    from kubeloop.proxy.upstream import FrontProxyCertificate

    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ConfigError("--proxy-client-cert-file and --proxy-client-key-file belong together; one of them is missing")
    return FrontProxyCertificate(certificate, key)


def _user_and_file(text: str) -> tuple[User, Path]:
    """Return the user and the file that a value of --user-kubeconfig names."""
    from kubeloop.endpoints.access import User

    named, equals, file = text.partition("=")
    name, _, groups = named.rpartition(":") if ":" in named and not named.startswith("system:") else (named, "", "")
    if not equals or not file or not name:
        raise ConfigError(f'--user-kubeconfig "{text}": must be USER[:GROUP,...]=FILE, such as ann:devs=ann.kubeconfig')
    return User(name, tuple(group for group in groups.split(",") if group)), Path(file)


def _read(path: Path | None) -> bytes:
    if path is None:
        return b""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"--client-ca-file {path}: {error.strerror}") from None
