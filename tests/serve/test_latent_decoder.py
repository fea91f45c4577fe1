"""Plans of single latents: late answers, dead processes and processes that hang."""

import pytest
from fake_workers import FakeWorker

from rhumbline.errors import InputError
from rhumbline.serve.latents import decoder as latent_decoder
from rhumbline.serve.latents.decoder import LatentDecoder
from rhumbline.serve.requests import Refused
from rhumbline.serve.settings import ServiceSettings


class AnsweringWorker(FakeWorker):
    """Answers every request by what a test has prepared."""

    def send(self, kind, payload) -> None:
        super().send(kind, payload)
        for answer in self.answers.pop(0):
            answer(self, payload["number"])


def right(worker, number) -> None:
    worker.say("answered", number, {"cost": number})


def dead(worker, number) -> None:
    worker.die()


@pytest.fixture
def decoder(monkeypatch, tmp_path):
    monkeypatch.setattr(latent_decoder, "WorkerProcess", AnsweringWorker)
    monkeypatch.setattr(latent_decoder.LatentDecoder, "max_seconds", 0.05)
    return LatentDecoder(ServiceSettings(data=tmp_path))


def test_a_process_that_hangs_is_replaced_and_its_late_answers_are_ignored(decoder) -> None:
    worker = decoder.worker
    worker.answers = [[], [lambda w, n: right(w, n - 1), right]]
    with pytest.raises(Refused, match="takes too long"):
        decoder.ask("plan", {}, [0.0])
    assert worker.kills == 1
    worker.die()  # what the kill leads to
    assert worker.starts == 1
    assert decoder.ask("plan", {}, [0.0]) == {"cost": 2}


def test_a_dead_process_is_replaced_and_its_request_refused(decoder) -> None:
    decoder.worker.answers = [[dead], [right]]
    with pytest.raises(InputError, match="ended with code -9"):
        decoder.ask("plan", {}, [0.0])
    assert decoder.ask("plan", {}, [0.0]) == {"cost": 2}
