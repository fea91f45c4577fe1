"""A service whose workers are played by the test."""

from pathlib import Path
from typing import Any

import pytest
from fake_workers import FakeWorker

from rhumbline.serve import service as service_module
from rhumbline.serve.service import Service
from rhumbline.serve.settings import ServiceSettings


@pytest.fixture
def make_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that starts a service on one folder."""
    monkeypatch.setattr(service_module, "WorkerProcess", FakeWorker)
    services = []

    def make(**settings: Any) -> Service:
        service = Service(ServiceSettings(data=tmp_path / "jobs", **settings))
        services.append(service)
        return service

    yield make
    for service in services:
        service.close()
