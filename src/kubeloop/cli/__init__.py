"""The ``kubeloop`` command. Each subcommand lives in a module of its own, which is imported when it is used."""

from __future__ import annotations

import importlib

import click

from kubeloop.meta.version import VERSION

#: Subcommand to "module:attribute" and its one-line help, so that help needs no imports.
_COMMANDS = {
    "config": ("kubeloop.cli.config:config", "Show, explain and change kubeconfig files."),
    "doctor": ("kubeloop.cli.doctor.command:doctor", "Look for what a program lacks in a cluster: permissions, kinds, and more."),
    "generate": ("kubeloop.cli.generate:generate", "Generate models from schemas, and CustomResourceDefinitions from classes."),
    "new": ("kubeloop.cli.new.command:new", "Create a project: an operator that passes its own tests at once."),
    "run": ("kubeloop.cli.running.command:run", "Run controllers while they are developed: reloaded on change, shown live."),
    "server": ("kubeloop.cli.server:server", "Run the embedded Kubernetes API server."),
    "watch": ("kubeloop.cli.watch:watch", "Show live what changes in the objects of a kind."),
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click calls it so
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click calls it so
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click calls it so
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted(_COMMANDS.items())])


@click.group(cls=_LazyGroup)
@click.version_option(VERSION, message="%(version)s")
def main() -> None:
    """Kubernetes client, informers, controllers and an embedded API server."""
