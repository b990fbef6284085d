"""Slow, obvious twins of the library's fast code, written straight from the definitions."""
