"""Device Ops that sort or search."""
