"""Everything that uses undocumented parts of PyTensor."""
