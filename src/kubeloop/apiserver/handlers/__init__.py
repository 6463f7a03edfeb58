"""Handlers of the verbs. They turn a routed request into its response."""
