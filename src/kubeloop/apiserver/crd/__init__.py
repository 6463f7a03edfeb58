"""CustomResourceDefinitions: validation, name conflicts, conditions, and the custom resources that they define."""
