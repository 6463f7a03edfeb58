"""``kubeloop completion``: scripts that make shells complete commands, options and files."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_EPILOG = """\b
Load it:
  bash   source <(kubeloop completion bash)        in ~/.bashrc
  zsh    source <(kubeloop completion zsh)         in ~/.zshrc, after compinit
  fish   kubeloop completion fish | source         in ~/.config/fish/config.fish
"""


@click.command(epilog=_EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete kubeloop's commands and options."""
    made = get_completion_class(shell)
    assert made is not None, "click completes in these three shells"
    click.echo(made(ctx.find_root().command, {}, "kubeloop", "_KUBELOOP_COMPLETE").source())
