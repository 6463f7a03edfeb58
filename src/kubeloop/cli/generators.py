"""The commands below ``kubeloop generate``: each renders everything first, and then writes or compares."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from kubeloop.cli.application import controllers_at, conversions_of, service_of, webhooks_at
from kubeloop.codec import write_yaml
from kubeloop.codegen.crd import Definition, check_definition, classes_at, definitions_of, to_yaml, version_warnings
from kubeloop.codegen.document import schemas_from
from kubeloop.codegen.models import render, render_stubs
from kubeloop.codegen.sources import Tell, read_builtins, read_cluster, read_files
from kubeloop.codegen.typed import Docs, ModelSource, render_module, render_package, same
from kubeloop.codegen.write import differences, write_modules
from kubeloop.meta import Resource
from kubeloop.meta.errors import ConfigError
from kubeloop.meta.names import dns1123_label, dns1123_subdomain
from kubeloop.schema import Schemas, builtin
from kubeloop.types import JSONObject

if TYPE_CHECKING:
    from kubeloop.controller.permissions import Permission


def generate_crd(
    targets: Sequence[str], out: Path | None, *, only_check: bool, descriptions: bool, webhooks: str = "", service: str = "", verbose: bool
) -> None:
    """Write the definitions of all classes at ``targets``, or compare them with the existing files.

    Args:
        targets: MODULE:CLASS, modules or packages.
        out: A file or folder. None: standard output.
        only_check: Compare, and write nothing.
        descriptions: Include descriptions from docstrings.
        webhooks: MODULE:NAME of a ``Webhooks`` that converts the kinds. Empty: none.
        service: NAMESPACE/NAME of the Service in front of these webhooks. Empty: none.
        verbose: Print the kinds and files.

    Raises:
        ConfigError: A target has no kinds, a server would refuse a definition, or with ``only_check`` a file differs. No file was
            written then.
    """
    if only_check and out is None:
        raise ConfigError("--check compares with a file or folder: name it with --out")
    if bool(webhooks) != bool(service):
        raise ConfigError("--webhooks and --service belong together: the converters, and the Service in front of them")
    classes = []
    for target in targets:
        found = classes_at(target)
        if verbose:
            for cls in found:
                click.echo(f"{target}: {cls.__module__}.{cls.__qualname__} is {cls.api_version}, Kind={cls.kind}", err=True)
        classes += found
    definitions = definitions_of(dict.fromkeys(classes), descriptions=descriptions)
    if webhooks:
        conversions = conversions_of(webhooks, service)
        for definition in definitions:
            if definition.name in conversions:
                definition.document["spec"]["conversion"] = conversions[definition.name]
    faults = [fault for definition in definitions for fault in check_definition(definition)]
    if faults:
        raise ConfigError("a server would refuse this:\n" + "\n".join(f"  {fault}" for fault in faults))
    for definition in definitions:
        for warning in version_warnings(definition):
            click.echo(f"warning: {warning}", err=True)
    if verbose:
        for definition in definitions:
            versions = ", ".join(version["name"] for version in definition.document["spec"]["versions"])
            click.echo(f"{definition.name}: {versions}: valid", err=True)
    if out is None:
        click.echo(to_yaml(definitions), nl=False)
        return
    files = _files(definitions, out)
    if only_check:
        _compare(files)
        click.echo(f"{out}: up to date")
        return
    for path, text in files.items():
        _write(path, text)
        if verbose:
            click.echo(f"{path}: written", err=True)
    click.echo(f"{out}: {len(definitions)} {'definition' if len(definitions) == 1 else 'definitions'}")


def _files(definitions: Sequence[Definition], out: Path) -> dict[Path, str]:
    if out.is_dir() or not out.suffix:
        return {out / f"{definition.name}.yaml": to_yaml([definition]) for definition in definitions}
    return {out: to_yaml(definitions)}


def _compare(files: dict[Path, str]) -> None:
    differences: list[str] = []
    for path, text in files.items():
        there = path.read_text(encoding="utf-8") if path.exists() else ""
        differences += difflib.unified_diff(there.splitlines(), text.splitlines(), str(path), "generated", lineterm="")
    if differences:
        raise ConfigError("differs from the classes; run again without --check:\n" + "\n".join(differences))


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error}") from error


_MOST_SHOWN = 200


class ModelInput(NamedTuple):
    """Sources of models. ``cluster``: kubeconfig and context of the cluster to read, None for none."""

    sources: tuple[Path, ...]
    cluster: tuple[Path | None, str | None] | None
    groups: tuple[str, ...]
    builtins: bool
    docs: Docs


def generate_models(sources: ModelInput, out: Path, *, only_check: bool, verbose: bool) -> None:
    """Write models below ``out`` (or into it, for a module), or compare them with the existing files.

    Args:
        sources: The sources of the models.
        out: A folder, or a file ending in ``.py``.
        only_check: Compare, and write nothing.
        verbose: Print the sources and files.

    Raises:
        ConfigError: An input describes no kind, another author's file is in the way, or with ``only_check`` a file differs. No file
            was written then.
        ApiError, TransportError: The cluster refused a request, or is unreachable.
    """

    def tell(line: str) -> None:
        if verbose:
            click.echo(line, err=True)

    try:
        files, folder = _render(sources, out, tell)
    except RecursionError:
        raise ConfigError("a schema is nested too deeply to be read; -v shows in which file or definition") from None
    if only_check:
        lines = differences(files, folder, same, only=out.suffix == ".py")
        if lines:
            more = [f"... {len(lines) - _MOST_SHOWN} lines more"] if len(lines) > _MOST_SHOWN else []
            raise ConfigError("\n".join([f"{out}: differs from the schemas; run again without --check:", *lines[:_MOST_SHOWN], *more]))
        click.echo(f"{out}: up to date")
        return
    written = write_modules(files, folder, only=out.suffix == ".py")
    for path in files:
        tell(f"{folder / path}: {files[path].count(chr(10) + 'class ')} classes")
    click.echo(f"{out}: {len([path for path in files if path.endswith('.py')])} modules, {written} written")


def _render(model_input: ModelInput, out: Path, tell: Tell) -> tuple[dict[str, str], Path]:
    if model_input.builtins or not (model_input.sources or model_input.cluster):
        schemas = _builtins(model_input, out, tell)
        return render(schemas) | render_stubs(schemas), out
    source = ModelSource()
    if model_input.cluster is not None:
        source.add(asyncio.run(read_cluster(*model_input.cluster, tell)))
    if model_input.sources:
        source.add(read_files(model_input.sources, tell))
    if model_input.groups:
        source = source.within(model_input.groups)
    for name, gvk in sorted(source.kinds.items()):
        if name in source.names_to_generate():
            tell(f"{gvk}: {name}")
    if out.suffix == ".py":
        return {out.name: render_module(source, out.stem, docs=model_input.docs)}, out.parent
    return render_package(source, docs=model_input.docs), out


def _builtins(model_input: ModelInput, out: Path, tell: Tell) -> Schemas:
    if model_input.groups or out.suffix == ".py" or len(model_input.sources) + bool(model_input.cluster) > 1:
        raise ConfigError("--builtins writes Kubernetes' own kinds, all of them, as a package, from one --openapi or one cluster")
    if model_input.cluster is not None:
        return asyncio.run(read_builtins(*model_input.cluster, tell))
    return schemas_from(model_input.sources[0]) if model_input.sources else builtin()


_API = "rbac.authorization.k8s.io/v1"


def generate_rbac(
    targets: Iterable[str], name: str, namespace: str, out: Path | None, *, only_check: bool, lease: bool, sharding: bool, only_rules: bool
) -> None:
    """Write the roles of all controllers at ``targets``, or compare them with the existing file.

    Args:
        targets: MODULE:NAME of controllers.
        name: Name of the roles and of the ServiceAccount.
        namespace: Namespace of the ServiceAccount.
        out: The file. None: standard output.
        only_check: Compare, and write nothing.
        lease: Include a Role for leader election.
        sharding: Include the rules for sharding.
        only_rules: Write only the ClusterRole's rules.

    Raises:
        ConfigError: A target has no controllers, only a server knows a kind, no object can have a name, or with ``only_check`` the file
            differs.
    """
    from kubeloop.controller.permissions import permissions_of, rules_of

    if only_check and out is None:
        raise ConfigError("--check compares with a file: name it with --out")
    for option, given, faults in (("--name", name, dns1123_subdomain(name)), ("--namespace", namespace, dns1123_label(namespace))):
        if faults:
            raise ConfigError(f'{option} "{given}": {faults[0]}')
    controllers = [controller for target in targets for controller in controllers_at(target)]
    permissions = permissions_of(controllers)
    text = (
        write_yaml({"rules": rules_of(permissions)})
        if only_rules
        else rbac_yaml(permissions, name, namespace, lease=lease, sharding=sharding)
    )
    emit(text, out, only_check=only_check, source="controllers")


def rbac_yaml(permissions: Iterable[Permission], name: str, namespace: str, *, lease: bool = True, sharding: bool = False) -> str:
    """Return a ServiceAccount, a ClusterRole with its binding, and a Role with a binding for the election's Lease, as YAML.

    Args:
        permissions: The required permissions.
        name: Name of the objects.
        namespace: Namespace of the ServiceAccount.
        lease: Include the Role for leader election.
        sharding: Include the rules for sharding.
    """
    return write_yaml(*rbac_documents(permissions, name, namespace, lease=lease, sharding=sharding))


def rbac_documents(
    permissions: Iterable[Permission], name: str, namespace: str, *, lease: bool = True, sharding: bool = False
) -> list[JSONObject]:
    """Return the documents of ``rbac_yaml``.

    Args:
        permissions: The required permissions.
        name: Name of the objects.
        namespace: Namespace of the ServiceAccount.
        lease: Include the Role for leader election.
        sharding: Include the rules for sharding.
    """
    from kubeloop.controller.permissions import lease_permissions, rules_of

    account = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    documents: list[JSONObject] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}},
        {"apiVersion": _API, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules_of(permissions)},
        _binding("ClusterRole", name, None, account),
    ]
    if lease or sharding:
        metadata = {"name": f"{name}-leader-election", "namespace": namespace}
        documents.append(
            {"apiVersion": _API, "kind": "Role", "metadata": metadata, "rules": rules_of(lease_permissions(sharding=sharding))}
        )
        documents.append(_binding("Role", metadata["name"], namespace, account))
    return documents


def _binding(kind: str, name: str, namespace: str | None, account: JSONObject) -> JSONObject:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    return {"apiVersion": _API, "kind": f"{kind}Binding", "metadata": metadata, "roleRef": reference, "subjects": [account]}


# ``kubeloop generate roles``: ClusterRoles to administrate, edit and view kinds, aggregated to Kubernetes' own roles.
#
# Source: Kubernetes documentation, "Using RBAC Authorization", aggregated and user-facing roles.


_READ: Final = ["get", "list", "watch"]
_WRITE: Final = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
#: Role -> verbs on the objects, and Kubernetes' roles that include it. An administrator of a kind may do everything with it,
#: also with verbs that an API server may add later.
_ROLES: Final[dict[str, tuple[list[str], tuple[str, ...]]]] = {
    "admin": (["*"], ("admin",)),
    "editor": (_WRITE, ("admin", "edit")),
    "viewer": (_READ, ("admin", "edit", "view")),
}


def generate_roles(targets: Sequence[str], name: str, out: Path | None, *, only_check: bool) -> None:
    """Write the roles for the users of all kinds at ``targets``, or compare them with the file.

    Args:
        targets: MODULE:CLASS, modules or packages.
        name: Prefix of the roles' names.
        out: The file. None: standard output.
        only_check: Compare, and write nothing.

    Raises:
        ConfigError: A target has no kinds, no object can have a name, or with ``only_check`` the file differs.
    """
    if faults := dns1123_subdomain(name):
        raise ConfigError(f'--name "{name}": {faults[0]}')
    kinds = [kind for target in targets for kind in classes_at(target)]
    emit(write_yaml(*role_documents(kinds, name)), out, only_check=only_check, source="kinds")


def role_documents(kinds: Iterable[type[Resource]], name: str) -> list[JSONObject]:
    """Return three ClusterRoles for each kind, called ``NAME-KIND-admin``, ``-editor`` and ``-viewer``."""
    found: list[JSONObject] = []
    for definition in definitions_of(dict.fromkeys(kinds)):
        spec = definition.document["spec"]
        group, plural = spec["group"], spec["names"]["plural"]
        has_status = any("status" in version.get("subresources", {}) for version in spec["versions"])
        # Kubernetes' user roles apply within a namespace: cluster-scoped kinds need bindings to the role itself.
        aggregated = spec["scope"] == "Namespaced"
        for role, (verbs, targets) in _ROLES.items():
            rules: list[JSONObject] = [{"apiGroups": [group], "resources": [plural], "verbs": list(verbs)}]
            if has_status:
                rules.append({"apiGroups": [group], "resources": [f"{plural}/status"], "verbs": ["get"]})
            metadata: JSONObject = {"name": f"{name}-{spec['names']['singular']}-{role}"}
            if aggregated:
                metadata["labels"] = {f"rbac.authorization.k8s.io/aggregate-to-{target}": "true" for target in targets}
            found.append({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules})
    return found


def generate_webhooks(target: str, service: str, name: str, out: Path | None, *, only_check: bool) -> None:
    """Write the configurations of the admission webhooks at ``target``, or compare them with the file.

    Args:
        target: MODULE:NAME of a ``Webhooks``.
        service: NAMESPACE/NAME of the Service in front of them.
        name: Name of the configurations. Empty: that of the Service.
        out: The file. None: standard output.
        only_check: Compare, and write nothing.

    Raises:
        ConfigError: There is no ``Webhooks``, it has no admission webhook, the Service has no such name, or the file differs.
    """
    place = service_of(service)
    found = webhooks_at(target).configurations(name or place.name, place)
    if not found:
        raise ConfigError(f"{target}: declares no admission webhook; use its decorators mutating and validating")
    documents = [{"apiVersion": one.api_version, "kind": one.kind, **one.to_dict()} for one in found]
    emit(write_yaml(*documents), out, only_check=only_check, source="webhooks")


def emit(text: str, out: Path | None, *, only_check: bool, source: str) -> None:
    """Print ``text``, write it to ``out``, or compare it with ``out``.

    Args:
        text: The manifest.
        out: The file. None: standard output.
        only_check: Compare, and write nothing.
        source: What the manifest is made from, for messages.

    Raises:
        ConfigError: The file differs, or cannot be written.
    """
    if out is None:
        if only_check:
            raise ConfigError("--check compares with a file: name it with --out")
        click.echo(text, nl=False)
        return
    if only_check:
        there = out.read_text(encoding="utf-8") if out.exists() else ""
        differences = list(difflib.unified_diff(there.splitlines(), text.splitlines(), str(out), "generated", lineterm=""))
        if differences:
            raise ConfigError(f"differs from the {source}; run again without --check:\n" + "\n".join(differences))
        click.echo(f"{out}: up to date")
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{out}: cannot be written: {error}") from error
    click.echo(f"{out}: written")
