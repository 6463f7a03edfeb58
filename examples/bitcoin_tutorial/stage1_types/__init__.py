"""Stage 1: the kind BitcoinNetwork, and a program that lists its objects."""
