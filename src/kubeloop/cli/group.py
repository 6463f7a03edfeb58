"""Command groups: load commands on use, suggest corrections, and print user errors without a traceback. Completion for shells."""

from __future__ import annotations

import difflib
import errno
import importlib
import os
import signal
from collections.abc import Mapping
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from kubeloop.meta.errors import KubeloopError
from kubeloop.meta.program import TRACEBACK

#: Every command prints its help for both, also when it is called without the root, whose settings it would get otherwise.
_HELP: Final = {"help_option_names": ["-h", "--help"]}


class Command(click.Command):
    """A command that prints its help for ``-h`` too."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "context_settings": {**_HELP, **options.get("context_settings", {})}})


class CommandGroup(click.Group):
    """A group that suggests the nearest command for a misspelt one, and prints its help for ``-h`` too."""

    command_class = Command

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "context_settings": {**_HELP, **options.get("context_settings", {})}})

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"No such command '{name}'.{self._hint(ctx, name)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the first sentence of each command's help, uncut."""
        found = [(name, self.get_command(ctx, name)) for name in self._visible(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(limit=300)) for name, command in found if command is not None])

    def _hint(self, ctx: click.Context, name: str) -> str:
        commands, visible = self.list_commands(ctx), self._visible(ctx)
        near = difflib.get_close_matches(name, commands, 1) or [command for command in visible if command.startswith(name)]
        if near:
            return f" Did you mean '{near[0]}'?"
        if len(visible) == 1:
            return f" The only command is '{visible[0]}'."
        return f" The commands are {', '.join(visible)}." if visible else ""

    def _visible(self, ctx: click.Context) -> list[str]:
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        return [name for name, command in found if command is not None and not command.hidden]


class LazyGroup(CommandGroup):
    """The root command. ``lazy``: name of a subcommand -> ("module:attribute", one line of help); modules are imported on use."""

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **options: Any) -> None:
        super().__init__(*args, **options)
        self._lazy = dict(sorted(lazy.items()))

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click calls it so
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click calls it so
        if cmd_name not in self._lazy:
            return None
        module, _, attribute = self._lazy[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click calls it so
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._lazy.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete without importing each command's module, which would be slow."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name, help=text) for name, (_, text) in self._lazy.items() if name.startswith(incomplete)]

    def _visible(self, ctx: click.Context) -> list[str]:
        return self.list_commands(ctx)

    def invoke(self, ctx: click.Context) -> Any:
        """End with a message on errors in a command's arguments, files or cluster; ``KUBELOOP_TRACEBACK`` shows the traceback."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # a command that has not installed its own handler yet: no "Aborted!", and the usual exit status
            raise click.exceptions.Exit(128 + signal.SIGINT) from None
        except (KubeloopError, OSError, UnicodeError) as error:
            if os.environ.get(TRACEBACK) or (isinstance(error, OSError) and error.errno == errno.EPIPE):
                raise  # click ends quietly when the output is closed
            raise click.ClickException(str(error) or type(error).__name__) from error


_EPILOG = """\b
Load it:
  bash   source <(kubeloop completion bash)        in ~/.bashrc
  zsh    source <(kubeloop completion zsh)         in ~/.zshrc, after compinit
  fish   kubeloop completion fish | source         in ~/.config/fish/config.fish
"""


@click.command(cls=Command, epilog=_EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete kubeloop's commands and options."""
    made = get_completion_class(shell)
    assert made is not None, "click completes in these three shells"
    click.echo(made(ctx.find_root().command, {}, "kubeloop", "_KUBELOOP_COMPLETE").source())
