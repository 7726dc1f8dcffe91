"""Measures this GPU and says whether it performs as it should."""
