"""CEL expressions of admission policies and match conditions: compilation and evaluation."""
