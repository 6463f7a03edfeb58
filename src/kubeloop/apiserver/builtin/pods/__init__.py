"""Pods and pod templates: one module for each topic of validation, with upstream's order of checks and messages."""
