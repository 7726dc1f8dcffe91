"""Reads a Dockerfile without building it: what its image would hold, with the line that each fact comes from."""
