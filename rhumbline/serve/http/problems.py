"""Errors as problem details (RFC 9457), with the sentences of the command line."""

from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from rhumbline.errors import MissingExtra, RhumbError
from rhumbline.serve.requests import Refused


def problem_response(status: int, detail: str, **more: Any) -> JSONResponse:
    """Return an error as its client sees it."""
    title = HTTPStatus(status).phrase
    facts = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    body = facts | more
    headers = {}
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        headers["Retry-After"] = "5"  # seconds
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(body, status, headers, "application/problem+json")


async def report_rhumb_error(request: Request, error: Exception) -> JSONResponse:
    """Answer an error that the client can mend."""
    assert isinstance(error, RhumbError)
    if isinstance(error, Refused):
        return problem_response(error.status, str(error))
    status = 501 if isinstance(error, MissingExtra) else 422
    return problem_response(status, str(error), code=error.exit_code)


async def report_http_error(request: Request, error: Exception) -> JSONResponse:
    """Answer an unknown path or method."""
    assert isinstance(error, HTTPException)
    detail = error.detail or ""
    return problem_response(error.status_code, detail)


async def report_fault(request: Request, error: Exception) -> JSONResponse:
    """Answer a fault of the server, without any detail of its inside."""
    return problem_response(500, "the server failed on this request; its log says why")


HANDLERS: dict[Any, Any] = {
    RhumbError: report_rhumb_error,
    HTTPException: report_http_error,
    Exception: report_fault,
}
