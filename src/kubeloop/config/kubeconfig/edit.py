"""Editing of kubeconfig files. Each change is written to the file that contains the entry, and unknown fields stay.

Source: client-go tools/clientcmd/config.go (ModifyConfig) and ``kubectl config``.
"""

from __future__ import annotations

import base64
import copy
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from kubeloop.config.kubeconfig.entries import Cluster, Context, Exec, KubeconfigUser, write_entry
from kubeloop.config.kubeconfig.file import KubeconfigFile, read_file
from kubeloop.config.kubeconfig.merged import Kubeconfig, KubeconfigFiles, kubeconfig_files
from kubeloop.config.kubeconfig.view import SECTIONS, flattened, make_absolute
from kubeloop.meta.errors import ConfigError
from kubeloop.types import JSONObject

# Kubeconfig files on disk are written atomically, readable by their owner only, and by one program at a time.
#
# Source: client-go tools/clientcmd/loader.go (lockFile): a program that changes ``config`` creates ``config.lock`` first.


_PAUSE = 0.05


@contextmanager
def locked(files: Iterable[Path], wait: float) -> Iterator[None]:
    """Acquire the lock files of all files, in a fixed order. Blocks up to ``wait`` seconds for each.

    Raises:
        ConfigError: Another program holds a lock, or a lock file cannot be made.
    """
    with ExitStack() as held:
        for file in sorted(files):
            held.enter_context(_locked(file, wait))
        yield


@contextmanager
def _locked(file: Path, wait: float) -> Iterator[None]:
    if not file.name:
        raise ConfigError(f'kubeconfig: "{file}" is a folder or empty; name a file')
    lock = file.with_name(f"{file.name}.lock")
    until = time.monotonic() + wait
    while True:
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            break
        except FileExistsError as error:
            if time.monotonic() >= until:
                raise ConfigError(
                    f"{file}: another program is changing it ({lock.name} exists); try again, or delete {lock} if none is"
                ) from error
            time.sleep(_PAUSE)
        except OSError as error:
            raise ConfigError(f"{lock}: cannot be created ({error.strerror}); check the folder and its permissions") from error
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def write_private(path: Path, content: bytes) -> None:
    """Write a file with mode 0600, atomically: readers see the old file or the whole new one. The target of a symbolic link is replaced.

    Raises:
        ConfigError: The file cannot be written; the old content stays.
    """
    target = path.resolve()
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")  # mkstemp creates with mode 0600
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except BaseException as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ConfigError(f"{path}: cannot be written ({error.strerror}); check the folder and its permissions") from error
        raise


_SECTION_OF = {key: section for section, key in SECTIONS}


@contextmanager
def edit_kubeconfig(path: str | os.PathLike[str] | None = None, *, wait: float = 5.0) -> Iterator[KubeconfigEditor]:
    """Edit ``path``, or the files of ``KUBECONFIG``, or ``~/.kube/config``. Changes are saved when the block ends without an exception.

    Lock files exclude other programs, kubectl too, during the block. Entering it blocks up to ``wait`` seconds for their locks.

    Raises:
        ConfigError: A file is locked, cannot be read or written, or would no longer be a kubeconfig.
    """
    files = kubeconfig_files(path)
    with locked(files.paths, wait):
        editor = KubeconfigEditor([read_file(file) for file in files.paths], files)
        yield editor
        editor.save()


class KubeconfigEditor(Kubeconfig):
    """An editable kubeconfig, from ``edit_kubeconfig``.

    >>> with edit_kubeconfig("config") as kubeconfig:
    ...     kubeconfig.set_cluster("test", server="https://127.0.0.1:6443")
    ...     kubeconfig.set_context("test", cluster="test", namespace="shop")
    ...     kubeconfig.use_context("test")
    >>> Kubeconfig.read("config").current_context
    'test'

    Guarantees
        An unchanged file is not written. A changed one is written atomically, with mode 0600, and keeps its unknown fields.
        A new entry goes to the first file that exists.

    Not guaranteed
        Comments and the layout of a changed file are lost, as with kubectl.
    """

    def __init__(self, files: list[KubeconfigFile], chosen: KubeconfigFiles) -> None:
        super().__init__(files)
        self._chosen = chosen
        self._before = {file.path: copy.deepcopy(file.tree) for file in files}

    def use_context(self, name: str) -> None:
        """Make ``name`` the current context; an empty name clears it.

        Raises:
            ConfigError: There is no such context.
        """
        if name and name not in self.contexts:
            raise _unknown(self, "context", name)
        # The current context is cleared in the file that sets it, but set in the file that takes precedence.
        file = self._default() if name else next((one for one in self.documents if one.document.current_context), self._default())
        if name or file.document.current_context:
            file.tree["current-context"] = name
            file.refresh()

    def set_cluster(
        self,
        name: str,
        *,
        server: str | None = None,
        certificate_authority: str | Path | None = None,
        certificate_authority_data: bytes | None = None,
        insecure_skip_tls_verify: bool | None = None,
        tls_server_name: str | None = None,
        proxy_url: str | None = None,
        disable_compression: bool | None = None,
    ) -> None:
        """Add a cluster, or change the given fields. An authority clears ``insecure-skip-tls-verify``, and vice versa.

        Args:
            name: Name of the entry.
            server: URL of the API server.
            certificate_authority: Path of the CA file.
            certificate_authority_data: PEM of the CA; stored as base64.
            insecure_skip_tls_verify: Whether the server's certificate is not verified.
            tls_server_name: Host name to verify instead of the server's.
            proxy_url: URL of the proxy.
            disable_compression: Whether responses are not compressed.
        """
        found = self.clusters.get(name)
        entry = copy.deepcopy(found.entry) if found else Cluster()
        _assign(entry, server=server, tls_server_name=tls_server_name, proxy_url=proxy_url, disable_compression=disable_compression)
        file = self._holder("cluster", name)
        if insecure_skip_tls_verify is not None:
            entry.insecure_skip_tls_verify = insecure_skip_tls_verify
            if insecure_skip_tls_verify:
                entry.certificate_authority = entry.certificate_authority_data = ""
        if certificate_authority is not None or certificate_authority_data is not None:
            entry.certificate_authority = _beside(certificate_authority, file.path)
            entry.certificate_authority_data = _base64(certificate_authority_data)
            entry.insecure_skip_tls_verify = False
        self._put(file, "cluster", name, entry)

    def set_user(
        self,
        name: str,
        *,
        token: str | None = None,
        token_file: str | Path | None = None,
        username: str | None = None,
        password: str | None = None,
        client_certificate: str | Path | None = None,
        client_certificate_data: bytes | None = None,
        client_key: str | Path | None = None,
        client_key_data: bytes | None = None,
        exec: Exec | None = None,  # noqa: A002 - the field's name
        impersonate: str | None = None,
    ) -> None:
        """Add a user, or change the given fields. A token clears name and password, and vice versa.

        Args:
            name: Name of the entry.
            token: Bearer token.
            token_file: Path of a file with the token; takes precedence over ``token``.
            username: Name for basic authentication.
            password: Password for basic authentication.
            client_certificate: Path of the certificate.
            client_certificate_data: PEM of the certificate; stored as base64.
            client_key: Path of the key.
            client_key_data: PEM of the key; stored as base64.
            exec: Credential plugin.
            impersonate: User to impersonate.
        """
        found = self.users.get(name)
        entry = copy.deepcopy(found.entry) if found else KubeconfigUser()
        file = self._holder("user", name)
        _assign(entry, token=token, username=username, password=password, exec=exec, impersonate=impersonate)
        if token_file is not None:
            entry.token_file = _beside(token_file, file.path)
        if token or token_file:
            entry.username, entry.password = username or "", password or ""
        elif username or password:
            entry.token = entry.token_file = ""
        if client_certificate is not None or client_certificate_data is not None:
            entry.client_certificate = _beside(client_certificate, file.path)
            entry.client_certificate_data = _base64(client_certificate_data)
        if client_key is not None or client_key_data is not None:
            entry.client_key = _beside(client_key, file.path)
            entry.client_key_data = _base64(client_key_data)
        self._put(file, "user", name, entry)

    def set_context(self, name: str, *, cluster: str | None = None, user: str | None = None, namespace: str | None = None) -> None:
        """Add a context, or change the given fields.

        Args:
            name: Name of the entry.
            cluster: Name of a cluster entry.
            user: Name of a user entry.
            namespace: Default namespace.
        """
        found = self.contexts.get(name)
        entry = copy.deepcopy(found.entry) if found else Context()
        _assign(entry, cluster=cluster, user=user, namespace=namespace)
        self._put(self._holder("context", name), "context", name, entry)

    def put(self, name: str, entry: Cluster | KubeconfigUser | Context) -> None:
        """Add an entry, or set the known fields of the entry with this name to those of ``entry``."""
        key = "user" if isinstance(entry, KubeconfigUser) else type(entry).__name__.lower()
        self._put(self._holder(key, name), key, name, entry)

    def delete_cluster(self, name: str) -> None:
        """Delete a cluster.

        Raises:
            ConfigError: There is no such cluster.
        """
        self._delete("cluster", name)

    def delete_user(self, name: str) -> None:
        """Delete a user.

        Raises:
            ConfigError: There is no such user.
        """
        self._delete("user", name)

    def delete_context(self, name: str) -> None:
        """Delete a context. Its cluster and user stay; a current context of that name stays set, without an entry.

        Raises:
            ConfigError: There is no such context.
        """
        self._delete("context", name)

    def rename_context(self, old: str, new: str) -> None:
        """Rename a context, also as the current context.

        Raises:
            ConfigError: There is no such context, or the new name is taken.
        """
        current = self.current_context
        self._rename("context", old, new)
        if current == old:
            self.use_context(new)

    def rename_cluster(self, old: str, new: str) -> None:
        """Rename a cluster in its file and in the contexts of all files.

        Raises:
            ConfigError: There is no such cluster, or the new name is taken.
        """
        self._rename("cluster", old, new)
        self._follow("cluster", old, new)

    def rename_user(self, old: str, new: str) -> None:
        """Rename a user in its file and in the contexts of all files. See ``rename_cluster`` for errors."""
        self._rename("user", old, new)
        self._follow("user", old, new)

    def merge(self, other: Kubeconfig, *, replace: bool = False, flatten: bool = True) -> None:
        """Add all entries of ``other``, or none if one cannot be added. Also take its current context if none is set here.

        ``flatten`` embeds its certificate and key files; without it their paths become absolute.

        Raises:
            ConfigError: A different entry of that name exists, and ``replace`` is False; or a file cannot be read.
        """
        wanted: list[tuple[str, str, JSONObject]] = []
        different: list[str] = []
        for section, key in SECTIONS:
            for name, (item, path) in _items(other, section).items():
                if flatten:
                    item = flattened(item, key, path)
                else:
                    make_absolute(item := copy.deepcopy(item), key, path)
                here = _items(self, section).get(name)
                if here is not None and here[0].get(key) != item.get(key) and not replace:
                    different.append(f'{key} "{name}" ({here[1]})')
                wanted.append((section, name, item))
        if different:
            raise ConfigError(f"{other.shown}: would change existing entries: {', '.join(different)}; rename them, or allow replacing them")
        for section, name, item in wanted:
            file = self._holder(section[:-1], name)
            entries = _section(file, section)
            at = next((at for at, one in enumerate(entries) if one.get("name") == name), None)
            if at is None:
                entries.append(item)
            else:
                entries[at] = item
            file.refresh()
        if not self.current_context and other.current_context:
            self.use_context(other.current_context)

    def save(self) -> None:
        """Write the changed files. ``edit_kubeconfig`` does so at the end of its block.

        Raises:
            ConfigError: A file cannot be written; earlier files are written already.
        """
        from kubeloop.codec.yaml import write_yaml

        for file in self.documents:
            if file.tree == self._before[file.path]:
                continue
            empty: JSONObject = {"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []}
            written = {**file.tree, **{name: file.tree.get(name) or value for name, value in empty.items()}}
            write_private(file.path, write_yaml({name: written[name] for name in _in_order(written)}).encode())
            self._before[file.path] = copy.deepcopy(file.tree)

    def _default(self) -> KubeconfigFile:
        path = self._chosen.default
        return next(file for file in self.documents if file.path == path)

    def _holder(self, key: str, name: str) -> KubeconfigFile:
        """Return the file that contains the entry, or that receives a new one."""
        section = _SECTION_OF[key]
        for file in self.documents:
            if any(one.get("name") == name for one in file.tree.get(section) or ()):
                return file
        return self._default()

    def _put(self, file: KubeconfigFile, key: str, name: str, entry: msgspec.Struct) -> None:
        if not name:
            raise ConfigError(f"{file.path}: {_SECTION_OF[key]}: an entry needs a name")
        entries = _section(file, _SECTION_OF[key])
        item = next((one for one in entries if one.get("name") == name), None)
        if item is None:
            item = {"name": name, key: {}}
            entries.append(item)
        if not isinstance(item.get(key), dict):
            item[key] = {}
        write_entry(item[key], entry)
        file.refresh()

    def _delete(self, key: str, name: str) -> None:
        file = self._holder(key, name)
        entries = _section(file, _SECTION_OF[key])
        left = [one for one in entries if one.get("name") != name]
        if len(left) == len(entries):
            raise _unknown(self, key, name)
        file.tree[_SECTION_OF[key]] = left
        file.refresh()

    def _rename(self, key: str, old: str, new: str) -> None:
        section = _SECTION_OF[key]
        known = _items(self, section)
        if old not in known:
            raise _unknown(self, key, old)
        if not new or new in known:
            raise ConfigError(f'{self.shown}: {section}: cannot rename {key} "{old}": "{new}" is {"taken" if new else "not a name"}')
        file = self._holder(key, old)
        next(one for one in _section(file, section) if one.get("name") == old)["name"] = new
        file.refresh()

    def _follow(self, key: str, old: str, new: str) -> None:
        for file in self.documents:
            for item in file.tree.get("contexts") or ():
                if isinstance(context := item.get("context"), dict) and context.get(key) == old:
                    context[key] = new
            file.refresh()


def _assign(entry: Any, **changes: Any) -> None:
    for name, value in changes.items():
        if value is not None:
            setattr(entry, name, value)


def _section(file: KubeconfigFile, section: str) -> list[JSONObject]:
    if not file.tree.get(section):
        file.tree[section] = []
    entries: list[JSONObject] = file.tree[section]
    return entries


def _items(config: Kubeconfig, section: str) -> dict[str, tuple[JSONObject, Path]]:
    result: dict[str, tuple[JSONObject, Path]] = {}
    for file in config.documents:
        for item in file.tree.get(section) or ():
            result.setdefault(str(item.get("name", "")), (item, file.path))
    return result


def _beside(path: str | Path | None, kubeconfig: Path) -> str:
    """Return a path relative to the kubeconfig if it is below its folder, so that the folder can be moved, or else an absolute path."""
    if not path:
        return ""
    absolute, base = Path(path).absolute(), kubeconfig.absolute().parent
    return str(absolute.relative_to(base)) if absolute.is_relative_to(base) else str(absolute)


def _base64(data: bytes | None) -> str:
    return base64.b64encode(data).decode() if data else ""


def _in_order(tree: JSONObject) -> list[str]:
    first = ("apiVersion", "kind", "clusters", "contexts", "current-context", "users")
    return [*(name for name in first if name in tree), *(name for name in tree if name not in first)]


def _unknown(config: Kubeconfig, key: str, name: str) -> ConfigError:
    known = ", ".join(sorted(_items(config, _SECTION_OF[key]))) or "none"
    return ConfigError(f'{config.shown}: there is no {key} "{name}"; known: {known}')
