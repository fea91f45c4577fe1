"""Training updates per second of several objectives, without validation and checkpoints.

    python benchmarks/micro/train_step.py                    # all of them
    python benchmarks/micro/train_step.py --only POMO --profile
    python benchmarks/micro/train_step.py --attention torch  # instead of our kernel of the encoder

Most objectives train random weights. Those that leave out near-deterministic decisions need a
policy that makes such decisions, and begin with a shipped one.
"""

import time
from dataclasses import replace
from functools import partial

import torch
from harness import Case, Harness, make_parser

from rhumbline.training.config import Objective, TrainConfig
from rhumbline.training.trainer import Trainer

WARM_UP_UPDATES = 10

recorded = partial(TrainConfig, graph=True, compile=True)
COMPASS = Objective(latents=128, starts=20)
POMO = Objective(starts=50)
PREFER = Objective(loss="prefer", starts=64)
CERTAIN = replace(PREFER, certain=0.98)
SINGLE = {"latent": 0}
STEPS = {
    "TSP100 COMPASS 8 x 128 x 20": recorded(batch=8, objective=COMPASS),
    "TSP100 POMO 256 x 50": recorded(batch=256, objective=POMO, policy=SINGLE),
    "TSP100 POMO 256 x 50, trained, certain 0.98": recorded(
        batch=256, objective=replace(POMO, certain=0.98), init="tsp100-single", policy=SINGLE
    ),
    "TSP100 prefer 256 x 64": recorded(
        batch=256, objective=PREFER, init="tsp100-single", policy=SINGLE
    ),
    "TSP100 prefer 256 x 64, certain 0.98": recorded(
        batch=256, objective=CERTAIN, init="tsp100-single", policy=SINGLE
    ),
    "TSP100 prefer, 256 x 16 latents x 4 x 4, certain 0.98": recorded(
        batch=256,
        objective=replace(CERTAIN, latents=16, starts=4, samples=4),
        init="tsp100",
        policy={"amplify": 10.0},
    ),
    "CVRP100 prefer 256 x 64, certain 0.98": recorded(
        problem="cvrp", batch=256, objective=CERTAIN, init="cvrp100-single", policy=SINGLE
    ),
    "CVRP100 COMPASS 8 x 128 x 20": recorded(problem="cvrp", batch=8, objective=COMPASS),
    "CVRP100 COMPASS 8 x 128 x 20, 136 actions": recorded(
        problem="cvrp", batch=8, objective=replace(COMPASS, longest=136)
    ),
    "CVRP100 POMO 256 x 50, 136 actions": recorded(
        problem="cvrp", batch=256, objective=replace(POMO, longest=136), policy=SINGLE
    ),
    "TSP100 imitate 512 x 64, 4 improved": TrainConfig(
        batch=512,
        policy=SINGLE,
        objective=Objective(loss="imitate", starts=64, temperature=0.4, top=4, improve=10),
    ),
}


def measure(harness: Harness, name: str, config: TrainConfig, updates: int) -> Trainer:
    """Time updates and report them with the peak of memory."""
    trainer = Trainer(config, harness.device)
    for _ in range(min(WARM_UP_UPDATES, updates)):
        trainer.step(0.0)
    harness.wait()
    if harness.on_gpu:
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    for _ in range(updates):
        trainer.step(0.0)
    harness.wait()
    spent = time.perf_counter() - began
    peak = f"   peak {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB" if harness.on_gpu else ""
    case = Case(
        "train_step", name, config.engine, 1e3 * spent / updates, updates / spent, "updates"
    )
    harness.report(case, peak)
    return trainer


def main() -> None:
    """Measure what the command line says."""
    parser = make_parser(__doc__)
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--only", default="", help="objectives whose name has this in it")
    parser.add_argument(
        "--batch", type=int, default=None, help="instances of an update, instead of the objective's"
    )
    parser.add_argument(
        "--attention", default="auto", choices=["auto", "torch"], help="of the encoder"
    )
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--rows", type=int, default=14, help="of a profile")
    given = parser.parse_args()
    harness = Harness("train_step", given)
    for name, config in STEPS.items():
        if given.only not in name:
            continue
        if given.batch:
            config = replace(config, batch=given.batch)
        trainer = measure(harness, name, replace(config, attention=given.attention), given.updates)
        if given.profile:
            harness.profile(lambda trainer=trainer: trainer.step(0.0), given.rows)


if __name__ == "__main__":
    main()
