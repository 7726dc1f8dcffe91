"""Many machines: streams their reports, groups equal nodes, and finds the odd ones."""
