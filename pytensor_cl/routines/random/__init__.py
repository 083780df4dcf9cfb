"""Random numbers that are NumPy's own, made on the device."""
