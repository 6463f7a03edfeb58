"""Rules that change or hide objects in the answers of an API server: read from YAML, compiled, and applied by one pure function.

``RuleSet.load(path).select(context).rewrite(tree)`` returns what a client sees of an object. ``rule_schema`` is for editors.
"""

from kubeloop.proxy.rules.context import HeadMetadata, RewriteContext
from kubeloop.proxy.rules.errors import RuleError, RuleFailed
from kubeloop.proxy.rules.rule import RewriteRule
from kubeloop.proxy.rules.rule_set import RuleSet
from kubeloop.proxy.rules.schema import rule_schema
from kubeloop.proxy.rules.selection import Examination, Rewritten, RuleSelection

__all__ = [
    "Examination",
    "HeadMetadata",
    "RewriteContext",
    "RewriteRule",
    "Rewritten",
    "RuleError",
    "RuleFailed",
    "RuleSelection",
    "RuleSet",
    "rule_schema",
]
