"""Opens Iceberg catalogs by their name, with the properties of pyiceberg's configuration and of a file."""

import os
import random
import time
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from bascule.errors import StateError
from bascule.lake.credentials import catalog_properties
from bascule.lake.options import DEFAULT_CATALOG, ArchiveOptions

_ATTEMPTS: Final = 3
_MOST_OPEN: Final = 8


def open_catalog(options: ArchiveOptions) -> Any:
    """The catalog of a table, a `pyiceberg.catalog.Catalog`: one for each process and set of properties.

    Raises:
        UsageError: the file of the option `credentials` is not valid.
        StateError: pyiceberg is not installed, or the catalog cannot be opened.
    """
    name = options.catalog or DEFAULT_CATALOG
    given = catalog_properties(options)
    return _opened(os.getpid(), name, tuple(sorted(given.items())))


@lru_cache(maxsize=_MOST_OPEN)
def _opened(process: int, name: str, given: tuple[tuple[str, str], ...]) -> Any:  # noqa: ARG001 - none is inherited
    load = import_pyiceberg("catalog").load_catalog
    failure = ""
    for _ in range(_ATTEMPTS):
        try:
            return load(name, **dict(given))
        except Exception as cause:  # noqa: BLE001 - of any library that a catalog needs
            failure = type(cause).__name__  # its text is not repeated: pyiceberg names all properties, also secrets
        # Processes that create the tables of one SQL catalog at once disturb each other.
        time.sleep(random.uniform(0.05, 0.2))  # noqa: S311 - spreads them
    raise StateError(
        "failed_precondition",
        f"the Iceberg catalog {name} cannot be opened ({failure}): check its properties in pyiceberg's configuration, "
        f"in PYICEBERG_CATALOG__{name.upper()}__… or in the file of the option credentials, on every host",
        {"catalog": name},
    )


def import_pyiceberg(module: str) -> Any:
    """A module of pyiceberg.

    Raises:
        StateError: it is not installed.
    """
    try:
        return import_module(f"pyiceberg.{module}")
    except ImportError as cause:
        raise StateError(
            "failed_precondition",
            "Iceberg tables need the packages pyiceberg and pyiceberg-core: pip install 'bascule[lake]'",
        ) from cause
