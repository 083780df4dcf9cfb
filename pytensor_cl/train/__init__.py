"""Training: files of weights and of the whole state, averages in place of weights."""

from pytensor_cl.train.files import load, read_metadata, save
from pytensor_cl.train.swap import swapped

__all__ = ["load", "read_metadata", "save", "swapped"]
