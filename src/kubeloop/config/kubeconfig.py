"""Kubeconfig files: reading, checking and merging them. Which context is used is decided in ``resolve``.

Source: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/ and client-go tools/clientcmd.
Messages name file and field, never a value: values are secrets.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from kubeloop.meta.errors import ConfigError


class _Entry(msgspec.Struct, rename="kebab", kw_only=True):
    """Fields that are unknown here are left alone: newer tools add some."""


class Cluster(_Entry):
    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    disable_compression: bool = False


class ExecVariable(_Entry):
    name: str
    value: str = ""


class Exec(msgspec.Struct, rename="camel", kw_only=True):
    command: str = ""
    args: list[str] = []
    env: list[ExecVariable] = []
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class User(_Entry):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    impersonate: str = msgspec.field(default="", name="as")
    impersonate_uid: str = msgspec.field(default="", name="as-uid")
    impersonate_groups: list[str] = msgspec.field(default_factory=list, name="as-groups")
    impersonate_extra: dict[str, list[str]] = msgspec.field(default_factory=dict, name="as-user-extra")
    username: str = ""
    password: str = ""
    auth_provider: dict[str, Any] = {}
    exec: Exec | None = None

    def __repr__(self) -> str:
        # Nearly every field is a secret or may hold one; debuggers and test reports print local variables.
        return f"User({len([name for name in self.__struct_fields__ if getattr(self, name)])} fields set)"


class Context(_Entry):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class NamedCluster(_Entry):
    name: str
    cluster: Cluster = msgspec.field(default_factory=Cluster)


class NamedUser(_Entry):
    name: str
    user: User = msgspec.field(default_factory=User)


class NamedContext(_Entry):
    name: str
    context: Context = msgspec.field(default_factory=Context)


class Document(_Entry):
    """One file as it is written."""

    kind: str = "Config"
    clusters: list[NamedCluster] = []
    users: list[NamedUser] = []
    contexts: list[NamedContext] = []
    current_context: str = ""


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


class Kubeconfig:
    """Several files as one. The first file that has an entry of a name has it whole; the same for ``current-context``."""

    def __init__(self) -> None:
        self.files: list[Path] = []
        self.clusters: dict[str, tuple[Cluster, Path]] = {}
        self.users: dict[str, tuple[User, Path]] = {}
        self.contexts: dict[str, tuple[Context, Path]] = {}
        self.current_context = ""

    def add(self, document: Document, file: Path) -> None:
        """Merge one more file, of lower precedence than those before.

        Raises:
            ConfigError: a name stands twice in the file.
        """
        self.files.append(file)
        for cluster in _unique(document.clusters, "clusters", file):
            self.clusters.setdefault(cluster.name, (cluster.cluster, file))
        for user in _unique(document.users, "users", file):
            self.users.setdefault(user.name, (user.user, file))
        for context in _unique(document.contexts, "contexts", file):
            self.contexts.setdefault(context.name, (context.context, file))
        self.current_context = self.current_context or document.current_context

    @property
    def shown(self) -> str:
        """The files, for messages."""
        return ", ".join(str(file) for file in self.files)


def _unique(entries: list[N], field: str, file: Path) -> list[N]:
    seen: set[str] = set()
    for at, entry in enumerate(entries):
        if entry.name in seen:
            raise ConfigError(f'{file}: {field}[{at}].name: "{entry.name}" stands twice in this file; rename or remove one')
        seen.add(entry.name)
    return entries


def read_kubeconfig(files: list[Path], *, must_exist: bool) -> Kubeconfig:
    """Read and merge ``files``, most important first. Files that do not exist are left out unless ``must_exist``.

    Raises:
        ConfigError: a file cannot be read, is not YAML, or a field is of another type; line and column or path of the field are named.
    """
    merged = Kubeconfig()
    for file in dict.fromkeys(files):
        try:
            text = file.read_bytes()
        except FileNotFoundError as error:
            if must_exist:
                raise ConfigError(f"{file}: no such file; give the path of a kubeconfig, or leave it out to use the default") from error
            continue
        except OSError as error:
            raise ConfigError(f"{file}: cannot be read ({error.strerror}); check the path and its permissions") from error
        merged.add(_parse(text, file), file)
    return merged


def _parse(text: bytes, file: Path) -> Document:
    tree = _tree(text, file)
    if tree is None:
        return Document()
    if not isinstance(tree, dict):
        raise ConfigError(f'{file}: not a kubeconfig: it should hold fields such as "clusters" and "contexts"')
    try:
        document = msgspec.convert(_without_nulls(tree), Document)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$.")
        raise ConfigError(f"{file}: {path.rstrip('`') or 'document'}: {what[:1].lower()}{what[1:]}; correct the field") from error
    if document.kind != "Config":
        raise ConfigError(f'{file}: kind: "{document.kind}" is not a kubeconfig, whose kind is Config')
    return document


def _tree(text: bytes, file: Path) -> Any:
    if text.lstrip()[:1] == b"{":
        # JSON is YAML, and needs no YAML parser to be imported.
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass  # flow-style YAML that is no JSON; or broken, and then the YAML parser knows line and column
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506 - a safe loader, in C where there is one
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ConfigError(f"{file}{place}: not valid YAML: {error.problem or error.context}; correct that line") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise ConfigError(f"{file}: not valid YAML: it holds characters that no text has; is it a kubeconfig?") from None


def _without_nulls(tree: Any) -> Any:
    """An explicit null is as good as a missing field, as in Go."""
    if isinstance(tree, dict):
        return {key: _without_nulls(value) for key, value in tree.items() if value is not None}
    if isinstance(tree, list):
        return [_without_nulls(item) for item in tree]
    return tree
