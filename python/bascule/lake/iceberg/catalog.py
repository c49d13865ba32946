"""Opens Iceberg catalogs by their name, with the properties of pyiceberg's configuration and of a file."""

import os
import random
import time
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from bascule.errors import StateError, error
from bascule.lake.credentials import catalog_properties
from bascule.lake.iceberg.open_errors import address_of, reason_of
from bascule.lake.options import DEFAULT_CATALOG, ArchiveOptions

_ATTEMPTS: Final = 3
_MOST_OPEN: Final = 8


def open_catalog(options: ArchiveOptions) -> Any:
    """The catalog of a table, a `pyiceberg.catalog.Catalog`: one for each process and set of properties.

    Raises:
        UsageError: the file of the option `credentials` is not valid.
        StateError: pyiceberg is not installed, or the catalog cannot be opened.
        UnavailableError: a REST catalog does not answer.
    """
    name = options.catalog or DEFAULT_CATALOG
    given = catalog_properties(options)
    return _opened(os.getpid(), name, tuple(sorted(given.items())))


@lru_cache(maxsize=_MOST_OPEN)
def _opened(process: int, name: str, given: tuple[tuple[str, str], ...]) -> Any:  # noqa: ARG001 - none is inherited
    load = import_pyiceberg("catalog").load_catalog
    properties: Mapping[str, Any] = {}
    reason, is_silent = "", False
    for _ in range(_ATTEMPTS):
        try:
            return load(name, **dict(given))
        except Exception as cause:  # noqa: BLE001 - of any library that a catalog needs
            properties = {**_configured(name), **dict(given)}
            reason, is_silent = reason_of(cause, properties), isinstance(cause, _silence())
        # Processes that create the tables of one SQL catalog at once disturb each other.
        time.sleep(random.uniform(0.05, 0.2))  # noqa: S311 - spreads them
    if is_silent:
        where = address_of(str(properties.get("uri", "")))
        what = f"the Iceberg catalog {name} cannot be opened: {reason}; {where} does not answer: start it, or correct "
        raise error("unavailable", f"{what}the property uri of the catalog", {"catalog": name})
    raise StateError(
        "failed_precondition",
        f"the Iceberg catalog {name} cannot be opened: {reason}; check its properties in pyiceberg's configuration, "
        f"in PYICEBERG_CATALOG__{name.upper()}__… or in the file of the option credentials, on every host",
        {"catalog": name},
    )


def _silence() -> tuple[type[Exception], ...]:
    """Errors of a REST catalog that cannot be reached."""
    exceptions = import_module("requests.exceptions")
    return exceptions.ConnectionError, exceptions.Timeout


def _configured(name: str) -> Mapping[str, Any]:
    """The properties of a catalog in pyiceberg's configuration: its file, and the environment."""
    try:
        found = import_pyiceberg("utils.config").Config().get_catalog_config(name)
    except Exception:  # noqa: BLE001 - the file is not valid, which is what the catalog's own error reports
        found = None
    return found or {}


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
