"""Training steps per second on this machine's device.

    python benchmarks/train_step.py                 # the published COMPASS step, the POMO step, and others
    python benchmarks/train_step.py --profile       # where the time goes
    python benchmarks/train_step.py --attention torch   # the encoder's by torch instead of our kernel

Updates are timed after a warm-up, without validation or checkpoints.
"""

import argparse
import time
from dataclasses import replace
from functools import partial

import torch

from rhumbline.training.config import Objective, TrainConfig
from rhumbline.training.trainer import Trainer

recorded = partial(TrainConfig, graph=True, compile=True)
COMPASS, POMO = Objective(latents=128, starts=20), Objective(starts=50)
PREFER = Objective(loss="prefer", starts=64)
# Random weights do as well for most of them; where decisions that are all but certain are left out,
# it needs a policy that makes such decisions.
STEPS = {
    "TSP100 COMPASS 8 x 128 x 20": recorded(batch=8, objective=COMPASS),
    "TSP100 POMO 256 x 50": recorded(batch=256, objective=POMO, policy={"latent": 0}),
    "TSP100 POMO 256 x 50, trained, certain 0.98": recorded(
        batch=256, objective=replace(POMO, certain=0.98), init="tsp100-single", policy={"latent": 0}
    ),
    "TSP100 prefer 256 x 64": recorded(
        batch=256, objective=PREFER, init="tsp100-single", policy={"latent": 0}
    ),
    "TSP100 prefer 256 x 64, certain 0.98": recorded(
        batch=256,
        objective=replace(PREFER, certain=0.98),
        init="tsp100-single",
        policy={"latent": 0},
    ),
    "TSP100 prefer, 256 x 16 latents x 4 x 4, certain 0.98": recorded(
        batch=256,
        objective=replace(PREFER, latents=16, starts=4, samples=4, certain=0.98),
        init="tsp100",
        policy={"amplify": 10.0},
    ),
    "CVRP100 prefer 256 x 64, certain 0.98": recorded(
        problem="cvrp",
        batch=256,
        objective=replace(PREFER, certain=0.98),
        init="cvrp100-single",
        policy={"latent": 0},
    ),
    "CVRP100 COMPASS 8 x 128 x 20": recorded(problem="cvrp", batch=8, objective=COMPASS),
    "CVRP100 COMPASS 8 x 128 x 20, 136 actions": recorded(
        problem="cvrp", batch=8, objective=replace(COMPASS, longest=136)
    ),
    "CVRP100 POMO 256 x 50, 136 actions": recorded(
        problem="cvrp", batch=256, objective=replace(POMO, longest=136), policy={"latent": 0}
    ),
    "TSP100 imitate 512 x 64, 4 improved": TrainConfig(
        batch=512,
        policy={"latent": 0},
        objective=Objective(loss="imitate", starts=64, temperature=0.4, top=4, improve=10),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--rows", type=int, default=14, help="of a profile")
    parser.add_argument("--only", default="")
    parser.add_argument(
        "--attention",
        default="auto",
        choices=["auto", "torch"],
        help="the encoder's: ours or torch's",
    )
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for name, config in STEPS.items():
        if args.only not in name:
            continue
        trainer = Trainer(replace(config, attention=args.attention), device)
        for _ in range(10):
            trainer.step(0.0)
        if device.type == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        for _ in range(args.updates):
            trainer.step(0.0)
        if device.type == "cuda":
            torch.cuda.synchronize()
        pace = args.updates / (time.perf_counter() - begin)
        peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else float("nan")
        print(f"{name:54s} {pace:7.1f} updates/s   peak {peak:.2f} GiB", flush=True)
        if args.profile:
            profile(trainer, args.rows)


def profile(trainer: Trainer, rows: int) -> None:
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as seen:
        for _ in range(5):
            trainer.step(0.0)
        torch.cuda.synchronize()
    print(
        seen.key_averages().table(
            sort_by="self_device_time_total", row_limit=rows, max_name_column_width=60
        )
    )


if __name__ == "__main__":
    main()
