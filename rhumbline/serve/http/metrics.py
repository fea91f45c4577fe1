"""Figures of the service in Prometheus' text format."""

from collections.abc import Iterator

from rhumbline.serve.jobs import JobState
from rhumbline.serve.service import Service


def metrics_text(service: Service) -> str:
    """Return all figures: counters since the start of the server, and present gauges."""
    lines = metric_lines(service)
    return "\n".join(lines) + "\n"


def metric_lines(service: Service) -> Iterator[str]:
    """Yield the lines of all figures."""
    totals = service.totals
    with service.lock:
        states = [job.state for job in service.jobs.values()]
        busy = sum(worker.batch is not None for worker in service.workers)
    yield "# HELP rhumb_jobs_ended_total Jobs that have ended since the start, by final state."
    yield "# TYPE rhumb_jobs_ended_total counter"
    for state in JobState:
        if state.is_final:
            yield f'rhumb_jobs_ended_total{{state="{state}"}} {totals.jobs[str(state)]}'
    counters = (
        ("rhumb_batches_total", "Batches that workers have begun.", totals.batches),
        ("rhumb_batched_jobs_total", "Jobs in these batches.", totals.batched_jobs),
        ("rhumb_attempts_total", "Attempts of all jobs that have ended.", totals.attempts),
        ("rhumb_wait_seconds_total", "Waiting time of all jobs.", round(totals.wait_seconds, 3)),
        ("rhumb_workers_replaced_total", "Workers that have died.", totals.workers_replaced),
    )
    gauges = (
        ("rhumb_jobs_queued", "Jobs that wait.", states.count(JobState.QUEUED)),
        ("rhumb_jobs_running", "Jobs that are being solved.", states.count(JobState.RUNNING)),
        ("rhumb_workers_busy", "Workers with a batch.", busy),
    )
    for kind, figures in (("counter", counters), ("gauge", gauges)):
        for name, text, value in figures:
            yield f"# HELP {name} {text}"
            yield f"# TYPE {name} {kind}"
            yield f"{name} {value}"
