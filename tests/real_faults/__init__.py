"""Faults made real on a machine with a GPU: how each is made, what `cudadoctor` should say of it, and what it said."""
