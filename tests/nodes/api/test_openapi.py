"""The description names what there is, and nothing else."""

import json
import re
from collections.abc import Iterator
from typing import Any, cast

import msgspec
from aiohttp import web

from duly.actors.context import Context
from duly.nodes.api import wire
from duly.nodes.api.app import build_app
from duly.nodes.api.openapi import document
from duly.nodes.connections import Door
from duly.nodes.regions.directory import Regions
from duly.nodes.settings import Settings


def _routes() -> set[tuple[str, str]]:
    # Making the application asks nothing of the context but its parts.
    class Parts:
        api_db = clock = None

    app = build_app([cast("Context", Parts())], Settings(), Door(1, 1.0), Regions(None, ()))
    return {
        (route.method.lower(), route.resource.canonical)
        for route in app.router.routes()
        if isinstance(route.resource, web.Resource)
    }


def _operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            yield method, path, operation


def _references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for member in value.values():
            yield from _references(member)
    elif isinstance(value, list):
        for member in value:
            yield from _references(member)


def test_paths_are_the_routes() -> None:
    assert {(method, path) for method, path, _ in _operations()} == _routes()


def test_every_reference_leads_somewhere() -> None:
    schemas = document()["components"]["schemas"]
    used = set(_references(document()))
    assert used == {f"#/components/schemas/{name}" for name in schemas}


def test_parameters_of_a_path_are_described() -> None:
    for method, path, operation in _operations():
        given = [p for p in operation.get("parameters", []) if p["in"] == "path"]
        assert [p["name"] for p in given] == re.findall(r"\{(\w+)\}", path), (method, path)
        assert all(p["required"] for p in given)


def test_every_operation_tells_its_errors() -> None:
    for method, path, operation in _operations():
        codes = set(operation["responses"])
        if path in ("/healthz", "/readyz") or path.startswith("/admin"):
            assert operation["security"] == []
            assert codes <= {"200", "404", "503"}
            continue
        assert {"401", "403", "503"} <= codes, (method, path)
        if "requestBody" in operation:
            assert {"400", "408", "413", "415", "422"} <= codes, (method, path)
        for code in codes - {"200", "201", "202", "204"}:
            (kind,) = operation["responses"][code]["content"]
            assert kind == "application/problem+json"


def test_the_schema_of_a_submission() -> None:
    schema = document()["components"]["schemas"]["TaskSubmission"]
    assert schema["required"] == ["type"]
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == set(wire.TaskSubmission.__struct_fields__)
    assert schema["properties"]["priority"] == {
        "type": "integer", "minimum": 0, "maximum": 9, "default": 5,
    }  # fmt: skip


def test_it_is_json() -> None:
    assert json.loads(msgspec.json.encode(document()))["openapi"].startswith("3.1")
