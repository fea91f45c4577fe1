"""The description of the interface for other programs (OpenAPI 3.1)."""

from typing import Any

import rhumbline
from rhumbline.improvers import SOLVER_NAMES
from rhumbline.search.strategies import STRATEGIES
from rhumbline.serve.jobs import JobState
from rhumbline.serve.requests import LIMITS
from rhumbline.serve.settings import ServiceSettings


def openapi_document(settings: ServiceSettings) -> dict[str, Any]:
    """Return the whole description, with the limits of this server."""
    job = {"$ref": "#/components/schemas/Job"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "rhumbline", "version": rhumbline.__version__},
        "paths": {
            "/v1/jobs": {
                "post": operation(
                    "Send a job", {"202": ("Accepted", {"type": "object"})}, body="NewJob"
                ),
                "get": operation("List the latest jobs", {"200": ("Jobs", {"type": "object"})}),
            },
            "/v1/jobs/{id}": {
                "parameters": [job_parameter()],
                "get": operation("JobState and best plan so far", {"200": ("Job", job)}),
                "delete": operation("Stop, and return the best plan", {"200": ("Job", job)}),
            },
            "/v1/jobs/{id}/events": job_path(
                "Server-sent events with the job", "text/event-stream"
            ),
            "/v1/jobs/{id}/plan": job_path("The best plan as a file", "text/plain"),
            "/v1/jobs/{id}/picture": job_path("A picture: ?format=svg or png", "image/svg+xml"),
            "/v1/jobs/{id}/layout": job_path("What is needed to draw plans", "application/json"),
            "/v1/jobs/{id}/latents": job_path("Latents in two dimensions", "application/json"),
            "/v1/jobs/{id}/landscape": job_path("Costs over two latents", "application/json"),
            "/v1/jobs/{id}/decode": {
                "parameters": [job_parameter()],
                "post": operation(
                    "The plan at one latent", {"200": ("Plan", {"type": "object"})}, body="Latent"
                ),
            },
            "/health": {"get": operation("Whether the server answers", {"200": ("Yes", {})})},
            "/metrics": {"get": operation("Figures for Prometheus", {"200": ("Text", {})})},
        },
        "components": {"schemas": schemas(settings)},
    }


def job_parameter() -> dict[str, Any]:
    """Return the parameter of paths that name a job."""
    return {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}


def job_path(summary: str, kind: str) -> dict[str, Any]:
    """Return a path below a job that is only read."""
    found = {"description": summary, "content": {kind: {}}}
    missing = {"description": "No such job"}
    get = {"summary": summary, "responses": {"200": found, "404": missing}}
    return {"parameters": [job_parameter()], "get": get}


def operation(
    summary: str, answers: dict[str, tuple[str, Any]], body: str | None = None
) -> dict[str, Any]:
    """Return an operation; every error is a problem document."""
    responses: dict[str, Any] = {
        status: {"description": text, "content": {"application/json": {"schema": schema}}}
        for status, (text, schema) in answers.items()
    }
    responses["default"] = {"description": "An error", "content": {"application/problem+json": {}}}
    found: dict[str, Any] = {"summary": summary, "responses": responses}
    if body:
        schema = {"$ref": f"#/components/schemas/{body}"}
        found["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return found


def schemas(settings: ServiceSettings) -> dict[str, Any]:
    """Return the schemas of what is sent and received."""
    numbers = {"type": "array", "items": {"type": "number"}}
    table = {"type": "array", "items": numbers}
    return {
        "NewJob": {
            "type": "object",
            "description": "name and text of a file, or the fields of one kind of instance",
            "properties": {
                "name": {"type": "string"},
                "text": {"type": "string"},
                "coordinates": table,
                "depot": numbers,
                "customers": table,
                "demands": numbers,
                "capacity": {"type": "number"},
                "durations": table,
                "machines": table,
                "seconds": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "maximum": settings.max_seconds,
                },
                "attempts": {"type": "integer", "minimum": 1},
                "search": {"type": "string", "enum": list(STRATEGIES)},
                "then": {"type": "string", "enum": ["none", *SOLVER_NAMES]},
                "seed": {"type": "integer", "minimum": 0},
                "top": {"type": "integer", "minimum": 1, "maximum": LIMITS.max_plans},
                "latents": {"type": "boolean"},
            },
        },
        "Job": {
            "type": "object",
            "properties": {
                "id": {"type": "string"},
                "state": {"type": "string", "enum": [str(state) for state in JobState]},
                "progress": {"type": "object"},
                "best": {"type": ["object", "null"]},
                "error": {"type": ["string", "null"]},
            },
        },
        "Latent": {
            "type": "object",
            "properties": {"latent": numbers, "number": {"type": "integer"}},
        },
    }
