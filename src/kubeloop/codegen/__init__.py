"""Makes what is generated: the schema document from a server's OpenAPI documents, typed models from the schema document."""
