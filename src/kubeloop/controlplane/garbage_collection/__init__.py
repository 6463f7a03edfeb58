"""Controllers that delete dependents of deleted owners, and the contents of terminating namespaces."""
