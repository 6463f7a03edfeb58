"""Admission policies evaluated: ValidatingAdmissionPolicies, MutatingAdmissionPolicies, and what they share with webhooks' conditions."""
