"""``kubeloop proxy schema`` and ``kubeloop proxy test``: help for authors of rules, without a cluster."""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubeloop.cli.group import Command

if TYPE_CHECKING:
    from kubeloop.proxy.rules import RewriteContext, Rewritten, RuleSet
    from kubeloop.proxy.rules.documents import YamlDocument
    from kubeloop.proxy.rules.errors import Mistakes
    from kubeloop.types import JSONObject

_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@click.command("schema", cls=Command)
def schema_command() -> None:
    """Print the JSON Schema of rules, for editors.

    Editors with a YAML language server use it by a comment in the first line of a file: # yaml-language-server: $schema=rules.schema.json
    """
    from kubeloop.proxy.rules import rule_schema

    click.echo(json.dumps(rule_schema(), indent=2))


@click.command("test", cls=Command)
@click.argument("rules", type=click.Path(path_type=Path))
@click.argument("objects", metavar="OBJECT...", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--user", default="", help="Name of the user who sends the request. Default: an anonymous user.")
@click.option("--group", "groups", multiple=True, help="Group of the user; may be repeated. system:authenticated is added for --user.")
@click.option("--verb", type=click.Choice(_VERBS), default="get", show_default=True, help="Verb of the request.")
@click.option("--user-agent", default="", help="The header User-Agent of the request.")
@click.option("--no-color", is_flag=True, help="Print without colours, as with NO_COLOR or without a terminal.")
def test_command(rules: Path, objects: tuple[Path, ...], *, no_color: bool, **request: Any) -> None:
    """Show how RULES, a file or folder, change objects, as a difference of their YAML.

    OBJECT is a file or folder with YAML or JSON, which may contain many documents or a List; - is the standard input. The exit status is 1
    if a file has a mistake, or if a rule fails on an object.
    """
    from kubeloop.proxy.rules import RuleError, RuleSet
    from kubeloop.proxy.rules.errors import Mistakes

    mistakes = Mistakes()
    found = [document for path in objects for document in _read_objects(path, mistakes)]
    lines = mistakes.lines
    try:
        rule_set = RuleSet.load(rules)
    except RuleError as error:
        lines = [*str(error).splitlines(), *lines]
    if lines:
        click.echo("\n".join(lines), err=True)
        raise click.exceptions.Exit(1)
    trees = [document.value for document in found]
    failed = asyncio.run(_print_all(rule_set, trees, request, colour=_uses_colour(no_color=no_color)))
    raise click.exceptions.Exit(1 if failed else 0)


async def _print_all(rules: RuleSet, trees: Sequence[JSONObject], request: dict[str, Any], *, colour: bool) -> bool:
    """Print the result of each object, and return whether a rule failed on one."""
    from kubeloop.proxy.rules import RuleFailed

    failed = False
    touching: set[str] = set()
    for tree in trees:
        context = _context(tree, **request)
        title = f"{context.resource}/{tree['metadata']['name']}"
        try:
            selection = rules.select(context)
            rewritten = None if selection is None else await selection.rewrite_async(tree)
        except RuleFailed as error:
            failed = True
            click.echo(_styled(f"{title}: failed: {error}", "red", colour=colour))
            touching.add(error.rule)
            continue
        touching.update(rewritten.rules if rewritten is not None else ())
        if rewritten is None or not rewritten.changed:
            click.echo(f"{title}: unchanged")
        elif rewritten.object is None:
            click.echo(f"{title}: {_styled('hidden', 'red', colour=colour)} by {', '.join(rewritten.rules)}")
        else:
            click.echo(f"{title}: changed by {', '.join(rewritten.rules)}")
            for line in _difference(title, tree, rewritten):
                click.echo(_styled(line, _COLOURS.get(line[:1], ""), colour=colour))
    if not touching:
        click.echo("no rule touched an object; the names of resources are plurals, and the core group is empty", err=True)
    return failed


def _difference(title: str, tree: JSONObject, rewritten: Rewritten) -> Iterator[str]:
    from kubeloop.codec import write_yaml

    assert rewritten.object is not None
    before, after = (write_yaml(each).splitlines() for each in (tree, rewritten.object))
    return difflib.unified_diff(before, after, f"{title} (server)", f"{title} (client)", lineterm="")


def _read_objects(path: Path, mistakes: Mistakes) -> list[YamlDocument]:
    """Return the documents that are objects; the others are mistakes."""
    from kubeloop.proxy.rules.documents import read_documents, read_files

    is_stdin = str(path) == "-"
    documents = read_documents(sys.stdin.read(), "<stdin>", mistakes) if is_stdin else read_files(path, mistakes)
    result = []
    for item in (item for document in documents for item in document.items()):
        problem = _object_mistake(item.value)
        if problem:
            mistakes.add(item.file, item.line(), problem)
        else:
            result.append(item)
    return result


def _object_mistake(value: Any) -> str:
    """Return why a value is no object of an API, or an empty text."""
    from kubeloop.meta.kinds import GroupVersion

    if not isinstance(value, dict):
        return "expected an object with apiVersion, kind and metadata"
    for name in ("apiVersion", "kind"):
        if not isinstance(value.get(name), str) or not value[name]:
            return f"{name} is missing; expected an object as kubectl get -o yaml prints it"
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        return "metadata.name is missing; expected an object as kubectl get -o yaml prints it"
    if not isinstance(metadata.get("namespace") or "", str):
        return "metadata.namespace is not text"
    try:
        GroupVersion.parse(value["apiVersion"])
    except ValueError as error:
        return str(error)
    return ""


def _context(tree: JSONObject, *, user: str, groups: Sequence[str], verb: str, user_agent: str) -> RewriteContext:
    """Return the request whose answer contains an object.

    Args:
        tree: The object.
        user: Name of the user; empty for an anonymous user.
        groups: Groups of the user.
        verb: Verb of the request. One for many objects has no name.
        user_agent: The header User-Agent.
    """
    from kubeloop.api import find
    from kubeloop.cli.new.naming import plural_of
    from kubeloop.endpoints.access import ANONYMOUS, User, authenticated
    from kubeloop.meta.kinds import GroupVersionKind
    from kubeloop.meta.resource import kind_info
    from kubeloop.proxy.rules import RewriteContext

    gvk = GroupVersionKind.from_api_version(tree["apiVersion"], tree["kind"])
    known = find(gvk)
    plural = kind_info(known).plural if known is not None else None
    resource = plural or plural_of(gvk.kind.lower())
    name = tree["metadata"]["name"]
    requester = authenticated(User(user, tuple(groups))) if user else User(ANONYMOUS.name, (*ANONYMOUS.groups, *groups))
    return RewriteContext(
        user=requester,
        verb=verb,
        group=gvk.group,
        version=gvk.version,
        resource=resource,
        subresource="",
        namespace=name if (gvk.group, resource) == ("", "namespaces") else tree["metadata"].get("namespace") or "",
        name="" if verb in ("list", "watch", "deletecollection") else name,
        user_agent=user_agent,
    )


def _styled(text: str, colour_name: str, *, colour: bool) -> str:
    return click.style(text, fg=colour_name) if colour and colour_name else text


def _uses_colour(*, no_color: bool) -> bool:
    return not no_color and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and sys.stdout.isatty()
