"""Handlers of the verbs: from a routed request to its answer."""
