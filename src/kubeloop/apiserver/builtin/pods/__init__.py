"""Pods and what carries a pod template: one file for each topic of validation, in upstream's order of checks and words."""
