"""Device Ops of indexing."""
