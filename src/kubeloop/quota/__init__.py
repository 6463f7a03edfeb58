"""Resource quotas: computes how much of each quota resource an object uses.

The admission plugin that enforces quotas and the controller that counts the usage share this package.
"""

from kubeloop.quota.amounts import Amounts, amounts_of, masked, plus, texts_of
from kubeloop.quota.evaluators import EVALUATED, Evaluator, count_name, evaluator_of
from kubeloop.quota.scopes import scopes_of

__all__ = [
    "EVALUATED",
    "Amounts",
    "Evaluator",
    "amounts_of",
    "count_name",
    "evaluator_of",
    "masked",
    "plus",
    "scopes_of",
    "texts_of",
]
