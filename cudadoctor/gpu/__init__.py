"""Everything that talks to a GPU: the driver API, compilers, kernels' catalogue, proofs. Importing it loads nothing."""
