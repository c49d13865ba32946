"""Replaces a module that setuptools no longer ships, as far as python-liftbridge 0.0.7 needs it."""

from importlib.metadata import distribution

get_distribution = distribution
