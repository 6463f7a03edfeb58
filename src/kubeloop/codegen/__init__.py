"""Generators: the schema document from a server's OpenAPI documents, and typed models from the schema document."""
