"""All jobs of a server: the queue, the choice of the next batch, and the results.

Requests of equal size that want the same budget are solved together in one batch. Methods may be
called from any thread; one lock guards all jobs.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rhumbline.errors import InputError
from rhumbline.serve.jobs import Job, JobState, new_id
from rhumbline.serve.latents.decoder import LatentDecoder
from rhumbline.serve.latents.log import LatentLog, StoredLatents
from rhumbline.serve.pool import WorkerProcess, threads_per_worker
from rhumbline.serve.requests import Refused, make_instance, max_batch_length, parse_request
from rhumbline.serve.settings import ServiceSettings
from rhumbline.serve.store import JobStore
from rhumbline.serve.worker import Message


@dataclass(frozen=True)
class ServiceTuning:
    """How often a job is tried, what is kept, and when a batch is stuck.

    A batch is stuck if its processor time per thread exceeds its seconds times `stuck_factor` plus
    `stuck_cpu_seconds`, or its wall-clock time the same plus `stuck_seconds`. Wall-clock time alone
    says little on an overloaded machine, where kernels may take minutes to compile.
    """

    max_tries: int = 2  # of a job: in a batch, then alone
    seconds_between_writes: float = 0.5  # of the best plan of a running job
    max_landscapes: int = 64  # heat maps that are kept in memory
    stuck_factor: float = 1.5
    stuck_cpu_seconds: float = 60.0
    stuck_seconds: float = 600.0


TUNING = ServiceTuning()


@dataclass
class Totals:
    """What a server has done since it started, for its metrics."""

    jobs: Counter[str] = field(default_factory=Counter[str])  # by final state
    batches: int = 0
    batched_jobs: int = 0
    attempts: int = 0
    wait_seconds: float = 0.0
    workers_replaced: int = 0


class Service:
    """Accepts jobs, gives them to workers in batches and keeps their results."""

    def __init__(self, settings: ServiceSettings):
        self.settings = settings
        self.store = JobStore(settings.data)
        self.lock = threading.RLock()
        self.jobs: dict[str, Job] = {}  # that wait or run, in order of arrival
        self.totals = Totals()
        self.stored_at: dict[str, float] = {}
        self.decoder: LatentDecoder | None = None
        self.landscapes: dict[tuple[str, float], dict[str, Any]] = {}
        self.is_closing = False
        self.threads = threads_per_worker(settings.workers)
        self.workers = [
            WorkerProcess(settings, self.threads, self.handle_message, self.replace_worker)
            for _ in range(settings.workers)
        ]
        self.resume()

    # --- what clients ask for

    def submit(self, client: str, body: Any, key: str | None = None) -> Job:
        """Accept a job, or return the one that was sent with the same key before."""
        request = parse_request(body, self.settings)
        known = self.find_by_key(client, body, key)
        if known is not None:
            return known
        instance = make_instance(request, self.settings)
        job = Job(
            id=new_id(),
            client=client,
            body_text=json.dumps(body),
            name=instance.name,
            problem=instance.problem,
            size=instance.size,
            seconds=request.seconds or self.settings.max_seconds,
            batch_key=(instance.problem, instance.shape, *request.way_to_solve),
            idempotency_key=key,
            latents=LatentLog() if request.latents else None,
        )
        job.batch_limit = max_batch_length(instance, self.settings)
        with self.lock:
            known = self.find_by_key(client, body, key)  # the same request may come twice at once
            if known is not None:
                return known
            self.check_room(client, job)
            self.store.insert(job)
            self.jobs[job.id] = job
        self.dispatch()
        return job

    def find_by_key(self, client: str, body: Any, key: str | None) -> Job | None:
        """Return the job that was sent with a key before; refuse another body with this key."""
        if key is None:
            return None
        known = self.store.find_by_key(client, key)
        if known is None:
            return None
        if known.body != body:
            reason = "this Idempotency-Key belongs to a job with another body"
            raise Refused(409, f"{reason}; use a new key")
        return self.find(client, known.id) or known

    def check_room(self, client: str, job: Job) -> None:
        """Refuse a job that would exceed a limit on waiting jobs."""
        limit = self.settings.max_queued
        if len(self.jobs) >= limit:
            raise Refused(429, f"{limit:,} jobs are waiting; try again later")
        waiting_length = sum(len(other.body_text) for other in self.jobs.values())
        length = waiting_length + len(job.body_text)
        if length > self.settings.max_queued_bytes:
            raise Refused(429, "the waiting jobs take too much memory; try again later")
        own_limit = self.settings.max_queued_per_client
        clients = [job.client for job in self.jobs.values()]
        own = clients.count(client)
        if own >= own_limit:
            found = f"you have {own:,} jobs waiting or running"
            raise Refused(429, f"{found}; {own_limit:,} at a time are allowed")

    def find(self, client: str, job_id: str) -> Job | None:
        """Return a job of a client, unfinished or stored."""
        with self.lock:
            job = self.jobs.get(job_id)
        job = job or self.store.find(job_id)
        if job is None or job.client != client:
            return None
        return job

    def view_latents(self, job: Job) -> dict[str, Any] | None:
        """Return a picture of the latents tried for a job; None if they are not recorded."""
        with self.lock:  # workers add latents at any time
            log = self.latents_of(job)
            return log.view() if log else None

    def find_latent(self, job: Job, number: int) -> list[float] | None:
        """Return a recorded latent by its number."""
        with self.lock:
            log = self.latents_of(job)
            return log.latent(number) if log else None

    def latents_of(self, job: Job) -> LatentLog | StoredLatents | None:
        """Return the record of the latents that were tried for a job, if it has one."""
        if job.latents is not None:
            return job.latents
        stored = self.store.find_latents(job.id)
        if stored is None and job.body.get("latents") is True:
            return LatentLog()  # it was stopped before it had tried any
        return stored

    def latest(self, client: str, limit: int) -> list[Job]:
        """Return the latest jobs of a client, newest first."""
        found = self.store.latest(client, limit)
        with self.lock:
            return [self.jobs.get(job.id, job) for job in found]

    def cancel(self, job: Job) -> None:
        """End a job; its best plan so far stays."""
        with self.lock:
            if job.state.is_final:
                return
            worker = self.worker_of(job)
            self.end(job, JobState.INTERRUPTED)
            if worker and all(other.state.is_final for other in worker.batch):
                worker.stop_batch()

    def decode(self, job: Job, latent: Sequence[float]) -> dict[str, Any]:
        """Return the plan that the policy builds at one latent."""
        decoder = self.start_decoder()
        coordinates = list(latent)
        return decoder.ask("plan", job.body, coordinates)

    def landscape(self, job: Job, extent: float) -> dict[str, Any]:
        """Return the costs over a two-dimensional latent space; the latest ones are kept."""
        key = (job.id, extent)
        known = self.landscapes.get(key)
        if known is None:
            decoder = self.start_decoder()
            known = decoder.ask("landscape", job.body, extent)
            with self.lock:
                self.landscapes[key] = known
                is_full = len(self.landscapes) > TUNING.max_landscapes
                if is_full:
                    oldest = next(iter(self.landscapes))
                    self.landscapes.pop(oldest)
        return known

    def start_decoder(self) -> LatentDecoder:
        """Return the process for questions about latents, which starts with the first one."""
        with self.lock:
            if self.decoder is None:
                self.decoder = LatentDecoder(self.settings)
            return self.decoder

    # --- what runs next

    def dispatch(self) -> None:
        """Give every free worker a batch, as long as jobs wait."""
        with self.lock:
            if self.is_closing:
                return
            for worker in self.workers:
                if worker.is_ready and worker.batch is None:
                    batch = self.choose_batch()
                    if not batch:
                        return
                    self.begin(worker, batch)

    def choose_batch(self) -> list[Job]:
        """Return the oldest waiting job that may run, with all jobs that can be solved with it."""
        may_be_long = self.room_for_long_jobs()
        for job in self.jobs.values():
            if job.state is not JobState.QUEUED:
                continue
            if self.is_long(job) and not may_be_long:
                continue
            return [job] if job.must_be_alone else self.companions(job)
        return []

    def room_for_long_jobs(self) -> bool:
        """Return whether a long job would leave a worker for short ones."""
        count = len(self.workers)
        long_batches = 0
        for worker in self.workers:
            batch: list[Job] = worker.batch or []
            long_batches += any(self.is_long(job) for job in batch)
        return count == 1 or long_batches < count - 1

    def is_long(self, job: Job) -> bool:
        """Return whether a job takes longer than a short one should have to wait."""
        return job.seconds > self.settings.short_seconds

    def companions(self, job: Job) -> list[Job]:
        """Return a job with all others that are solved in the same way and are of equal size."""
        alike = [
            other
            for other in self.jobs.values()
            if other.state is JobState.QUEUED
            and other.batch_key == job.batch_key
            and not other.must_be_alone
        ]
        return alike[: job.batch_limit]

    def begin(self, worker: WorkerProcess, batch: list[Job]) -> None:
        """Hand a batch to a worker."""
        for job in batch:
            job.tries += 1
            job.batch_size = len(batch)
            job.state = JobState.RUNNING
            self.store.update(job)
        worker.batch = batch
        worker.begun = time.monotonic()
        worker.cpu_begun = worker.cpu_seconds()
        self.totals.batches += 1
        self.totals.batched_jobs += len(batch)
        payload: list[dict[str, Any]] = []
        for job in batch:
            start = job.best["plan"] if job.best else None
            part = {"body": job.body, "start": start}
            payload.append(part)
        worker.send("solve", payload)

    def worker_of(self, job: Job) -> WorkerProcess | None:
        """Return the worker that has a job in its batch."""
        for worker in self.workers:
            if worker.batch and job in worker.batch:
                return worker
        return None

    # --- what workers say

    def handle_message(self, worker: WorkerProcess, message: Message) -> None:
        """Handle a message of a worker."""
        with self.lock:
            batch: list[Job] = worker.batch or []
            if message.kind == "idle":
                self.end_batch(worker)
            elif message.kind in ("refused", "failed"):
                self.retry_or_fail(batch, message.facts)
            elif message.index is not None:
                self.update_job(batch[message.index], message)
            else:
                for job in batch:
                    self.update_job(job, message)
        if message.kind == "idle":
            self.dispatch()

    def update_job(self, job: Job, message: Message) -> None:
        """Update a running job by the message of a worker."""
        if job.state.is_final:
            return
        facts = message.facts
        if message.kind == "started" and job.started is None:
            job.started = time.time()
            self.totals.wait_seconds += job.wait_seconds
        elif message.kind == "progress":
            share = facts["elapsed"] / job.seconds
            job.progress = facts | {"share": min(1.0, share)}
        elif message.kind == "improved":
            self.keep_best(job, facts)
        elif message.kind == "latents" and job.latents is not None:
            job.latents.add(facts["latents"], facts["costs"])
            if "means" in facts:
                job.latents.add_step(facts["means"], facts["covariances"])
        elif message.kind == "finished":
            self.finish(job, facts)
            return
        job.notify()

    def keep_best(self, job: Job, facts: dict[str, Any]) -> None:
        """Keep a plan if it is better than all before it, also on disk."""
        if job.best is not None and facts["cost"] >= job.best["cost"]:
            return
        job.take_best(facts)
        now = time.monotonic()
        if now - self.stored_at.get(job.id, 0.0) >= TUNING.seconds_between_writes:
            self.stored_at[job.id] = now
            self.store.update(job)

    def finish(self, job: Job, facts: dict[str, Any]) -> None:
        """End a job with its last plan."""
        interrupted = facts.pop("interrupted")
        self.totals.attempts += facts["attempts"]
        if job.best is None or facts["cost"] <= job.best["cost"]:
            job.take_best(facts)
        self.end(job, JobState.INTERRUPTED if interrupted else JobState.DONE)

    def end(self, job: Job, state: JobState, error: str | None = None) -> None:
        """Put a job into a final state, on disk first."""
        job.state = state
        job.error = error
        job.ended = time.time()
        self.store.update(job)
        log = job.latents
        if log is not None and log.tried:
            self.store.save_latents(job.id, log)
        state_name = str(state)
        self.totals.jobs[state_name] += 1
        self.jobs.pop(job.id, None)
        self.stored_at.pop(job.id, None)
        job.notify()

    def retry_or_fail(self, batch: Sequence[Job], reason: str) -> None:
        """Try the jobs of a failed batch alone; a job that has failed alone has failed."""
        for job in batch:
            if job.state.is_final:
                continue
            if len(batch) > 1 and job.tries < TUNING.max_tries:
                job.state = JobState.QUEUED
                job.must_be_alone = True
                self.store.update(job)
            elif job.best is not None:
                self.end(job, JobState.INTERRUPTED, reason)
            else:
                self.end(job, JobState.FAILED, reason)

    def end_batch(self, worker: WorkerProcess) -> None:
        """Free a worker; jobs without a final message were interrupted."""
        batch: list[Job] = worker.batch or []
        worker.batch = None
        worker.is_ready = True
        for job in batch:
            if job.state is JobState.RUNNING:
                without_plan = "the search was stopped before it had a plan"
                error = None if job.best else without_plan
                self.end(job, JobState.INTERRUPTED, error)

    def replace_worker(self, worker: WorkerProcess, exit_code: int | None) -> None:
        """Start a new process for one that has died, and try its jobs again."""
        with self.lock:
            batch: list[Job] = worker.batch or []
            worker.batch = None
            if self.is_closing:
                return
            self.totals.workers_replaced += 1
            self.retry_or_fail(batch, f"the worker process ended with code {exit_code}")
            worker.start()
        self.dispatch()

    # --- life of the service

    def resume(self) -> None:
        """Queue the unfinished jobs of an earlier server, each with its best plan as warm start."""
        for stored in self.store.unfinished():
            try:
                request = parse_request(stored.body, self.settings)
                instance = make_instance(request, self.settings)
            except InputError as error:  # the limits have changed since
                state = JobState.INTERRUPTED if stored.best else JobState.FAILED
                self.end(stored, state, str(error))
                continue
            stored.state = JobState.QUEUED
            stored.batch_key = (instance.problem, instance.shape, *request.way_to_solve)
            stored.batch_limit = max_batch_length(instance, self.settings)
            stored.latents = LatentLog() if request.latents else None
            with self.lock:
                self.jobs[stored.id] = stored
        self.dispatch()

    def kill_stuck_workers(self) -> None:
        """Kill workers whose batch should have ended long ago; its jobs are tried again alone."""
        now = time.monotonic()
        with self.lock:
            for worker in self.workers:
                if not worker.batch:
                    continue
                longest = max(job.seconds for job in worker.batch)
                seconds = TUNING.stuck_factor * longest
                cpu_spent = worker.cpu_seconds() - worker.cpu_begun
                cpu_seconds = cpu_spent / self.threads
                took_long = now - worker.begun > seconds + TUNING.stuck_seconds
                if took_long or cpu_seconds > seconds + TUNING.stuck_cpu_seconds:
                    worker.kill()

    def delete_old(self) -> int:
        """Delete jobs that ended longer ago than they are kept."""
        now = time.time()
        before = now - self.settings.keep_seconds
        return self.store.delete_ended_before(before)

    def close(self) -> None:
        """End all workers. Running jobs stay unfinished on disk; the next server continues them."""
        with self.lock:
            self.is_closing = True
            for job in self.jobs.values():
                self.store.update(job)
        for worker in self.workers:
            worker.close()
        if self.decoder is not None:
            self.decoder.close()
        self.store.close()
