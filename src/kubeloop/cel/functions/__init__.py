"""All functions of Kubernetes' CEL, one family per file. Importing this package registers them.

Source: cel-go common/stdlib and ext (strings 2, lists 3, sets, two-variable comprehensions), k8s.io/apiserver pkg/cel/library.
"""

from kubeloop.cel.functions import authorization, lists, network, operators, optionals, semver, standard, strings, timestamps
from kubeloop.cel.overloads import FUNCTIONS

__all__ = ["FUNCTIONS", "authorization", "lists", "network", "operators", "optionals", "semver", "standard", "strings", "timestamps"]
