"""Settings for training tests."""

from collections.abc import Callable

import pytest
from small import small_config

from rhumbline.training.config import TrainConfig


@pytest.fixture
def make_config() -> Callable[..., TrainConfig]:
    return small_config
