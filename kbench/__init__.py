"""Verify and time custom GPU and CPU kernels against a reference."""

__version__ = "0.1.0"
