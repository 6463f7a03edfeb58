"""Realistic pods for the benchmarks."""
