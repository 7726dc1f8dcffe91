"""How proofs of copies between GPUs are called; without imports, as the driver child and the rules share it."""

DIRECT = "peer-copy"
"""Over the link between the two."""
STAGED = "staged-copy"
"""Through the host's memory, as the two have no access to each other."""
