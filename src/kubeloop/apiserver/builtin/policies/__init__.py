"""Admission policies and their bindings: what they may say. They are stored and not evaluated."""
