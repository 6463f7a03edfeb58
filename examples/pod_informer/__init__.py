"""Prints what happens to the pods of a namespace."""
