"""The rules, by area; rules/registry.py lists them all."""
