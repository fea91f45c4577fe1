"""What runs next, with what, and what becomes of jobs whose worker fails."""

import pytest
from fake_workers import plan, square

from rhumbline.errors import InputError
from rhumbline.serve import service as service_module
from rhumbline.serve.jobs import Job, JobState
from rhumbline.serve.requests import Refused


def states(jobs) -> list[str]:
    return [str(job.state) for job in jobs]


def test_jobs_of_equal_size_and_options_are_solved_together(make_service) -> None:
    service = make_service(workers=1)
    alike = [service.submit("me", square()) for _ in range(3)]
    other = service.submit("me", square(seconds=2))
    larger = service.submit(
        "me", {"coordinates": [[0, 0], [0, 1], [2, 1], [1, 1], [1, 0]], "seconds": 1}
    )
    worker = service.workers[0]
    worker.get_ready()
    assert worker.batch == alike
    assert states([other, larger]) == ["queued", "queued"]
    worker.solve_all()
    assert states(alike) == ["done"] * 3
    assert [service.find("me", job.id).view()["batch"] for job in alike] == [3] * 3
    assert worker.batch == [other]


def test_a_short_job_passes_long_ones(make_service) -> None:
    service = make_service(workers=2)
    for worker in service.workers:
        worker.get_ready()
    long_jobs = [service.submit("me", square(seconds=100 + n)) for n in range(3)]
    assert states(long_jobs) == ["running", "queued", "queued"]
    short = service.submit("me", square(seconds=1))
    assert short.state is JobState.RUNNING


def test_a_batch_is_no_larger_than_allowed(make_service) -> None:
    service = make_service(workers=1, max_batch=2)
    jobs = [service.submit("me", square()) for _ in range(3)]
    service.workers[0].get_ready()
    assert service.workers[0].batch == jobs[:2]


def test_the_best_plan_is_kept_as_it_improves_and_never_gets_worse(make_service) -> None:
    service = make_service(workers=1)
    job = service.submit("me", square())
    worker = service.workers[0]
    worker.get_ready()
    for cost, expected in ((9, 9), (12, 9), (7, 7)):
        worker.say("improved", 0, plan(cost))
        assert service.find("me", job.id).best["cost"] == expected
    worker.say("finished", 0, plan(8) | {"interrupted": False})
    assert service.find("me", job.id).best["cost"] == 7


def test_a_poisonous_job_fails_alone(make_service) -> None:
    service = make_service(workers=1)
    jobs = [service.submit("me", square()) for _ in range(3)]
    worker = service.workers[0]
    worker.get_ready()
    assert worker.batch == jobs
    worker.die()  # with all three: each is tried alone
    assert states(jobs) == ["queued"] * 3
    worker.get_ready()
    for job in jobs:
        assert worker.batch == [job]
        if job is jobs[1]:
            worker.die()
            worker.get_ready()
        else:
            worker.solve_all()
    found = [service.find("me", job.id) for job in jobs]
    assert states(found) == ["done", "failed", "done"]
    assert "ended with code -9" in found[1].error


def test_a_job_with_a_plan_is_interrupted_and_keeps_it_when_its_worker_dies(make_service) -> None:
    service = make_service(workers=1)
    job = service.submit("me", square())
    worker = service.workers[0]
    worker.get_ready()
    worker.say("improved", 0, plan(9))
    worker.die()
    found = service.find("me", job.id)
    assert found.state is JobState.INTERRUPTED
    assert found.best["cost"] == 9


def test_cancelling_stops_the_worker_only_when_its_whole_batch_is_cancelled(make_service) -> None:
    service = make_service(workers=1)
    jobs = [service.submit("me", square()) for _ in range(2)]
    worker = service.workers[0]
    worker.get_ready()
    worker.say("improved", 0, plan(9))
    service.cancel(jobs[0])
    assert (jobs[0].state, worker.stops) == (JobState.INTERRUPTED, 0)
    service.cancel(jobs[1])
    assert worker.stops == 1
    worker.say("finished", 0, plan(3) | {"interrupted": True})  # too late: the answer was given
    assert service.find("me", jobs[0].id).best["cost"] == 9


def test_a_restarted_service_has_all_results_and_goes_on_from_the_best_plans(make_service) -> None:
    first = make_service(workers=1)
    done, running, waiting = (first.submit("me", square(seed=seed)) for seed in range(3))
    worker = first.workers[0]
    worker.get_ready()
    worker.solve_all(cost=4)
    worker.say("improved", 0, plan(9))
    first.store.lock_file.close()  # all that `kill -9` leaves to the system: nothing is written
    second = make_service(workers=1)
    assert second.find("me", done.id).best["cost"] == 4
    assert states([second.find("me", job.id) for job in (done, running, waiting)]) == [
        *("done", "queued", "queued")
    ]
    worker = second.workers[0]
    worker.get_ready()
    [(_, [payload])] = worker.received
    assert payload["start"] == plan(9)["plan"]
    worker.solve_all(cost=12)
    assert second.find("me", running.id).best["cost"] == 9


@pytest.mark.parametrize(
    ("seconds", "cpu_seconds", "is_killed"),
    [
        (62.0, 62.0, False),
        (64.0, 64.0, True),  # more than 1.5 times the 2 seconds of the job and a minute
        (600.0, 1.0, False),  # the machine is overloaded
        (604.0, 1.0, True),
    ],
)
def test_a_worker_that_never_ends_is_killed(
    make_service, monkeypatch, seconds, cpu_seconds, is_killed
) -> None:
    monkeypatch.setattr(service_module, "threads_per_worker", lambda workers: 1)
    service = make_service(workers=1)
    service.submit("me", square(seconds=2))
    worker = service.workers[0]
    worker.cpu = 5.0
    worker.get_ready()
    worker.begun = 100.0
    worker.cpu += cpu_seconds
    monkeypatch.setattr("rhumbline.serve.service.time.monotonic", lambda: 100.0 + seconds)
    service.kill_stuck_workers()
    assert worker.kills == is_killed


def test_an_idempotency_key_gives_the_same_job(make_service) -> None:
    service = make_service(workers=1)
    first = service.submit("me", square(), "key")
    assert service.submit("me", square(), "key").id == first.id
    assert service.submit("you", square(), "key").id != first.id
    with pytest.raises(Refused, match="another body") as refused:
        service.submit("me", square(seed=7), "key")
    assert refused.value.status == 409


def test_full_queues_are_refused(make_service) -> None:
    service = make_service(workers=1, max_queued=3, max_queued_per_client=2)
    service.submit("me", square())
    service.submit("me", square())
    with pytest.raises(Refused, match="2 at a time"):
        service.submit("me", square())
    service.submit("you", square())
    with pytest.raises(Refused, match="try again later"):
        service.submit("them", square())


def test_jobs_that_would_fill_the_memory_are_refused(make_service) -> None:
    service = make_service(workers=1, max_queued_bytes=100)
    service.submit("me", square())
    with pytest.raises(Refused, match="too much memory"):
        service.submit("you", square())


def test_the_same_request_twice_at_once_gives_one_job(make_service, monkeypatch) -> None:
    service = make_service(workers=1)
    find = service.store.find_by_key
    first: list[Job] = []

    def find_late(client, key):
        """Let another request with the same key come in after the first look."""
        monkeypatch.setattr(service.store, "find_by_key", find)
        first.append(service.submit("me", square(), "key"))

    monkeypatch.setattr(service.store, "find_by_key", find_late)
    assert service.submit("me", square(), "key").id == first[0].id
    assert len(service.jobs) == 1


def test_clients_do_not_see_the_jobs_of_others(make_service) -> None:
    service = make_service(workers=1)
    job = service.submit("me", square())
    assert service.find("you", job.id) is None
    assert service.latest("you", 10) == []
    assert [one.id for one in service.latest("me", 10)] == [job.id]


def test_old_jobs_are_deleted(make_service) -> None:
    service = make_service(workers=1, keep_seconds=-1.0)
    done, waiting = service.submit("me", square()), service.submit("me", square(seed=1))
    service.workers[0].get_ready()
    service.workers[0].solve_all()
    assert service.delete_old() == 1
    assert service.find("me", done.id) is None
    assert service.find("me", waiting.id) is not None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([1], "no JSON object"),
        ({}, "has no instance"),
        (square(seconds=0), "seconds is 0, expected a number above 0, 600 at most"),
        (square(seconds=1e9), "600 at most"),
        (square(seconds="x" * 10_000), "expected a number"),
        (square(seconds=True), "expected a number"),
        (square(attempts=1.5), "expected a whole number from 1"),
        (square(search="cmaess"), r"did you mean 'cmaes'\?"),
        (square(then="/etc/passwd"), "not known"),
        (square(seed=-1), "expected a whole number from 0"),
        (square(latents=1), "expected true or false"),
        ({"name": "x.tsp"}, "mapping|fields|key"),
        ({"name": "x.tsp", "text": "nothing", "depot": 3}, "no other fields"),
        ({"name": 3, "text": "nothing"}, "are strings"),
        ({"name": "../../etc/x.tsp", "text": "nonsense"}, "^x.tsp"),
        ({"coordinates": [[0, 0]] * 2000}, "2,?000|1,?000"),
    ],
)
def test_requests_that_cannot_be_solved_are_refused(make_service, body, message) -> None:
    service = make_service(workers=1)
    with pytest.raises(InputError, match=message) as refused:
        service.submit("me", body)
    assert len(str(refused.value)) < 500
    assert not service.jobs


def test_a_file_is_read_by_its_content_and_named_by_the_client(make_service) -> None:
    service = make_service(workers=1)
    rows = "".join(f"{n} {n} {n * n}\n" for n in range(1, 6))
    text = f"TYPE: TSP\nDIMENSION: 5\nEDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION\n{rows}EOF\n"
    job = service.submit("me", {"name": "my cities.tsp", "text": text})
    assert (job.name, job.problem, job.size) == ("my cities", "tsp", 5)
