"""JSON bodies within limits of size, time and depth."""

import asyncio
import json
from typing import Any

from starlette.requests import ClientDisconnect, Request

from rhumbline.serve.requests import Refused


async def read_body(request: Request, max_bytes: int) -> Any:
    """Return the JSON of a body; refuse what is too large, too slow or no JSON."""
    max_seconds = 30.0  # in which the body must have arrived
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(415, "expected a body of Content-Type: application/json")
    try:
        async with asyncio.timeout(max_seconds):
            data = await read_limited(request, max_bytes)
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {max_seconds:.0f} s") from None
    except ClientDisconnect:
        raise Refused(400, "the connection was closed before the body ended") from None
    try:
        return json.loads(data, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is no valid JSON: {str(error)[:200]}") from None


async def read_limited(request: Request, max_bytes: int) -> bytes:
    """Return a body of limited length."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > max_bytes:
            raise Refused(413, f"the body is larger than {max_bytes:,} bytes")
    return bytes(data)


def refuse_constant(name: str) -> float:
    """Refuse NaN and infinities, which JSON does not have."""
    raise ValueError(f"{name} is no number of JSON")
