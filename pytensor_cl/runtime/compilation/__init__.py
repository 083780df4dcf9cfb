"""Build of programs: variants of the source, binaries, cache folders."""
