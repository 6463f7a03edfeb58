"""A proxy in front of a Kubernetes API server that hides and changes objects for its clients, by rules.

``ProxyServer(config, ProxyOptions(rules=path))`` runs it; ``kubeloop proxy`` is the command. See docs/proxy.md.
"""

from kubeloop.proxy.rules import RuleError, RuleSet
from kubeloop.proxy.server import ProxyOptions, ProxyServer

__all__ = ["ProxyOptions", "ProxyServer", "RuleError", "RuleSet"]
