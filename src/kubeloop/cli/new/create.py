"""Creates the project of a new operator, and extends a project by kinds, webhooks and versions."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from kubeloop.cli.new.changes import Conflicts, Plan, generate, plan_changes
from kubeloop.cli.new.layout import KindRecord, Project, Webhook, read_project
from kubeloop.cli.new.naming import check_version, kind_names_of
from kubeloop.cli.new.templates import class_path, render_project
from kubeloop.meta.errors import ConfigError


def create_operator(project: Project, folder: Path) -> list[str]:
    """Write the files of a new project and return their paths. ``folder`` must not exist, or be empty. All files are written, or none.

    Raises:
        ConfigError: There is a file in ``folder`` (the message names it), or the folder cannot be written.
    """
    there = next(folder.iterdir(), None) if folder.is_dir() else (folder if folder.exists() else None)
    if there is not None:
        raise ConfigError(f"{there} is there already, and nothing is overwritten; choose another folder (--out FOLDER), or remove {folder}")
    texts = render_project(project)
    if source := kubeloop_source():
        texts["local.mk"] = f"# Of this machine, not for version control: from where make installs kubeloop.\nKUBELOOP ?= {source}\n"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
            made = Path(temporary) / folder.name
            for path, text in texts.items():
                (made / path).parent.mkdir(parents=True, exist_ok=True)
                (made / path).write_text(text, encoding="utf-8")
            generate(made, project)
            if folder.exists():
                folder.rmdir()
            made.rename(folder)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {error}") from error
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def kubeloop_source() -> str:
    """Return the wheel or source folder that kubeloop was installed from, as pip recorded it; empty if it was a package index."""
    try:
        noted = distribution("kubeloop").read_text("direct_url.json")
    except PackageNotFoundError:
        return ""
    url = urlsplit(json.loads(noted)["url"]) if noted else None
    if url is None or url.scheme != "file":
        return ""
    path = unquote(url.path)
    # make and the shell would split a path with these characters.
    return path if Path(path).exists() and not re.search(r"[\s$#'\"\\]", path) else ""


def plan_kind(folder: Path, kind: str, *, plural: str, group: str, version: str, conflicts: Conflicts) -> Plan | None:
    """Plan a further kind of a project.

    Args:
        folder: The project.
        kind: The kind in CamelCase.
        plural: Name of its resource. Empty: the English plural.
        group: API group. Empty: that of the project's first kind.
        version: API version. Empty: that of the project's first kind.
        conflicts: What becomes of files that the user changed and that cannot be merged.

    Returns:
        The plan; None if the project has this kind already.

    Raises:
        ConfigError: The folder is not a project, or a name is not allowed or taken.
    """
    project = read_project(folder)
    first = project.kinds[0]
    names = kind_names_of(kind, plural, group or first.group, [version or first.storage], option="KIND")
    for one in project.kinds:
        if one.kind == kind and (one.plural, one.group) == (names.plural, names.group) and (version or first.storage) in one.versions:
            return None
        if one.kind == kind and version and (one.plural, one.group) == (names.plural, names.group):
            raise ConfigError(
                f"the project has {kind} in {', '.join(one.versions)}; to add a version: kubeloop add version {kind} {version}"
            )
        if one.kind.lower() == names.lower:
            raise ConfigError(f"the project has a kind {one.kind} ({one.plural}.{one.group}); choose another name")
        if (one.plural, one.group) == (names.plural, names.group):
            raise ConfigError(f"{one.plural}.{one.group} is the resource of {one.kind}; choose another --plural")
    record = KindRecord(kind=names.kind, plural=names.plural, group=names.group, versions=(version or first.storage,))
    return _plan(folder, project, project.with_kind(record), {}, conflicts=conflicts)


def plan_webhooks(folder: Path, kind: str, new_webhooks: Sequence[Webhook], *, conflicts: Conflicts) -> Plan | None:
    """Plan admission webhooks of a kind.

    Args:
        folder: The project.
        kind: The kind in CamelCase.
        new_webhooks: The webhooks to add.
        conflicts: What becomes of files that the user changed and that cannot be merged.

    Returns:
        The plan; None if the kind has all of ``new_webhooks`` already.

    Raises:
        ConfigError: The folder is not a project, or has no such kind.
    """
    project = read_project(folder)
    record = project.find_kind(kind)
    webhooks: tuple[Webhook, ...] = tuple(one for one in ("defaulting", "validating") if one in (*record.webhooks, *new_webhooks))
    if webhooks == record.webhooks:
        return None
    return _plan(folder, project, project.with_kind(msgspec.structs.replace(record, webhooks=webhooks)), {}, conflicts=conflicts)


def plan_version(folder: Path, kind: str, version: str, *, conflicts: Conflicts) -> Plan | None:
    """Plan a further version of a kind: a copy of the classes and the sample of the storage version.

    Args:
        folder: The project.
        kind: The kind in CamelCase.
        version: The new API version.
        conflicts: What becomes of files that the user changed and that cannot be merged.

    Returns:
        The plan; None if the kind has this version already.

    Raises:
        ConfigError: The folder is not a project, has no such kind, or the classes of the stored version cannot be copied.
    """
    check_version(version, option="VERSION")
    project = read_project(folder)
    record = project.find_kind(kind)
    if version in record.versions:
        return None
    after = project.with_kind(msgspec.structs.replace(record, versions=(*record.versions, version)))
    extra = {
        class_path(project, kind, version): _copied_classes(folder, project, record, version),
        f"samples/{version}_{kind.lower()}.yaml": _copied_sample(folder, record, version),
    }
    return _plan(folder, project, after, extra, conflicts=conflicts)


def _plan(folder: Path, project: Project, after: Project, extra: dict[str, str], *, conflicts: Conflicts) -> Plan:
    return plan_changes(folder, after, render_project(project), render_project(after), extra, conflicts=conflicts)


def _copied_classes(folder: Path, project: Project, record: KindRecord, version: str) -> str:
    path = folder / class_path(project, record.kind, record.storage)
    text = _text(path)
    old = f'"{record.group}/{record.storage}"'
    if text.count("@custom_resource(") != 1 or text.count(old) != 1:
        raise ConfigError(
            f"{path}: must hold one @custom_resource({old}, ...), that of {record.kind}; move other kinds to their own modules"
        )
    stored = re.findall(r"storage=True,?\s*", text)
    if len(stored) != 1:
        raise ConfigError(f"{path}: must say which version is stored: @crd(storage=True, ...) on {record.kind}")
    copied = text.replace(old, f'"{record.group}/{version}"').replace(stored[0], "" if stored[0].strip().endswith(",") else "storage=False")
    return copied.replace(f"in version {record.storage},", f"in version {version},", 1)


def _copied_sample(folder: Path, record: KindRecord, version: str) -> str:
    path = folder / "samples" / f"{record.storage}_{record.kind.lower()}.yaml"
    text = _text(path)
    old = f"apiVersion: {record.group}/{record.storage}\n"
    if text.count(old) != 1:
        raise ConfigError(f'{path}: must hold one object, with the line "{old.strip()}"')
    # Another name: kubectl apply -f samples makes an object of each version, instead of the same object twice.
    renamed = re.sub(r"^  name: ([a-z0-9.-]+)$", rf"  name: \1-{version}", text, count=1, flags=re.MULTILINE)
    return renamed.replace(old, f"apiVersion: {record.group}/{version}\n")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; a further version begins as a copy of it") from error
