"""The ``kubeloop`` command. Each subcommand has a module, which is imported when it is used."""

from __future__ import annotations

import click

from kubeloop.cli.group import LazyGroup
from kubeloop.version import VERSION

#: Subcommand -> "module:attribute" and its one-line help, so that help needs no imports.
_COMMANDS = {
    "add": ("kubeloop.cli.new.command:add", "Extend a project: a kind, webhooks, or a version."),
    "completion": ("kubeloop.cli.group:completion", "Print the script that makes bash, zsh or fish complete commands and options."),
    "config": ("kubeloop.cli.config:config", "Show, explain and change kubeconfig files."),
    "controlplane": ("kubeloop.cli.controlplane:controlplane", "Run the built-in controllers against any API server."),
    "descriptions": ("kubeloop.cli.server_commands:descriptions", "Import the texts that kubectl explain shows."),
    "doctor": ("kubeloop.cli.doctor.command:doctor", "Look for what a program lacks in a cluster: permissions, kinds, and more."),
    "envtest-assets": (
        "kubeloop.envtest.assets:envtest_assets",
        "Write kube-apiserver, etcd and kubectl for envtest of controller-runtime.",
    ),
    "generate": ("kubeloop.cli.generate:generate", "Generate models from schemas, definitions and roles from classes."),
    "kubelet": ("kubeloop.cli.kubelet:kubelet", "Run a node whose pods are processes of this machine."),
    "new": ("kubeloop.cli.new.command:new", "Create a project: an operator that passes its own tests at once."),
    "proxy": ("kubeloop.cli.proxy:proxy", "Run a proxy that changes what the clients of a cluster see."),
    "run": ("kubeloop.cli.run.command:run", "Run controllers while they are developed: reloaded on change, shown live."),
    "schedule": ("kubeloop.cli.controlplane:schedule", "Explain the scheduler's decisions."),
    "server": ("kubeloop.cli.server:server", "Run the embedded Kubernetes API server."),
    "tap": ("kubeloop.cli.tap:tap", "Show live, record and replay what a command sends to its cluster."),
    "watch": ("kubeloop.cli.watch:watch", "Show live what changes in the objects of a kind."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS)
@click.version_option(VERSION, message="%(version)s")
def main() -> None:
    """Kubernetes client, informers, controllers and an embedded API server."""
