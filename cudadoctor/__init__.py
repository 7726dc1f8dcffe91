"""Says what is wrong with a machine's CUDA stack, why, and the exact command that fixes it."""

__version__ = "0.1.0"
