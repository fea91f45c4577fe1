"""The routes of the service."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import rhumbline
from rhumbline.errors import InputError, shorten_repr
from rhumbline.serve.http import downloads
from rhumbline.serve.http.bodies import read_body
from rhumbline.serve.http.events import job_events
from rhumbline.serve.http.metrics import metrics_text
from rhumbline.serve.http.openapi import openapi_document
from rhumbline.serve.http.problems import HANDLERS
from rhumbline.serve.http.security import Guard, Tokens
from rhumbline.serve.jobs import Job
from rhumbline.serve.latents.plans import LANDSCAPE
from rhumbline.serve.requests import Refused
from rhumbline.serve.service import Service
from rhumbline.serve.settings import ServiceSettings

PAGE = Path(__file__).parents[1] / "page"


@dataclass(frozen=True)
class ApiTuning:
    """Limits of single requests, and how often the service cleans up."""

    max_listed_jobs: int = 200
    max_latent_numbers: int = 1_000
    max_coordinate: float = 1_000.0  # of a latent; policies are trained for numbers of about 1
    max_key_characters: int = 200  # of an Idempotency-Key
    parsers: int = 2  # instances that are read at the same time; reading holds the interpreter
    max_waiting_questions: int = 16  # about latents, which are answered one by one
    cleaning_seconds: float = 20.0  # between two looks for old jobs and stuck workers


TUNING = ApiTuning()


class Api:
    """The handlers, with the service that they ask."""

    def __init__(self, settings: ServiceSettings):
        self.settings = settings
        self.service = Service(settings)
        # Slow requests wait outside the threads, so that quick ones always find a free thread.
        self.parsing = CapacityLimiter(TUNING.parsers)
        self.drawing = CapacityLimiter(1)  # matplotlib is not safe in threads
        self.decoding = CapacityLimiter(1)

    async def in_thread(
        self, function: Callable[..., Any], *words: Any, limiter: CapacityLimiter | None = None
    ) -> Any:
        """Run something that may take a moment beside the event loop."""
        call = partial(function, *words)
        return await to_thread.run_sync(call, limiter=limiter)

    def job(self, request: Request) -> Job:
        """Return the job of a path; it must belong to the client."""
        job = self.service.find(request.state.client, request.path_params["id"])
        if job is None:
            raise Refused(404, "there is no such job")
        return job

    async def submit(self, request: Request) -> Response:
        """POST /v1/jobs."""
        key = idempotency_key_of(request)
        body = await read_body(request, self.settings.max_body_bytes)
        client = request.state.client
        submit = self.service.submit
        job = await self.in_thread(submit, client, body, key, limiter=self.parsing)
        place = {"Location": f"/v1/jobs/{job.id}"}
        facts = {"id": job.id, "state": str(job.state)}
        return JSONResponse(facts, 202, place)

    async def list_jobs(self, request: Request) -> Response:
        """GET /v1/jobs."""
        limit = limit_of(request)
        jobs = await self.in_thread(self.service.latest, request.state.client, limit)
        views = [job.view(with_plan=False) for job in jobs]
        return JSONResponse({"jobs": views})

    async def show(self, request: Request) -> Response:
        """GET /v1/jobs/{id}."""
        job = self.job(request)
        return JSONResponse(job.view())

    async def cancel(self, request: Request) -> Response:
        """DELETE /v1/jobs/{id}: stop, and return the best plan."""
        job = self.job(request)
        await self.in_thread(self.service.cancel, job)
        facts = job.view()
        return JSONResponse(facts)

    async def events(self, request: Request) -> Response:
        """GET /v1/jobs/{id}/events."""
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        job = self.job(request)
        events = job_events(job)
        return StreamingResponse(events, 200, headers, "text/event-stream")

    async def plan(self, request: Request) -> Response:
        """GET /v1/jobs/{id}/plan: the best plan as a file."""
        job = self.job(request)
        return await self.in_thread(downloads.plan_file, job, self.settings, limiter=self.parsing)

    async def picture(self, request: Request) -> Response:
        """GET /v1/jobs/{id}/picture?format=svg."""
        kind = request.query_params.get("format", "svg")
        job = self.job(request)
        draw = downloads.picture_file
        return await self.in_thread(draw, job, self.settings, kind, limiter=self.drawing)

    async def layout(self, request: Request) -> Response:
        """GET /v1/jobs/{id}/layout: what a page needs to draw plans."""
        job = self.job(request)
        found = await self.in_thread(downloads.layout, job, self.settings, limiter=self.parsing)
        return JSONResponse(found)

    async def latents(self, request: Request) -> Response:
        """GET /v1/jobs/{id}/latents: all latents that were tried, in two dimensions."""
        job = self.job(request)
        found = await self.in_thread(self.service.view_latents, job)
        if found is None:
            raise Refused(404, 'no latents were recorded; send the job with "latents": true')
        return JSONResponse(found)

    async def decode(self, request: Request) -> Response:
        """POST /v1/jobs/{id}/decode: the plan that the policy builds at one latent."""
        job = self.job(request)
        body = await read_body(request, self.settings.max_body_bytes)
        latent = await self.in_thread(self.latent_of, job, body)
        return await self.in_decoder(self.service.decode, job, latent)

    async def landscape(self, request: Request) -> Response:
        """GET /v1/jobs/{id}/landscape?extent=1.5: costs over a two-dimensional latent space."""
        extent = extent_of(request)
        job = self.job(request)
        return await self.in_decoder(self.service.landscape, job, extent)

    async def in_decoder(self, question: Callable[..., Any], *words: Any) -> Response:
        """Answer a question about latents; these are answered one by one."""
        statistics = self.decoding.statistics()
        waiting = statistics.tasks_waiting
        if waiting >= TUNING.max_waiting_questions:
            raise Refused(429, "too many questions about latents wait; try again later")
        answer = await self.in_thread(question, *words, limiter=self.decoding)
        return JSONResponse(answer)

    def latent_of(self, job: Job, body: Any) -> list[float]:
        """Return the latent that a client means: numbers, or the number of a recorded one."""
        if not isinstance(body, dict):
            raise InputError('expected {"latent": [...]} or {"number": 3}')
        number = body.get("number")
        if number is None:
            return numbers_of(body.get("latent"))
        found = None
        if type(number) is int:
            found = self.service.find_latent(job, number)
        if found is None:
            raise InputError(f"there is no latent {shorten_repr(number)} in the record of this job")
        return found

    async def health(self, request: Request) -> Response:
        """GET /health."""
        facts = {"status": "ok", "version": rhumbline.__version__}
        return JSONResponse(facts)

    async def metrics(self, request: Request) -> Response:
        """GET /metrics."""
        text = await self.in_thread(metrics_text, self.service)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        """GET /openapi.json."""
        document = openapi_document(self.settings)
        return JSONResponse(document)

    async def page(self, request: Request) -> Response:
        """GET /."""
        return FileResponse(PAGE / "index.html")

    async def clean(self) -> None:
        """Delete old jobs and kill stuck workers from time to time."""
        while True:
            await self.in_thread(self.service.delete_old)
            await self.in_thread(self.service.kill_stuck_workers)
            await asyncio.sleep(TUNING.cleaning_seconds)


def idempotency_key_of(request: Request) -> str | None:
    """Return the key under which a client sends a job, if it has one."""
    key = request.headers.get("idempotency-key")
    limit = TUNING.max_key_characters
    if key is None or 0 < len(key) <= limit:
        return key
    raise Refused(400, f"the Idempotency-Key has 1 to {limit} characters")


def numbers_of(latent: Any) -> list[float]:
    """Return a latent that was sent as a list of numbers."""
    if not isinstance(latent, list) or not 0 < len(latent) <= TUNING.max_latent_numbers:
        raise InputError("latent is no list of numbers")
    limit = TUNING.max_coordinate
    for number in latent:
        is_number = type(number) in (int, float)
        if not is_number or not abs(number) <= limit:
            expected = f"expected numbers from -{limit:g} to {limit:g}"
            raise InputError(f"latent holds {shorten_repr(number)}, {expected}")
    return list(map(float, latent))


def limit_of(request: Request) -> int:
    """Return how many jobs to list."""
    text = request.query_params.get("limit", "50")
    is_number = re.fullmatch("[0-9]{1,4}", text)
    limit = int(text) if is_number else 0
    if not 1 <= limit <= TUNING.max_listed_jobs:
        expected = f"expected a whole number from 1 to {TUNING.max_listed_jobs}"
        raise InputError(f"limit is {shorten_repr(text)}, {expected}")
    return limit


def extent_of(request: Request) -> float:
    """Return how far a heat map reaches; few values, so that heat maps can be kept."""
    known = {f"{extent:g}": extent for extent in LANDSCAPE.extents}
    smallest = next(iter(known))
    text = request.query_params.get("extent", smallest)
    if text not in known:
        listed = ", ".join(known)
        raise InputError(f"extent is {shorten_repr(text)}, expected one of {listed}")
    return known[text]


def make_app(
    settings: ServiceSettings, tokens: Tokens | None = None, hosts: tuple[str, ...] = ()
) -> Any:
    """Return the application; its service starts at once and ends with the application."""
    api = Api(settings)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        cleaner = asyncio.create_task(api.clean())
        yield
        cleaner.cancel()
        await to_thread.run_sync(api.service.close)

    routes = [
        Route("/", api.page),
        Route("/health", api.health),
        Route("/metrics", api.metrics),
        Route("/openapi.json", api.openapi),
        Route("/v1/jobs", api.submit, methods=["POST"]),
        Route("/v1/jobs", api.list_jobs, methods=["GET"]),
        Route("/v1/jobs/{id}", api.show, methods=["GET"]),
        Route("/v1/jobs/{id}", api.cancel, methods=["DELETE"]),
        Route("/v1/jobs/{id}/events", api.events),
        Route("/v1/jobs/{id}/plan", api.plan),
        Route("/v1/jobs/{id}/picture", api.picture),
        Route("/v1/jobs/{id}/layout", api.layout),
        Route("/v1/jobs/{id}/latents", api.latents),
        Route("/v1/jobs/{id}/landscape", api.landscape),
        Route("/v1/jobs/{id}/decode", api.decode, methods=["POST"]),
        Mount("/page", StaticFiles(directory=PAGE)),
    ]
    app = Starlette(routes=routes, exception_handlers=HANDLERS, lifespan=lifespan)
    app.state.api = api
    return Guard(app, tokens, hosts)
