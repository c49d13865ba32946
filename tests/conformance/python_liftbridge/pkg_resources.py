"""What python-liftbridge 0.0.7 needs of a module that setuptools no longer ships: the version of a distribution."""

from importlib.metadata import distribution

get_distribution = distribution
