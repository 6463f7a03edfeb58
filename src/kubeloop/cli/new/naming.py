"""What a new operator is called in each place where it has a name; what cannot be is refused by the option that said it."""

from __future__ import annotations

import keyword
import re
import sys
from dataclasses import dataclass
from importlib.util import find_spec

from kubeloop.meta.errors import ConfigError

_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]*")
_VERSION = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")
#: Longest name of an object that is a label value, too, with what is put behind it here ("-leader-election").
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
        "Children",
        "Client",
        "Column",
        "Condition",
        "Conflict",
        "Container",
        "Controller",
        "ControllerBase",
        "Deployment",
        "DeploymentSpec",
        "Faults",
        "Invalid",
        "KubeCluster",
        "KubeloopError",
        "LabelSelector",
        "LeaseConfig",
        "Manager",
        "Meta",
        "Model",
        "ObjectMeta",
        "PodSpec",
        "PodTemplateSpec",
        "Resource",
        "StartsManager",
        "StatusWriter",
    )
)
_TAKEN_LOWER = frozenset(
    (
        "asyncio",
        "client",
        "click",
        "condition",
        "consistently",
        "container",
        "controllers",
        "crd",
        "deployment",
        "eventually",
        "first",
        "found",
        "image",
        "kinds",
        "labels",
        "made",
        "manager",
        "message",
        "msgspec",
        "metadata",
        "name",
        "namespace",
        "spec",
        "on",
        "one",
        "patch",
        "pytest",
        "ready",
        "replicas",
        "run",
        "self",
        "status",
        "sys",
        "wanted",
    )
)


@dataclass(frozen=True, slots=True)
class Names:
    """``name`` of project, image and objects; ``module`` of the package; the kind with its group, version and plural."""

    name: str
    module: str
    kind: str
    plural: str
    group: str
    version: str
    image: str

    @property
    def lower(self) -> str:
        return self.kind.lower()


def names_of(
    name: str, *, kind: str = "", plural: str = "", group: str = "example.com", version: str = "v1alpha1", image: str = ""
) -> Names:
    """All names, from the project's where nothing else is said.

    Raises:
        ConfigError: a name that cannot be one; says which option, why, and what would do.
    """
    if not _LABEL.fullmatch(name) or len(name) > _LONGEST:
        wanted = f"lower case letters, digits and hyphens, beginning with a letter, at most {_LONGEST} characters"
        raise ConfigError(f'NAME "{name}": must be {wanted}, such as {_suggested(name)}')
    module = name.replace("-", "_")
    if keyword.iskeyword(module) or _is_module(module) or module in ("kubeloop", "test", "tests"):
        raise ConfigError(f'NAME "{name}": Python has a module or word of that name; try {name}-operator')
    kind = kind or _kind(name)
    if not _KIND.fullmatch(kind) or len(kind) > _LONGEST_KIND:
        raise ConfigError(f'--kind "{kind}": must be in CamelCase, at most {_LONGEST_KIND} characters, such as {_kind(name)}')
    lower = kind.lower()
    if kind in _TAKEN or lower in _TAKEN_LOWER or keyword.iskeyword(lower) or keyword.issoftkeyword(lower):
        raise ConfigError(f'--kind "{kind}": the code of the project uses that name for something else; take another, such as My{kind}')
    plural = plural or plural_of(lower)
    if not _LABEL.fullmatch(plural) or len(plural) > 63:
        raise ConfigError(f'--plural "{plural}": must be lower case letters and digits, such as {plural_of(lower)}')
    parts = group.split(".")
    if len(parts) < 2 or not all(_LABEL.fullmatch(part) for part in parts):
        raise ConfigError(f'--group "{group}": must be a domain that is yours, such as example.com')
    if f".{group}".endswith(_PROTECTED):
        raise ConfigError(
            f'--group "{group}": belongs to Kubernetes, and its servers refuse kinds in it without an approval; take a domain of yours'
        )
    if not _VERSION.fullmatch(version):
        raise ConfigError(f'--version "{version}": must be as v1alpha1, v1beta2 or v1')
    image = image or f"{name}:0.1.0"
    if not re.fullmatch(r"[a-z0-9][a-z0-9./:_-]*:[A-Za-z0-9._-]+", image):
        raise ConfigError(f'--image "{image}": must be NAME:TAG, such as registry.example.com/{name}:0.1.0')
    return Names(name, module, kind, plural, group, version, image)


def _is_module(module: str) -> bool:
    """Whether Python or a package that is installed has a module of that name, which the project's would hide from it."""
    found = None if module in sys.modules else find_spec(module)
    return module in sys.stdlib_module_names or module in sys.modules or (found is not None and found.origin is not None)


def plural_of(lower: str) -> str:
    """English, as far as it has rules."""
    if re.search(r"[^aeiou]y$", lower):
        return f"{lower[:-1]}ies"
    return f"{lower}es" if re.search(r"(s|x|z|ch|sh)$", lower) else f"{lower}s"


def _kind(name: str) -> str:
    words = [word for word in re.split(r"[^A-Za-z0-9]+", name) if word]
    if len(words) > 1 and words[-1] in ("operator", "controller"):
        words.pop()
    return "".join(word[:1].upper() + word[1:] for word in words).lstrip("0123456789") or "Foo"


def _suggested(name: str) -> str:
    found = re.sub(r"[^a-z0-9]+", "-", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()).strip("-0123456789")
    return found[:_LONGEST].strip("-") or "foo-operator"
