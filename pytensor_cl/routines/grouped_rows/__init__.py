"""Functions of rows whose elements belong to groups."""
