"""The latents that a search has tried, in two dimensions."""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

MAX_LATENTS = 5_000  # of one job; later ones replace random earlier ones
FIRST_AXES = 64  # latents before the axes are computed for the first time


@dataclass
class LatentLog:
    """Latents of one job with their costs, projected on their first two principal axes.

    The axes are computed again only when the number of latents has doubled, and keep their
    directions, so that a picture of them does not flip.
    """

    latents: list[list[float]] = field(default_factory=list[list[float]])
    costs: list[float] = field(default_factory=list[float])
    centres: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    tried: int = 0
    axes: Float[np.ndarray, "Z 2"] | None = None
    due: int = FIRST_AXES
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def add(self, latents: list[list[float]], costs: list[float]) -> None:
        """Record what one step has tried."""
        for latent, cost in zip(latents, costs, strict=True):
            self.tried += 1
            if len(self.latents) < MAX_LATENTS:
                self.latents.append(latent)
                self.costs.append(cost)
                continue
            place = int(self.rng.integers(self.tried))
            if place < MAX_LATENTS:
                self.latents[place] = latent
                self.costs[place] = cost

    def to_json(self) -> str:
        """Return everything but the axes, which are computed again."""
        rounded = [[round(x, 5) for x in latent] for latent in self.latents]
        record = {
            "latents": rounded,
            "costs": self.costs,
            "centres": self.centres,
            "tried": self.tried,
        }
        return json.dumps(record)

    @classmethod
    def from_json(cls, text: str) -> "LatentLog":
        """Return a stored log."""
        return cls(**json.loads(text))

    def view(self) -> dict[str, Any]:
        """Return all points, and the distributions that the search draws from."""
        if not self.latents:
            return {"dimensions": 0, "tried": 0, "points": [], "centres": [], "extent": 1.0}
        latents = np.asarray(self.latents)
        axes = self.current_axes(latents)
        points = latents @ axes
        rows = np.column_stack([points, np.asarray(self.costs)])
        return {
            "dimensions": latents.shape[1],
            "tried": self.tried,
            "points": np.round(rows, 4).tolist(),
            "centres": [projected_ellipse(centre, axes) for centre in self.centres],
            "extent": float(np.abs(points).max()),
        }

    def current_axes(self, latents: Float[np.ndarray, "N Z"]) -> Float[np.ndarray, "Z 2"]:
        """Return the two directions in which the latents vary most."""
        size = latents.shape[1]
        if size <= 2:
            return np.eye(size, 2)
        if self.axes is None or self.tried >= self.due:
            _, _, directions = np.linalg.svd(latents - latents.mean(0), full_matrices=False)
            axes = directions[:2].T
            if axes.shape[1] < 2:
                axes = np.eye(size, 2)
            if self.axes is not None:
                signs = np.sign((axes * self.axes).sum(0))
                axes = axes * np.where(signs == 0, 1.0, signs)
            self.axes = axes
            self.due = max(FIRST_AXES, 2 * self.tried)
        return self.axes


def projected_ellipse(centre: dict[str, Any], axes: Float[np.ndarray, "Z 2"]) -> dict[str, Any]:
    """Return the mean and the one-sigma ellipse of a distribution in the plane of the axes."""
    mean = np.asarray(centre["mean"]) @ axes
    covariance = axes.T @ np.asarray(centre["covariance"]) @ axes
    variances, directions = np.linalg.eigh(covariance)
    radii = np.sqrt(np.maximum(variances, 0.0))
    angle = float(np.arctan2(directions[1, 1], directions[0, 1]))
    return {
        "mean": np.round(mean, 4).tolist(),
        "radii": np.round(radii[::-1], 4).tolist(),
        "angle": round(angle, 4),
    }
