"""Strategies of admission policies and their bindings. The package ``apiserver.policies`` evaluates them."""
