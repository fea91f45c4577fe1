"""Plans and pictures of jobs as files, and what a page needs to draw them itself."""

import gc
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from starlette.responses import Response

from rhumbline.domains import DOMAINS
from rhumbline.files import plan_suffix_for, write_plan
from rhumbline.problems.cvrp import CVRPInstance
from rhumbline.problems.jssp import JSSPInstance
from rhumbline.serve.jobs import Job
from rhumbline.serve.requests import Refused, make_instance, parse_request
from rhumbline.serve.settings import ServiceSettings


def instance_of(job: Job, settings: ServiceSettings) -> Any:
    """Return the instance of a job, read from its request again."""
    request = parse_request(job.body, settings)
    return make_instance(request, settings)


def instance_and_plan(job: Job, settings: ServiceSettings) -> tuple[Any, Any]:
    """Return the instance of a job and its best plan so far."""
    best = job.best
    if best is None:
        raise Refused(409, "there is no plan yet; ask again in a moment")
    instance = instance_of(job, settings)
    parse_plan = DOMAINS[instance.problem].files.parse_plan
    if parse_plan is None:
        raise Refused(501, f"plans of {instance.problem} have no file format")
    plan = parse_plan(best["plan"], instance)
    return instance, plan


def plan_file(job: Job, settings: ServiceSettings) -> Response:
    """Return the best plan in the format of its problem: .tour, .sol or .sched."""
    instance, plan = instance_and_plan(job, settings)
    suffix = plan_suffix_for(instance)
    with tempfile.TemporaryDirectory(prefix="rhumb-serve-") as folder:
        path = Path(folder) / f"plan{suffix}"
        cost = plan.cost(instance)
        write_plan(path, plan, instance, f"cost {cost:g}, found by rhumbline")
        text = path.read_bytes()
    return Response(text, headers=attachment(job, suffix), media_type="text/plain; charset=utf-8")


def picture_file(job: Job, settings: ServiceSettings, kind: str) -> Response:
    """Return a picture of the best plan."""
    from rhumbline.plots import require_matplotlib, save_plan

    media_types = {"svg": "image/svg+xml", "png": "image/png"}
    if kind not in media_types:
        raise Refused(422, f"format is {kind[:20]!r}, expected svg or png")
    require_matplotlib()
    instance, plan = instance_and_plan(job, settings)
    with tempfile.TemporaryDirectory(prefix="rhumb-serve-") as folder:
        path = Path(folder) / f"plan.{kind}"
        save_plan(path, instance, plan)
        data = path.read_bytes()
    # Figures hold themselves in cycles: without this a server grows by 1.5 MB with each PNG.
    gc.collect()
    headers = attachment(job, f".{kind}")
    return Response(data, headers=headers, media_type=media_types[kind])


def attachment(job: Job, suffix: str) -> dict[str, str]:
    """Return the header with the file name of a download; unusual characters become dashes."""
    max_characters = 80
    safe_name = re.sub("[^A-Za-z0-9]", "-", job.name)
    name = safe_name[:max_characters] or "plan"
    disposition = f'attachment; filename="{name}{suffix}"'
    return {"Content-Disposition": disposition}


def layout(job: Job, settings: ServiceSettings) -> dict[str, Any]:
    """Return what a page needs to draw plans of a job: positions and demands, or operations."""
    instance = instance_of(job, settings)
    facts: dict[str, Any] = {
        "name": job.name,
        "problem": job.problem,
        "best_known": instance.best_known,
    }
    if isinstance(instance, JSSPInstance):
        return facts | job_shop_layout(instance)
    has_positions = instance.metric != "EXPLICIT"
    xy = instance.xy if has_positions else instance.planar_xy
    rounded = np.round(np.asarray(xy, dtype=np.float64), 6)
    facts["xy"] = rounded.tolist()
    facts["are_positions_reconstructed"] = not has_positions
    if isinstance(instance, CVRPInstance):
        facts["demands"] = instance.demands
        facts["capacity"] = instance.capacity
    else:
        facts["numbers"] = instance.node_numbers
    return facts


def job_shop_layout(instance: JSSPInstance) -> dict[str, Any]:
    """Return the operations of a job shop."""
    return {
        "durations": instance.durations,
        "machines": instance.machines,
        "machine_count": instance.machine_count,
    }
