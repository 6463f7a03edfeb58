"""Controllers that delete dependents of deleted owners, and the contents of deleted namespaces."""
