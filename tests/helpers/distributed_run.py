"""What test_distributed.py runs in each process: train and evaluate a tiny model, and write down what happened.

python -m torch.distributed.run ... distributed_run.py IMAGES JSON OUT [kill]
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import detaug as da

EPOCHS = 2
RECIPE = [da.RandomHorizontalFlip(), da.Resize((16, 16)), da.Normalize()]


def train(loader: da.Loader, model: DistributedDataParallel) -> list[list[dict[str, object]]]:
    epochs = []
    for _ in range(EPOCHS):
        steps = []
        for batch in loader:
            model.zero_grad()
            (model(batch.images).mean((1, 2, 3)) * (1 + batch.image_id)).sum().backward()
            gradient = [value for each in model.parameters() for value in each.grad.flatten().tolist()]
            steps.append({"ids": batch.image_id.tolist(), "gradient": gradient})
        epochs.append(steps)
    return epochs


def main(images: str, annotations: str, out: str, kill: str = "") -> None:
    reader = da.CocoReader(images, annotations)
    evaluation = da.Loader(reader, RECIPE, 5, train=False, device="cpu")  # by RANK and WORLD_SIZE
    environment = {name: os.environ.pop(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    too_early = da.Loader(reader, RECIPE, 2, device="cpu")
    rank, world = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    distributed.init_process_group("gloo", rank=rank, world_size=world)  # as mp.spawn's functions do
    loader = da.Loader(reader, RECIPE, 2, device="cpu")
    torch.manual_seed(0)
    result = {
        "shard": loader.shard,
        "train": train(loader, DistributedDataParallel(torch.nn.Conv2d(3, 4, 3))),
        "evaluation": [batch.image_id.tolist() for batch in evaluation],
        "too early": error_of(too_early),
    }
    Path(out, f"{rank}.json").write_text(json.dumps(result))
    distributed.barrier()
    if kill:
        for step, _ in enumerate(loader):
            if step == 1 and rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            distributed.barrier()
    distributed.destroy_process_group()


def error_of(loader: da.Loader) -> str:
    try:
        next(iter(loader))
    except RuntimeError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main(*sys.argv[1:])
