"""Draw docs/start/concept.svg: one instance under three latents, the latent space, the best plan.

    python -m tools.docs.concept_figure

Every plan and every dot is a real one: `examples/bakery80.vrp` under the policy `cvrp100`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure

import rhumbline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TARGET = Path(__file__).resolve().parents[2] / "docs" / "start" / "concept.svg"
INK = "#22303c"
COLOURS = ("#1f5fa8", "#c1571b", "#4a7f2c")
PLANS = 3  # of different latents


def search_instance() -> tuple[Any, list[Any]]:
    """Return the task, and the progress of a short search in its latent space."""
    task = rhumbline.prepare("examples/bakery80.vrp", policy="cvrp100", seed=1)
    strategy = rhumbline.CMAES(components=1, starts=1.0, temperature=0.0)
    return task, list(rhumbline.stream(strategy, task, rhumbline.Budget(attempts=800)))


def plan_under(task: Any, latent: torch.Tensor) -> tuple[Any, float]:
    """Return the cheapest greedy plan under a latent, and its cost."""
    rolled = rhumbline.rollout(
        task.problem,
        task.policy,
        task.batch,
        latent[None, None],
        task.starts,
        seed=0,
        temperature=0.0,
    )
    best = int(rolled.cost[0, 0].argmin())
    actions = rolled.actions[0, 0, best].tolist()
    plan = task.problem.decode(task.instances[0], actions)
    return plan, plan.cost(task.instances[0])


def draw_routes(axes: "Axes", instance: Any, plan: Any, colour: str, title: str) -> None:
    """Draw routes as thin lines through the customers."""
    for route in plan.routes:
        walk = instance.xy[[0, *route, 0]]
        axes.plot(*walk.T, color=colour, linewidth=0.8)
    axes.plot(*instance.xy[:1].T, marker="s", color=INK, markersize=4)
    axes.set_title(title, fontsize=8, color=INK)
    axes.set(xticks=[], yticks=[], aspect="equal")


def draw_space(axes: "Axes", steps: list[Any], chosen: torch.Tensor) -> None:
    """Draw all latents of the search in two dimensions, coloured by cost, and those chosen."""
    latents = torch.cat([step.latents[0] for step in steps])
    costs = torch.cat([step.latent_costs[0] for step in steps])
    centre = latents.mean(0)
    _, _, directions = torch.linalg.svd(latents - centre, full_matrices=False)
    plane = directions[:2].T
    order = costs.argsort(descending=True)
    x, y = ((latents - centre) @ plane)[order].T
    rank = torch.arange(len(order), 0, -1)  # by rank, because most costs are close to the best
    axes.scatter(x, y, c=rank, s=7, cmap="viridis_r", linewidths=0)
    means = torch.cat([step.distributions.means[0] for step in steps])
    axes.plot(*((means - centre) @ plane).T, color=INK, linewidth=1.2, label="mean of CMA-ES")
    for colour, latent in zip(COLOURS, chosen, strict=True):
        place = (latent - centre) @ plane
        axes.plot(*place, marker="o", markersize=7, markerfacecolor="none", markeredgecolor=colour)
    axes.set(xticks=[], yticks=[])
    axes.set_title("2. CMA-ES searches the latent space", fontsize=9, color=INK)
    axes.set_xlabel("yellow: cheap plans, violet: costly ones", fontsize=8, color=INK)
    axes.legend(frameon=False, fontsize=7, loc="upper right")


def choose_latents(steps: list[Any]) -> torch.Tensor:
    """Return latents from the worst to the best of the first generation and the whole search."""
    latents = torch.cat([step.latents[0] for step in steps])
    costs = torch.cat([step.latent_costs[0] for step in steps])
    first = costs[: steps[0].latents.shape[1]]
    return latents[[int(first.argmax()), int(first.argmin()), int(costs.argmin())]]


def draw_figure() -> Figure:
    """Draw the three panels."""
    task, steps = search_instance()
    instance = task.instances[0]
    chosen = choose_latents(steps)
    figure = Figure(figsize=(9.6, 3.7), facecolor="white")
    grid = figure.add_gridspec(PLANS, 3, width_ratios=(1.0, 2.6, 2.6), wspace=0.12, hspace=0.35)
    for row, latent in enumerate(chosen):
        plan, cost = plan_under(task, latent)
        axes = figure.add_subplot(grid[row, 0])
        draw_routes(axes, instance, plan, COLOURS[row], f"latent {row + 1}: {cost:,.0f}")
    figure.text(0.125, 0.965, "1. One network, many policies", fontsize=9, color=INK)
    draw_space(figure.add_subplot(grid[:, 1]), steps, chosen)
    options = {"attempts": 160, "threads": 1, "policy": "cvrp100", "then": None}
    best = rhumbline.solve(instance, **options)[0]
    axes = figure.add_subplot(grid[:, 2])
    title = f"3. Refined and verified: {best.cost:,.0f}"
    draw_routes(axes, instance, best.plan, INK, title)
    axes.title.set_fontsize(9)
    return figure


def main() -> None:
    """Draw the figure and write it."""
    matplotlib.rcParams["svg.hashsalt"] = "concept"  # equal figures give equal files
    np.seterr(all="raise", under="ignore")
    draw_figure().savefig(TARGET, metadata={"Date": None}, bbox_inches="tight")


if __name__ == "__main__":
    main()
