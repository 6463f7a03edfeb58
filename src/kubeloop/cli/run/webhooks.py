"""Webhooks of a program under ``kubeloop run``: served on this machine, registered while it runs."""

from __future__ import annotations

import getpass
import hashlib
import logging
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from kubeloop.meta.errors import ConfigError, KubeloopError

if TYPE_CHECKING:
    from kubeloop.cli.run.options import RunOptions
    from kubeloop.client import Client
    from kubeloop.controller.webhooks import Webhooks, WebhookServer

_LOG = logging.getLogger("kubeloop.cli.run")

#: Port of a URL without one.
_PORT = 9443


def webhook_servers(hooks: Sequence[Webhooks], client: Client, options: RunOptions) -> list[WebhookServer]:
    """Return a list with the server of the program's webhooks, or an empty list if no API server could reach it.

    Raises:
        ConfigError: --webhook-url is not an address of a webhook server, or the program has no webhooks for it.
    """
    from kubeloop.controller.webhooks import Register, Url, WebhookServer
    from kubeloop.controller.webhooks.certificates.managed import OwnCertificate

    if not hooks:
        if options.webhook_url:
            raise ConfigError(f"--webhook-url: {options.target} has no webhooks; let it return its Webhooks, too")
        return []
    name = session_name(options.target)
    if options.webhook_url:
        place = Url(options.webhook_url)
        host = urlsplit(options.webhook_url).hostname or ""
        register = Register(name, place, temporary=True)
        port = listening_port(options.webhook_url)
        return [WebhookServer(hooks[0], OwnCertificate([host]), client=client, host="0.0.0.0", port=port, register=register)]  # noqa: S104 - where the URL leads
    if options.embedded:
        return [WebhookServer(hooks[0], OwnCertificate(["127.0.0.1"]), client=client, port=0, register=Register(name))]
    click.echo("the webhooks of the program are not served; to serve them: --webhook-url https://HOST:PORT of this machine", err=True)
    return []


def listening_port(url: str) -> int:
    """Return the port to listen on for webhooks at ``url``.

    Raises:
        ConfigError: ``url`` is not an address of a webhook server.
    """
    from kubeloop.controller.webhooks import Url

    try:
        parts = urlsplit(Url(url).base)
        port = parts.port
    except (ConfigError, ValueError) as error:
        raise ConfigError(f"--webhook-url: {error}") from None
    if not parts.hostname:
        raise ConfigError(f'--webhook-url: "{url}" names no host; it is https://HOST:PORT')
    return port or _PORT


def session_name(target: str) -> str:
    """Return the name of the registration: the same for each run of this program by this user in this folder."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = ""
    digest = hashlib.sha256(f"{user}@{socket.gethostname()}:{Path.cwd()}:{target}".encode()).hexdigest()[:10]
    module = re.sub(r"[^a-z0-9]+", "-", target.partition(":")[0].lower()).strip("-")[:30].rstrip("-")
    return f"kubeloop-run-{module}-{digest}"


async def forget_crash(client: Client, options: RunOptions) -> None:
    """Undo the registration of an earlier run that crashed, whether or not the program has webhooks now."""
    from kubeloop.controller.webhooks.session import end_session

    try:
        for one in await end_session(client, session_name(options.target)):
            click.echo(f"removed {one}: an earlier run left it behind", err=True)
    except KubeloopError as error:
        # A user without the right to read configurations did not make any.
        _LOG.debug("cannot look for registrations of earlier runs: %s", error)
