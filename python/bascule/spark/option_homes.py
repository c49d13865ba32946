"""Finds the formats and calls that have an option, for a name that another one refuses. Imported by errors alone."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bascule.spark.option_model import OptionSet

__all__ = ["elsewhere"]

_SETS: Final = (
    ("bascule.spark.options", "SOURCE", "reads"),
    ("bascule.spark.sink.options", "SINK", "writes"),
    ("bascule.lake.options", "TABLE", "archives"),
    ("bascule.spark.replaying.options", "REPLAY", "replays"),
    ("bascule.spark.replaying.options", "COPY", "copies"),
    ("bascule.spark.replaying.options", "REDRIVE", "re-drives"),
)
"""Every set of options: its module, its name there, and what has the options."""


def elsewhere(name: str) -> tuple[str, list[str]]:
    """An option that is none here, as it is declared, and what has it; nothing = there is no such option.

    Args:
        name: in any case.
    """
    spelled, homes = name, list[str]()
    for module, attribute, what in _SETS:
        options: OptionSet = getattr(import_module(module), attribute)
        for each in options.names:
            if each.lower() == name.lower():
                spelled = each
                homes.append(what)
    return spelled, homes
