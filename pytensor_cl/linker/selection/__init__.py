"""Selection of a backend for each signature."""
