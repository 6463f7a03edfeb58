"""The stored form of objects: a decoded head beside a compressed document."""
