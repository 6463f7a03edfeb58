"""Kinds of the apps group that run pods from a template."""
