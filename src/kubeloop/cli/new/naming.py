"""Derives and validates the names of a project and of its kinds. The error for a name names the option that provided it."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec

from kubeloop.meta.errors import ConfigError

_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]*")
_VERSION = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")
#: Maximum length of an object's name that is also a label value, including suffixes used here ("-leader-election").
_LONGEST = 40
_LONGEST_KIND = 32
#: Groups that belong to Kubernetes (KEP-2337): a server wants an approval for definitions in them.
_PROTECTED = (".k8s.io", ".kubernetes.io")
#: Names that the project's own code uses.
_TAKEN = frozenset(
    (
        "Actions",
        "Annotated",
        "Any",
        "Callable",
        "CertificateFiles",
        "CertificateSource",
        "Children",
        "Client",
        "Column",
        "Condition",
        "Conflict",
        "Container",
        "Controller",
        "ControllerBase",
        "Denied",
        "Deployment",
        "DeploymentSpec",
        "Endpoints",
        "Faults",
        "Inject",
        "Invalid",
        "KubeCluster",
        "KubeloopError",
        "KubernetesAccess",
        "LabelSelector",
        "LeaseConfig",
        "ListMap",
        "ManagedCertificates",
        "Manager",
        "Meta",
        "Model",
        "ObjectMeta",
        "OwnCertificate",
        "Path",
        "PodSpec",
        "PodTemplateSpec",
        "Resource",
        "Service",
        "StartsManager",
        "StatusWriter",
        "WebhookServer",
        "Webhooks",
        "WriteOptions",
    )
)
_TAKEN_LOWER = frozenset(
    (
        "asyncio",
        "changed",
        "changes",
        "children",
        "client",
        "click",
        "condition",
        "consistently",
        "container",
        "controllers",
        "crd",
        "deployment",
        "document",
        "eventually",
        "first",
        "found",
        "hooks",
        "image",
        "kinds",
        "labels",
        "manager",
        "message",
        "metadata",
        "msgspec",
        "name",
        "namespace",
        "on",
        "one",
        "options",
        "patch",
        "pytest",
        "ready",
        "replicas",
        "result",
        "run",
        "self",
        "server",
        "spec",
        "status",
        "sys",
        "wanted",
    )
)


@dataclass(frozen=True, slots=True)
class ProjectNames:
    """Names of a project: ``name`` of project and objects, ``module`` of the package, ``image`` as NAME:TAG."""

    name: str
    module: str
    image: str


@dataclass(frozen=True, slots=True)
class KindNames:
    """The names of a kind: the kind itself, its plural, and its API group."""

    kind: str
    plural: str
    group: str

    @property
    def lower(self) -> str:
        return self.kind.lower()


def names_of(name: str, *, image: str = "", is_new: bool = True) -> ProjectNames:
    """Return the names of a project.

    Args:
        name: Name of the project, such as ``web-operator``.
        image: NAME:TAG. Default: NAME:0.1.0.
        is_new: Whether the package must not have the name of a module that Python finds already.

    Raises:
        ConfigError: A name that is not allowed. The message names the option, the reason, and a name that is allowed.
    """
    if not _LABEL.fullmatch(name) or len(name) > _LONGEST:
        wanted = f"lower case letters, digits and hyphens, beginning with a letter, at most {_LONGEST} characters"
        raise ConfigError(f'NAME "{name}": must be {wanted}, such as {_suggested(name)}')
    module = file_name(name)
    if keyword.iskeyword(module) or (is_new and _is_module(module)) or module in ("kubeloop", "test", "tests"):
        raise ConfigError(f'NAME "{name}": Python has a module or word of that name; try {name}-operator')
    image = image or f"{name}:0.1.0"
    if not re.fullmatch(r"[a-z0-9][a-z0-9./:_-]*:[A-Za-z0-9._-]+", image):
        raise ConfigError(f'--image "{image}": must be NAME:TAG, such as registry.example.com/{name}:0.1.0')
    return ProjectNames(name, module, image)


def kind_names_of(kind: str, plural: str, group: str, versions: Iterable[str], *, option: str = "--kind") -> KindNames:
    """Return the names of a kind.

    Args:
        kind: In CamelCase, such as ``Web``.
        plural: Name of its resource. Empty: the English plural of the kind.
        group: API group, a domain.
        versions: API versions of the kind.
        option: Name of the option or argument that provides ``kind``, for messages.

    Raises:
        ConfigError: A name that is not allowed. The message names the option, the reason, and a name that is allowed.
    """
    if not _KIND.fullmatch(kind) or len(kind) > _LONGEST_KIND:
        suggested = kind_of(_suggested(kind))
        raise ConfigError(f'{option} "{kind}": must be in CamelCase, at most {_LONGEST_KIND} characters, such as {suggested}')
    lower = kind.lower()
    if kind in _TAKEN or lower in _TAKEN_LOWER or keyword.iskeyword(lower) or keyword.issoftkeyword(lower):
        raise ConfigError(f'{option} "{kind}": the code of the project uses that name for something else; choose another, such as My{kind}')
    plural = plural or plural_of(lower)
    if not _LABEL.fullmatch(plural) or len(plural) > 63:
        raise ConfigError(f'--plural "{plural}": must be lower case letters and digits, such as {plural_of(lower)}')
    parts = group.split(".")
    if len(parts) < 2 or not all(_LABEL.fullmatch(part) for part in parts):
        raise ConfigError(f'--group "{group}": must be a domain that you own, such as example.com')
    if f".{group}".endswith(_PROTECTED):
        raise ConfigError(
            f'--group "{group}": belongs to Kubernetes, and its servers refuse kinds in it without approval; choose a domain that you own'
        )
    for version in versions:
        check_version(version)
    return KindNames(kind, plural, group)


def check_version(version: str, *, option: str = "--version") -> None:
    """Raise ConfigError if ``version`` is not the name of an API version."""
    if not _VERSION.fullmatch(version):
        raise ConfigError(f'{option} "{version}": must be as v1alpha1, v1beta2 or v1')


def file_name(name: str) -> str:
    """Return the name of the Python package of a project."""
    return name.replace("-", "_")


def _is_module(module: str) -> bool:
    """Return whether Python or an installed package has a module of that name, which the project's package would hide."""
    found = None if module in sys.modules else find_spec(module)
    return module in sys.stdlib_module_names or module in sys.modules or (found is not None and found.origin is not None)


def plural_of(lower: str) -> str:
    """Return the English plural, as far as English has rules."""
    if re.search(r"[^aeiou]y$", lower):
        return f"{lower[:-1]}ies"
    return f"{lower}es" if re.search(r"(s|x|z|ch|sh)$", lower) else f"{lower}s"


def kind_of(name: str) -> str:
    """Return the kind that the name of a project suggests: ``web-operator`` is for ``Web``."""
    words = [word for word in re.split(r"[^A-Za-z0-9]+", name) if word]
    if len(words) > 1 and words[-1] in ("operator", "controller"):
        words.pop()
    return "".join(word[:1].upper() + word[1:] for word in words).lstrip("0123456789") or "Foo"


def _suggested(name: str) -> str:
    found = re.sub(r"[^a-z0-9]+", "-", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()).strip("-0123456789")
    return found[:_LONGEST].strip("-") or "foo-operator"
