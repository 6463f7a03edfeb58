"""Merges several kubeconfig files: which files are read, and which file an entry comes from.

Source: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/ and client-go tools/clientcmd/loader.go.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from kubeloop.config.kubeconfig.entries import Cluster, Context, KubeconfigUser
from kubeloop.config.kubeconfig.file import KubeconfigFile, read_file
from kubeloop.meta.errors import ConfigError
from kubeloop.types import JSONObject

T = TypeVar("T")


class EntryInFile(NamedTuple, Generic[T]):
    """An entry and the file that contains it.

    >>> kubeconfig = Kubeconfig.read()
    >>> entry, file = kubeconfig.contexts[kubeconfig.current_context]
    >>> file.exists()
    True
    """

    entry: T
    file: Path


class KubeconfigFiles(NamedTuple):
    """The files to read, highest precedence first. ``origin`` says where they were named: ``argument``, ``KUBECONFIG`` or ``default``.

    >>> kubeconfig_files("config").origin
    'argument'
    """

    paths: tuple[Path, ...]
    origin: str

    @property
    def explicit(self) -> bool:
        return self.origin == "argument"

    @property
    def default(self) -> Path:
        """The file for new entries. Source: client-go tools/clientcmd/config.go, GetDefaultFilename."""
        if not self.paths:
            raise ConfigError("KUBECONFIG names no file; name one, or unset it to use the default")
        return next((path for path in self.paths if path.exists()), self.paths[-1])


def kubeconfig_files(path: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None) -> KubeconfigFiles:
    """Return the files to read: ``path`` if set, or else the list in ``KUBECONFIG`` without duplicates, or else ``~/.kube/config``."""
    if path is not None:
        return KubeconfigFiles((Path(path).expanduser(),), "argument")
    if listed := (os.environ if environ is None else environ).get("KUBECONFIG", ""):
        return KubeconfigFiles(tuple(dict.fromkeys(Path(part) for part in listed.split(os.pathsep) if part)), "KUBECONFIG")
    return KubeconfigFiles((Path.home() / ".kube" / "config",), "default")


class Kubeconfig:
    """Merged kubeconfig files. The first file with an entry of some name provides the whole entry.

    Likewise, the first file with a ``current-context`` provides it.

    >>> kubeconfig = Kubeconfig.read()
    >>> kubeconfig.current_context in kubeconfig.contexts
    True

    Printing it shows no secret. Change it with ``edit_kubeconfig``.
    """

    def __init__(self, files: list[KubeconfigFile]) -> None:
        self.documents = files

    @classmethod
    def read(cls, path: str | os.PathLike[str] | None = None) -> Kubeconfig:
        """Read files by clientcmd's precedence: ``path``, which must exist; else ``KUBECONFIG``; else ``~/.kube/config``.

        Raises:
            ConfigError: A file cannot be read or is not a kubeconfig; the message names file, line or field.
        """
        files = kubeconfig_files(path)
        return read_kubeconfig(list(files.paths), must_exist=files.explicit)

    @property
    def files(self) -> list[Path]:
        """The existing files."""
        return [file.path for file in self.documents if file.exists]

    @property
    def shown(self) -> str:
        """The file names, for messages."""
        return ", ".join(str(file.path) for file in self.documents) or "kubeconfig"

    @property
    def clusters(self) -> dict[str, EntryInFile[Cluster]]:
        result: dict[str, EntryInFile[Cluster]] = {}
        for file in self.documents:
            for named in file.document.clusters:
                result.setdefault(named.name, EntryInFile(named.cluster, file.path))
        return result

    @property
    def users(self) -> dict[str, EntryInFile[KubeconfigUser]]:
        result: dict[str, EntryInFile[KubeconfigUser]] = {}
        for file in self.documents:
            for named in file.document.users:
                result.setdefault(named.name, EntryInFile(named.user, file.path))
        return result

    @property
    def contexts(self) -> dict[str, EntryInFile[Context]]:
        result: dict[str, EntryInFile[Context]] = {}
        for file in self.documents:
            for named in file.document.contexts:
                result.setdefault(named.name, EntryInFile(named.context, file.path))
        return result

    @property
    def current_context(self) -> str:
        return next((file.document.current_context for file in self.documents if file.document.current_context), "")

    @property
    def current_context_file(self) -> Path | None:
        """The file that sets the current context."""
        return next((file.path for file in self.documents if file.document.current_context), None)

    def view(self, context: str | None = None, *, minify: bool = False, flatten: bool = False, raw: bool = False) -> JSONObject:
        """Return the merged configuration as one tree, as ``kubectl config view`` shows it.

        Args:
            context: The context for ``minify``. None: the current one.
            minify: Include only the entries of the context.
            flatten: Embed certificate and key files.
            raw: Include tokens, passwords, certificates and keys, which are redacted otherwise.

        Raises:
            ConfigError: There is no such context, or a file to embed cannot be read.
        """
        from kubeloop.config.kubeconfig.view import view

        return view(self, context, minify=minify, flatten=flatten, raw=raw)

    def __repr__(self) -> str:
        return f"Kubeconfig({self.shown})"


def read_kubeconfig(files: list[Path], *, must_exist: bool) -> Kubeconfig:
    """Read and merge ``files``, highest precedence first. Missing files count as empty unless ``must_exist``.

    Raises:
        ConfigError: A file cannot be read, is not YAML, or a field has another type; the message names line and column, or the field.
    """
    read = [read_file(file) for file in dict.fromkeys(files)]
    if must_exist and (missing := next((file for file in read if not file.exists), None)) is not None:
        raise ConfigError(f"{missing.path}: no such file; give the path of a kubeconfig, or leave it out to use the default")
    return Kubeconfig(read)
