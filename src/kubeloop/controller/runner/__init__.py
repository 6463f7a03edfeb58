"""Carrying out: from events to keys, from keys to reconciles, and what becomes of their outcome."""
