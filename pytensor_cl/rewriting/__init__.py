"""Graph rewrites: what runs on which device, and the Ops that do it."""
