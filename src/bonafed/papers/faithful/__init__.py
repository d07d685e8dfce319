"""The claims of the paper on faithful federated learning."""
