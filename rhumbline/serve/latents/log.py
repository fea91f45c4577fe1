"""The latents that a search has tried, in two dimensions, and how its distributions moved."""

import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class LogTuning:
    """How much of a search is kept, and when its axes are computed."""

    max_latents: int = 5_000  # of one job; later ones replace random earlier ones
    max_steps: int = 60  # whose distributions are kept; of more, every second one is dropped
    first_axes: int = 64  # latents before the axes are computed for the first time


TUNING = LogTuning()


@dataclass(frozen=True)
class DistributionStep:
    """What the search drew its latents from in one step."""

    tried: int  # latents when the step was over
    means: Float[np.ndarray, "C Z"]
    covariances: Float[np.ndarray, "C Z Z"]


@dataclass
class LatentLog:
    """Latents of one job with their costs, projected on their first two principal axes.

    Latents are numbered from 0 as they are tried. The axes are computed again only when the number
    of latents has doubled, and keep their directions, so that a picture of them does not flip.
    """

    latents: list[list[float]] = field(default_factory=list[list[float]])
    costs: list[float] = field(default_factory=list[float])
    numbers: list[int] = field(default_factory=list[int])
    steps: list[DistributionStep] = field(default_factory=list[DistributionStep])
    tried: int = 0
    axes: Float[np.ndarray, "Z 2"] | None = None
    due: int = TUNING.first_axes
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def add(self, latents: list[list[float]], costs: list[float]) -> None:
        """Record what one step has tried."""
        for latent, cost in zip(latents, costs, strict=True):
            number = self.tried
            self.tried += 1
            if len(self.latents) < TUNING.max_latents:
                self.latents.append(latent)
                self.costs.append(cost)
                self.numbers.append(number)
                continue
            place = int(self.rng.integers(self.tried))
            if place < TUNING.max_latents:
                self.latents[place] = latent
                self.costs[place] = cost
                self.numbers[place] = number

    def add_step(self, means: list[Any], covariances: list[Any]) -> None:
        """Record the distributions of the step whose latents were added last."""
        step = DistributionStep(
            self.tried,
            np.asarray(means, dtype=np.float32),
            np.asarray(covariances, dtype=np.float32),
        )
        self.steps.append(step)
        if len(self.steps) > TUNING.max_steps:
            self.steps = self.steps[1::2]  # the latest one stays

    def latent(self, number: int) -> list[float] | None:
        """Return a latent by its number, or None if it was not kept."""
        if number not in self.numbers:
            return None
        return self.latents[self.numbers.index(number)]

    def to_json(self) -> str:
        """Return what a stored log needs: all latents, and the picture as it was at the end."""
        exact = np.asarray(self.latents)
        latents = np.round(exact, 5)
        rows = latents.tolist()
        picture = self.view()
        record = {"latents": rows, "picture": picture}
        return json.dumps(record)

    def view(self) -> dict[str, Any]:
        """Return all points, and the distributions of the search, step by step."""
        if not self.latents:
            return {"dimensions": 0, "tried": 0, "points": [], "steps": []}
        latents = np.asarray(self.latents)
        axes = self.current_axes(latents)
        projected = latents @ axes
        points = np.round(projected, 4).tolist()
        rows = zip(points, self.costs, self.numbers, strict=True)
        dots = [[x, y, cost, number] for (x, y), cost, number in rows]
        steps = [project_step(step, axes) for step in self.steps]
        return {
            "dimensions": latents.shape[1],
            "tried": self.tried,
            "points": dots,
            "steps": steps,
        }

    def current_axes(self, latents: Float[np.ndarray, "N Z"]) -> Float[np.ndarray, "Z 2"]:
        """Return the two directions in which the latents vary most."""
        size = latents.shape[1]
        if size <= 2:
            return np.eye(size, 2)
        if self.axes is None or self.tried >= self.due:
            axes = principal_axes(latents)
            if self.axes is not None:
                axes = keep_directions(axes, self.axes)
            self.axes = axes
            doubled = 2 * self.tried
            self.due = max(TUNING.first_axes, doubled)
        return self.axes


@dataclass(frozen=True)
class StoredLatents:
    """The latents of a job that has ended."""

    latents: list[list[float]]
    picture: dict[str, Any]

    @classmethod
    def from_json(cls, text: str) -> "StoredLatents":
        """Return what `LatentLog.to_json` has written."""
        facts = json.loads(text)
        return cls(**facts)

    def latent(self, number: int) -> list[float] | None:
        """Return a latent by its number, or None if it was not kept."""
        for latent, point in zip(self.latents, self.picture["points"], strict=True):
            if point[3] == number:
                return latent
        return None

    def view(self) -> dict[str, Any]:
        """Return the picture as it was when the job ended."""
        return self.picture


def principal_axes(latents: Float[np.ndarray, "N Z"]) -> Float[np.ndarray, "Z 2"]:
    """Return the first two principal axes; those of the space if there are too few latents."""
    centred = latents - latents.mean(0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    if len(directions) < 2:
        return np.eye(latents.shape[1], 2)
    return directions[:2].T


def keep_directions(
    axes: Float[np.ndarray, "Z 2"], before: Float[np.ndarray, "Z 2"]
) -> Float[np.ndarray, "Z 2"]:
    """Return axes that point to the sides to which those before them did."""
    products = axes * before
    cosines = products.sum(0)
    is_opposite = cosines < 0
    signs = np.where(is_opposite, -1.0, 1.0)
    return axes * signs


def project_step(step: DistributionStep, axes: Float[np.ndarray, "Z 2"]) -> dict[str, Any]:
    """Return the means and the one-sigma ellipses of a step in the plane of the axes."""
    means = step.means @ axes
    covariances = axes.T @ step.covariances @ axes
    centres = list[dict[str, Any]]()
    for mean, covariance in zip(means, covariances, strict=True):
        centre = ellipse_of(covariance)
        centre["mean"] = round_for_picture(mean)
        centres.append(centre)
    return {"tried": step.tried, "centres": centres}


def ellipse_of(covariance: Float[np.ndarray, "2 2"]) -> dict[str, Any]:
    """Return the radii of the one-sigma ellipse and the direction of the longer one."""
    variances, directions = np.linalg.eigh(covariance)  # the larger one comes last
    positive = np.maximum(variances, 0.0)
    radii = np.sqrt(positive)
    x, y = directions[:, 1]
    angle = math.atan2(y, x)
    return {"radii": round_for_picture(radii[::-1]), "angle": round(angle, 4)}


def round_for_picture(values: Float[np.ndarray, "N"]) -> list[float]:
    """Return numbers with as many digits as a picture needs."""
    exact = values.astype(np.float64)
    rounded = np.round(exact, 4)
    return rounded.tolist()
