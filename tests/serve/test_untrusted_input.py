"""Nothing in a request makes the server read a file or load a pickle."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rhumbline.errors import InputError

FIELDS = (
    *("coordinates", "distances", "depot", "customers", "demands", "capacity", "durations"),
    *("machines", "name", "text", "seconds", "attempts", "search", "then", "seed", "top"),
    *("latents", "vehicles", "policy", "path", "file", "warm_start", "best_known", "metric"),
)
EVENTS = ("open", "os.listdir", "os.scandir", "pickle.find_class", "subprocess.Popen", "exec")
heard: list[str] | None = None


def hear(event: str, words: tuple[Any, ...]) -> None:
    """Note what the interpreter is asked to do; a hook cannot be taken back."""
    if heard is not None and event in EVENTS:
        heard.append(f"{event} {words[:1]}")


sys.addaudithook(hear)


@contextmanager
def listening() -> Iterator[list[str]]:
    """Collect the events of a block."""
    global heard
    heard = []
    try:
        yield heard
    finally:
        heard = None


def bodies(secret: Path) -> Iterator[dict[str, Any]]:
    """Yield jobs that name a file wherever a value may stand."""
    points = [[0, 0], [0, 1], [1, 1], [1, 0]]
    for field in FIELDS:
        for value in (str(secret), f"file://{secret}", {"path": str(secret)}, [str(secret)]):
            yield {field: value}
            yield {"coordinates": points} | {field: value}
            yield {"name": str(secret), "text": f"{field}: {value}"}
    yield {"name": str(secret), "text": ""}
    yield {"name": f"../../../..{secret}", "text": str(secret)}


def test_no_value_of_a_request_is_read_as_a_path(make_service, tmp_path) -> None:
    secret = tmp_path / "secret.tsp"
    secret.write_text("TYPE: TSP\nDIMENSION: hidden\n")
    service = make_service(workers=1)
    accepted = 0
    messages = []
    with listening() as events:
        for body in bodies(secret):
            try:
                service.submit("me", body)
                accepted += 1
            except InputError as error:
                messages.append(str(error))
    assert accepted > 0  # a name alone does no harm
    assert [message for message in messages if "hidden" in message] == []
    assert [event for event in events if "secret" in event] == []
    assert [event for event in events if event.startswith(("pickle", "subprocess"))] == []


def test_the_check_hears_files_that_are_read(tmp_path) -> None:
    path = tmp_path / "secret.tsp"
    path.write_text("x")
    with listening() as events:
        path.read_text()
    assert any("secret" in event for event in events)


@pytest.mark.parametrize("name", ["a.npz", "a.pkl", "a.safetensors", "a.npy", "a.tour", "a.zip"])
def test_files_of_other_kinds_are_refused_as_text(make_service, name) -> None:
    service = make_service(workers=1)
    with listening() as events, pytest.raises(InputError):
        service.submit("me", {"name": name, "text": "\x80\x04\x95.", "seconds": 1})
    assert not [event for event in events if event.startswith("pickle")]
