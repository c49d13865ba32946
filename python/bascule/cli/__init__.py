"""The commands `bascule` and `liftbridge`: parse, call, render. Every command is a small function; what it found out is
one typed result, which `output` prints in the form that was asked for.
"""

from bascule.cli.app import main

__all__ = ["main"]
