"""The description of the interface: GET /openapi.json."""

from importlib.metadata import version
from typing import Any

from pydantic.json_schema import models_json_schema

from bascule.protocols.iggy.http.routes import OPEN, ROUTES, Route

__all__ = ["document"]

_REFERENCE = "#/components/schemas/{model}"


def document() -> dict[str, Any]:
    """OpenAPI 3.1: every path with its methods, parameters and bodies."""
    models = {route.body for route in ROUTES if route.body is not None}
    ordered = sorted(models, key=lambda model: model.__name__)
    _, schemas = models_json_schema([(model, "validation") for model in ordered], ref_template=_REFERENCE)
    paths = dict[str, dict[str, Any]]()
    for route in ROUTES:
        paths.setdefault("/" + "/".join(route.path), {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Bascule, interface of Iggy's clients", "version": version("bascule")},
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    places = [part[1:-1] for part in route.path if part.startswith("{")]
    text = {"schema": {"type": "string"}}
    operation: dict[str, Any] = {
        "summary": route.summary,
        "parameters": [{"name": name, "in": "path", "required": True, **text} for name in places]
        + [{"name": name, "in": "query", **text} for name in route.query],
        "responses": {str(route.status): {"description": "success"}, "default": {"description": "a refusal"}},
        "security": [] if "/" + "/".join(route.path) in OPEN else [{"token": []}],
    }
    if route.body is not None:
        schema = {"$ref": _REFERENCE.format(model=route.body.__name__)}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation
