"""The record of a project, ``kubeloop.yaml``: its names, and the kinds, versions and webhooks that commands made.

The templates render every file from this record, so a command that changes the record knows what each file was and what it becomes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from kubeloop.cli.new.naming import KindNames, ProjectNames, file_name, kind_names_of, names_of
from kubeloop.meta.errors import ConfigError, DecodeError

Packaging = Literal["helm", "kustomize", "both"]
Webhook = Literal["defaulting", "validating"]

RECORD = "kubeloop.yaml"
_HEADER = """\
# The parts of this project that kubeloop made: `kubeloop add kind|webhook|version` reads this file and extends it. Commit it.
"""


class KindRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A kind of the project. ``versions`` are in the order of their addition; the first is the storage version, which controllers use."""

    kind: str
    plural: str
    group: str
    versions: tuple[str, ...]
    webhooks: tuple[Webhook, ...] = ()

    @property
    def storage(self) -> str:
        return self.versions[0]

    @property
    def names(self) -> KindNames:
        return KindNames(self.kind, self.plural, self.group)


class Project(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A project: ``name`` of its objects, ``module`` of its package, and its kinds."""

    name: str
    module: str
    image: str
    packaging: Packaging
    kinds: tuple[KindRecord, ...]

    @property
    def has_admission(self) -> bool:
        return any(kind.webhooks for kind in self.kinds)

    @property
    def has_conversion(self) -> bool:
        return any(len(kind.versions) > 1 for kind in self.kinds)

    @property
    def has_webhooks(self) -> bool:
        return self.has_admission or self.has_conversion

    @property
    def has_kustomize(self) -> bool:
        return self.packaging != "helm"

    @property
    def has_chart(self) -> bool:
        return self.packaging != "kustomize"

    def find_kind(self, kind: str) -> KindRecord:
        """Return the kind of that name.

        Raises:
            ConfigError: The project has no such kind. The message lists the kinds that it has.
        """
        for one in self.kinds:
            if one.kind == kind:
                return one
        known = ", ".join(one.kind for one in self.kinds)
        raise ConfigError(f'the project has no kind "{kind}"; it has {known}. To add one: kubeloop add kind {kind}')

    def with_kind(self, changed: KindRecord) -> Project:
        """Return the project with ``changed`` in place of the kind of the same name, or as the last kind if there is none."""
        if all(one.kind != changed.kind for one in self.kinds):
            return msgspec.structs.replace(self, kinds=(*self.kinds, changed))
        return msgspec.structs.replace(self, kinds=tuple(changed if one.kind == changed.kind else one for one in self.kinds))


def project_of(names: ProjectNames, first: KindNames, version: str, packaging: Packaging) -> Project:
    """Return the record of a new project with one kind.

    Args:
        names: Names of the project.
        first: Names of its kind.
        version: API version of the kind.
        packaging: The form of its manifests.
    """
    kind = KindRecord(kind=first.kind, plural=first.plural, group=first.group, versions=(version,))
    return Project(name=names.name, module=names.module, image=names.image, packaging=packaging, kinds=(kind,))


def record_text(project: Project) -> str:
    """Return the text of ``kubeloop.yaml``."""
    from kubeloop.codec.yaml import write_yaml

    return _HEADER + write_yaml(msgspec.to_builtins(project))


def read_project(folder: Path) -> Project:
    """Read ``kubeloop.yaml`` in ``folder``.

    Raises:
        ConfigError: The file is missing, is no YAML, or holds a name that is not allowed. The message names file and field.
    """
    from kubeloop.codec.yaml import read_yaml

    path = folder / RECORD
    try:
        documents = read_yaml(path.read_bytes(), name=str(path))
    except FileNotFoundError:
        raise ConfigError(
            f"{folder.absolute()} has no {RECORD}: it is not a project that kubeloop new operator made. "
            "Change to the folder of such a project, name it with --project FOLDER, or create one: kubeloop new operator NAME"
        ) from None
    except (OSError, DecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    try:
        content: Any = documents[0] if len(documents) == 1 else None
        project = msgspec.convert(content, Project)
        names_of(project.name, image=project.image, is_new=False)
        for kind in project.kinds:
            kind_names_of(kind.kind, kind.plural, kind.group, kind.versions)
        if not project.kinds or project.module != file_name(project.name):
            raise ConfigError(f"kinds must not be empty, and module must be {file_name(project.name)}")
    except (msgspec.ValidationError, ConfigError) as error:
        raise ConfigError(f"{path}: {error}; restore the file from your version control") from error
    return project
