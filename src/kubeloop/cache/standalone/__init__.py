"""Stores for anything with a key, without a server behind them."""
