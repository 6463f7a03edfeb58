"""Paths inside volumes and containers. Source: validateLocalDescendingPath and its kin."""

from __future__ import annotations

from kubeloop.meta.field_error import Errors, invalid


def no_back_steps(path: str, target: str) -> Errors:
    if ".." in target.split("/"):
        yield invalid(path, target, "must not contain '..'")


def descending(path: str, target: str) -> Errors:
    """Relative, and never upwards."""
    if target.startswith("/"):
        yield invalid(path, target, "must be a relative path")
    yield from no_back_steps(path, target)


def not_reserved(path: str, target: str) -> Errors:
    """Nor beginning with two dots: kubelet's atomic writer keeps such names for itself."""
    yield from descending(path, target)
    if target.startswith("..") and not target.startswith("../"):
        yield invalid(path, target, "must not start with '..'")


def file_mode(path: str, mode: int | None) -> Errors:
    if mode is not None and not 0 <= mode <= 0o777:
        yield invalid(path, mode, "must be a number between 0 and 0777 (octal), both inclusive")
