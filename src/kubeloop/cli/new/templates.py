"""Renders every file of a project from its record and the templates.

Templates have ``@@name@@`` for a value, and the lines ``@@if CONDITION@@``, ``@@else@@`` and ``@@end@@`` around conditional lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable

import kubeloop
from kubeloop.cli.new.layout import RECORD, KindRecord, Project, Webhook, record_text
from kubeloop.meta.errors import ConfigError

_PLACEHOLDER = re.compile(r"@@([a-z_]+)@@")
_PATH_PART = re.compile(r"@([a-z]+)@")
_DIRECTIVE = re.compile(r"@@(?:if ([a-z]+)|(else)|(end))@@")


_REGISTRATION = "admissionregistration.k8s.io/v1"
_DEFINITIONS = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
_CONFIGURATIONS: dict[Webhook, str] = {"defaulting": "MutatingWebhookConfiguration", "validating": "ValidatingWebhookConfiguration"}
_CERT_MANAGER_PATCH = """\
  - patch: |
      apiVersion: {api_version}
      kind: {kind}
      metadata:
        name: {object}
        annotations:
          cert-manager.io/inject-ca-from: {name}/{name}-webhooks"""


def render_project(project: Project) -> dict[str, str]:
    """Return the text of each file that has a template, by path. Files that ``generate_commands`` make from the code are not included.

    The classes of a version that was added later are not included either: they begin as a copy of the user's code.
    """
    found = _rendered("project", _project_values(project), _project_conditions(project), project)
    if project.has_webhooks:
        found |= _rendered("webhooks", _project_values(project), _project_conditions(project), project)
    for kind in project.kinds:
        values = _kind_values(project, kind)
        conditions = _project_conditions(project) | _kind_conditions(kind)
        found |= _rendered("kind", values, conditions, project)
        for version in kind.versions:
            found |= _rendered("package", values | {"version": version}, conditions, project)
        found |= _rendered("version", values | {"version": kind.storage}, conditions, project)
        if kind.webhooks:
            found |= _rendered("admission", values, conditions, project)
        for version in kind.versions[1:]:
            both = sorted((kind.storage, version), key=_natural)
            imports = "\n".join(f"from {project.module}.api.{one} import {kind.kind.lower()} as {one}" for one in both)
            found |= _rendered("conversion", values | {"version": version, "version_imports": imports}, conditions, project)
    found[RECORD] = record_text(project)
    return dict(sorted(found.items()))


def generate_commands(project: Project) -> list[str]:
    """Return the arguments of ``kubeloop generate`` for each manifest that is made from the code. The Makefile has the same commands."""
    name, module = project.name, project.module
    hooks, service = f"{module}.webhooks:hooks", f"{name}/{name}-webhooks"
    crd = f"crd {module}.api" + (f" --webhooks {hooks} --service {service}" if project.has_conversion else "")
    rbac = f"rbac {module}.app:controllers --name {name} --namespace {name}"
    roles = f"roles {module}.api --name {name}"
    webhooks = f"webhooks {hooks} --service {service}"
    commands: list[str] = []
    if project.has_kustomize:
        commands += [f"{crd} --out config/default/crd.yaml", f"{rbac} --out config/default/rbac.yaml"]
        commands += [f"{roles} --out config/default/roles.yaml"]
        if project.has_admission:
            commands.append(f"{webhooks} --out config/default/webhooks.yaml")
    if project.has_chart:
        commands += [f"{crd} --out chart/files/crds.yaml", f"{rbac} --rules --out chart/files/rules.yaml"]
        commands += [f"{roles} --out chart/files/roles.yaml"]
        if project.has_admission:
            commands.append(f"{webhooks} --out chart/files/webhooks.yaml")
    return commands


def generated_paths(project: Project) -> list[str]:
    """Return the paths of the files that the commands of ``generate_commands`` write."""
    return [command.rpartition(" --out ")[2] for command in generate_commands(project)]


def class_path(project: Project, kind: str, version: str) -> str:
    """Return the path of the file with the classes of a version of a kind."""
    return f"{project.module}/api/{version}/{kind.lower()}.py"


def _natural(version: str) -> list[tuple[int, str]]:
    """Return a key that sorts versions as ruff sorts their imports: v2 before v10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", version)]


def _rendered(folder: str, values: Mapping[str, str], conditions: Mapping[str, bool], project: Project) -> dict[str, str]:
    found = {}
    for path, template in _templates(files("kubeloop.cli.new") / "template" / folder, ""):
        top = path.partition("/")[0]
        if (top == "config" and not project.has_kustomize) or (top == "chart" and not project.has_chart):
            continue
        target = _PATH_PART.sub(lambda match: values[match[1]], path).replace("dot-", ".")
        text = _fill(template.read_text(encoding="utf-8"), values, conditions, path)
        if text.strip() or target.endswith("__init__.py"):
            found[target] = text
    return found


def _templates(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for one in folder.iterdir():
        if one.is_dir():
            yield from _templates(one, f"{prefix}{one.name}/")
        elif one.name.endswith(".tmpl"):
            yield prefix + one.name.removesuffix(".tmpl"), one


def _fill(text: str, values: Mapping[str, str], conditions: Mapping[str, bool], path: str) -> str:
    lines: list[str] = []
    shown = [True]
    for line in text.splitlines(keepends=True):
        directive = _DIRECTIVE.fullmatch(line.strip())
        if directive is None:
            if all(shown):
                lines.append(_PLACEHOLDER.sub(lambda match: values[match[1]], line))
        elif directive[1]:
            shown.append(conditions[directive[1]])
        elif directive[2]:
            shown[-1] = not shown[-1]
        else:
            shown.pop()
    if len(shown) != 1:
        raise ConfigError(f"template {path}: an @@if@@ without its @@end@@")
    return "".join(lines)


def _project_conditions(project: Project) -> dict[str, bool]:
    return {
        "webhooks": project.has_webhooks,
        "admission": project.has_admission,
        "conversion": project.has_conversion,
        "kustomize": project.has_kustomize,
        "chart": project.has_chart,
    }


def _kind_conditions(kind: KindRecord) -> dict[str, bool]:
    return {
        "defaulting": "defaulting" in kind.webhooks,
        "validating": "validating" in kind.webhooks,
    }


def _project_values(project: Project) -> dict[str, str]:
    image_name, _, image_tag = project.image.rpartition(":")
    module = project.module
    kinds = sorted(project.kinds, key=lambda record: record.kind.lower())
    converted = [f"{one.plural}.{one.group}" for one in kinds if len(one.versions) > 1]
    hook_modules = [one.kind.lower() for one in kinds if one.webhooks]
    hook_modules += [f"{one.kind.lower()}_{version}_conversion" for one in kinds for version in one.versions[1:]]
    phony = "install deploy undeploy build-installer" if project.has_kustomize else ""
    return {
        "name": project.name,
        "module": module,
        "image": project.image,
        "image_name": image_name,
        "image_tag": image_tag,
        "kubeloop": kubeloop.__version__,
        "controller_imports": "\n".join(f"from {module}.controllers.{one.kind.lower()} import {one.kind}Controller" for one in kinds),
        "controller_items": "\n".join(f"        {one.kind}Controller()," for one in project.kinds),
        "hook_modules": "\n".join(f"    {one}," for one in sorted(hook_modules)),
        "hook_names": "\n".join(f'    "{one}",' for one in sorted(["hooks", *hook_modules])),
        "generate_lines": "\n".join(f"\t$(BIN)/python -m kubeloop generate {command}" for command in generate_commands(project)),
        "kind_lines": "\n".join(f"- **{one.kind}** (`{one.plural}.{one.group}`, {', '.join(one.versions)})" for one in project.kinds),
        "first_sample": f"samples/{project.kinds[0].storage}_{project.kinds[0].kind.lower()}.yaml",
        "first_plural": project.kinds[0].plural,
        "program": "program" if project.has_webhooks else "controllers",
        "phony": "".join(f" {one}" for one in [*phony.split(), *(["chart"] if project.has_chart else [])]),
        "cert_manager_folder": ", `cert-manager`" if project.has_webhooks else "",
        "definition_lines": "\n".join(f"      - {name}" for name in converted),
        "definition_patches": "\n".join(
            _CERT_MANAGER_PATCH.format(api_version=_DEFINITIONS[0], kind=_DEFINITIONS[1], object=name, name=project.name)
            for name in converted
        ),
        "admission_patches": "\n".join(
            _CERT_MANAGER_PATCH.format(api_version=_REGISTRATION, kind=kind, object=f"{project.name}-webhooks", name=project.name)
            for webhook, kind in _CONFIGURATIONS.items()
            if any(webhook in one.webhooks for one in kinds)
        ),
    }


def _kind_values(project: Project, kind: KindRecord) -> dict[str, str]:
    return _project_values(project) | {
        "kind": kind.kind,
        "lower": kind.kind.lower(),
        "plural": kind.plural,
        "group": kind.group,
        "storage": kind.storage,
    }
