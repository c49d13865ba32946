"""Access to S3, by reference: from the environment of each process, or from a file on each host."""

import os
from typing import Any, Final, cast

from bascule._json import load_json
from bascule.errors import error
from bascule.lake.options import ArchiveOptions
from bascule.spark.files import REMEDY, located
from bascule.spark.usage import nearest, usage

VARIABLES: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ALLOW_HTTP",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
)
"""Storage options, by their names in the environment."""
_CONTENT: Final = (
    'it must hold an object with texts, as {"AWS_REGION": "…"} for S3, or the properties of the Iceberg catalog'
)
DEFAULT_REGION: Final = "us-east-1"


def storage_options(options: ArchiveOptions) -> dict[str, str]:
    """The storage options of a table in S3, as deltalake and obstore take them. They hold secrets: keep them in memory.

    Raises:
        UsageError: the file of the option `credentials` is not an object of known options.
        StateError: the file cannot be read.
    """
    found = {name: value for name in VARIABLES if (value := os.environ.get(name))}
    if "AWS_REGION" not in found and (region := os.environ.get("AWS_DEFAULT_REGION")):
        found["AWS_REGION"] = region
    if options.credentials is not None:
        found |= _from_file(options.credentials)
    if options.region is not None:
        found["AWS_REGION"] = options.region
    if options.endpoint is not None:
        found["AWS_ENDPOINT_URL"] = options.endpoint
        if options.endpoint.startswith("http://"):
            found["AWS_ALLOW_HTTP"] = "true"
    found.setdefault("AWS_REGION", DEFAULT_REGION)
    return found


def catalog_properties(options: ArchiveOptions) -> dict[str, str]:
    """The properties of an Iceberg catalog in the file of the option `credentials`; without it none. They hold secrets.

    Raises:
        UsageError: the file is not an object of texts.
        StateError: the file cannot be read.
    """
    if options.credentials is None:
        return {}
    given = _document(options.credentials)
    for name, value in given.items():
        if not isinstance(value, str):
            raise usage(f"{options.credentials}: {name} is not a property of a catalog with a text value")
    return given


def _from_file(path: str) -> dict[str, str]:
    given = {name.upper(): value for name, value in _document(path).items()}
    for name, value in given.items():
        if name not in VARIABLES or not isinstance(value, str):
            hint = nearest(name, VARIABLES) or f": choose among {', '.join(VARIABLES)}"
            raise usage(f"{path}: {name} is not a storage option with a text value{hint}")
    return given


def _document(path: str) -> dict[str, Any]:
    try:
        document: object = load_json(located(path).read_text())
    except OSError as cause:
        what = f"the file of the option credentials cannot be read: {path}: {cause.strerror}"
        raise error("failed_precondition", f"{what}; {REMEDY}") from cause
    except (ValueError, RecursionError) as cause:  # its content is not repeated: it holds secrets
        raise usage(f"the file of the option credentials is not valid JSON: {path}; {_CONTENT}") from cause
    if not isinstance(document, dict):
        raise usage(f"the file of the option credentials is not a JSON object: {path}; {_CONTENT}")
    return cast("dict[str, Any]", document)
