"""Matrix-vector products."""
