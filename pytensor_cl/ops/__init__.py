"""Device Ops, one file a family."""
