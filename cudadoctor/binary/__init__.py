"""Reads GPU code and library dependencies out of binary files without loading or running them."""
