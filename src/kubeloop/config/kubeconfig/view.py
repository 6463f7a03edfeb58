"""Shows a kubeconfig as one tree, for people or for copying. Without ``raw`` it contains no secret.

Source: client-go tools/clientcmd/api/helpers.go (MinifyConfig, FlattenConfig, ShortenConfig, RedactSecrets).
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kubeloop.config.kubeconfig.file import KubeconfigFile
from kubeloop.config.kubeconfig.merged import Kubeconfig
from kubeloop.meta.errors import ConfigError
from kubeloop.types import JSONObject

SECTIONS = (("clusters", "cluster"), ("users", "user"), ("contexts", "context"))
_FILES = {"cluster": ("certificate-authority",), "user": ("client-certificate", "client-key"), "context": ()}
_OMITTED = ("certificate-authority-data", "client-certificate-data", "client-key-data")
_REDACTED = ("token", "password")
#: Words in the name of a provider's or a plugin's setting that mark its value as a secret.
_SECRET_WORDS = ("token", "secret", "password", "key")


def view(config: Kubeconfig, context: str | None, *, minify: bool, flatten: bool, raw: bool) -> JSONObject:
    """Return the tree of ``Kubeconfig.view``, which describes the arguments.

    Args:
        config: The merged kubeconfig.
        context: The context for ``minify``. None: the current one.
        minify: Include only the entries of the context.
        flatten: Embed certificate and key files.
        raw: Include secrets.
    """
    result: JSONObject = {"apiVersion": "v1", "kind": "Config"}
    result |= _extras(config)
    for section, key in SECTIONS:
        result[section] = [_shown(item, key, file, flatten=flatten, raw=raw) for item, file in _items(config, section)]
    result["current-context"] = context or config.current_context
    return _minified(result, config) if minify else result


def flattened(item: JSONObject, key: str, path: Path) -> JSONObject:
    """Return an entry of the file ``path`` with its certificate and key files embedded. Other paths become absolute.

    Raises:
        ConfigError: A file cannot be read.
    """
    item = copy.deepcopy(item)
    entry = _entry(item, key)
    base = path.absolute().parent
    for field in _FILES[key]:
        named = entry.pop(field, None)
        if not named or entry.get(f"{field}-data"):
            continue
        try:
            entry[f"{field}-data"] = base64.b64encode((base / named).read_bytes()).decode()
        except OSError as error:
            where = f'{path}: {key} "{item.get("name", "")}": {field}: {base / named}'
            raise ConfigError(f"{where}: cannot be read ({error.strerror}); correct the path") from error
    make_absolute(item, key, path)
    return item


def make_absolute(item: JSONObject, key: str, path: Path) -> None:
    """Make the paths in an entry of the kubeconfig ``path`` absolute, in place. They are relative to the folder of the kubeconfig."""
    entry, base = _entry(item, key), path.absolute().parent
    for field in (*_FILES[key], "tokenFile") if key == "user" else _FILES[key]:
        if named := entry.get(field):
            entry[field] = str(base / named)
    plugin = entry.get("exec")
    if isinstance(plugin, dict) and "/" in str(plugin.get("command") or ""):
        plugin["command"] = str(base / plugin["command"])


def _extras(config: Kubeconfig) -> JSONObject:
    """Return the other top-level fields, such as ``preferences``; the first file with a field takes precedence."""
    known = {"apiVersion", "kind", "clusters", "users", "contexts", "current-context"}
    result: JSONObject = {}
    for file in config.documents:
        for name, value in file.tree.items():
            if name not in known and value:
                result.setdefault(name, copy.deepcopy(value))
    return result


def _items(config: Kubeconfig, section: str) -> Iterator[tuple[JSONObject, KubeconfigFile]]:
    """Return the entries of a section, sorted by name, each with its file; the first file with a name takes precedence."""
    result: dict[str, tuple[JSONObject, KubeconfigFile]] = {}
    for file in config.documents:
        for item in file.tree.get(section) or ():
            result.setdefault(str(item.get("name", "")), (item, file))
    return (result[name] for name in sorted(result))


def _shown(item: JSONObject, key: str, file: KubeconfigFile, *, flatten: bool, raw: bool) -> JSONObject:
    shown = flattened(item, key, file.path) if flatten else copy.deepcopy(item)
    if not raw:
        _redact(_entry(shown, key))
    return shown


def _redact(entry: JSONObject) -> None:
    for field in _OMITTED:
        if entry.get(field):
            entry[field] = "DATA+OMITTED"
    for field in _REDACTED:
        if entry.get(field):
            entry[field] = "REDACTED"
    provider = entry.get("auth-provider")
    settings = provider.get("config") if isinstance(provider, dict) else None
    if isinstance(settings, dict):
        settings |= {name: "REDACTED" for name in settings if _is_secret(name)}
    plugin = entry.get("exec")
    for variable in (plugin.get("env") or ()) if isinstance(plugin, dict) else ():
        if _is_secret(variable.get("name")):
            variable["value"] = "REDACTED"


def _is_secret(name: Any) -> bool:
    return any(word in str(name).lower() for word in _SECRET_WORDS)


def _entry(item: JSONObject, key: str) -> JSONObject:
    entry = item.get(key)
    return entry if isinstance(entry, dict) else item.setdefault(key, {}) if entry is not None else {}


def _minified(document: JSONObject, config: Kubeconfig) -> JSONObject:
    name = document["current-context"]
    if not name:
        raise ConfigError(f"{config.shown}: current-context is not set; set it, or name a context")
    chosen = config.contexts.get(name)
    if chosen is None:
        raise ConfigError(f'{config.shown}: there is no context "{name}"; known: {", ".join(sorted(config.contexts)) or "none"}')
    kept = {"contexts": name, "clusters": chosen.entry.cluster, "users": chosen.entry.user}
    for section, wanted in kept.items():
        document[section] = [item for item in document[section] if wanted and item.get("name") == wanted]
        if wanted and not document[section]:
            raise ConfigError(f'{chosen.file}: context "{name}": {section[:-1]}: there is no {section[:-1]} "{wanted}"')
    return document
