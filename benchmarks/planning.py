"""Measure the cost of planning a recipe, NumPy on one core, in microseconds of CPU an image.

    python benchmarks/planning.py [--preset ssd300] [--at-once 2048] [--batch-size 32] [--shards 1]

Boxes are drawn like VOC's (2.4 an image, large) and like COCO's (7.3, small).
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

import detaug as da
from detaug.boxes.views import Views, whole_images
from detaug.loading.draws import DrawsAt, PositionDraws
from detaug.loading.planner import BLOCK_IMAGES
from detaug.recipes.recipe import make_recipe


def views(n: int, objects: float, typical: float, seed: int) -> Views:
    """Draw n images with about `objects` boxes each, whose sides are about `typical` of the image's."""
    rng = np.random.default_rng(seed)
    count = rng.geometric(1 / objects, n).clip(max=40)
    real = np.arange(count.max()) < count[:, None]
    shape = np.exp(rng.normal(0, 0.35, (*real.shape, 2)))
    sides = (np.exp(rng.normal(np.log(typical), 0.75, real.shape))[..., None] * shape).clip(0.01, 1)
    start = rng.random(sides.shape) * (1 - sides)
    boxes = np.where(real[..., None], np.concatenate([start, start + sides], 2), 0)
    sizes = np.array([[375, 500], [500, 375], [333, 500]], np.float64)[rng.integers(0, 3, n)]
    return whole_images(boxes, np.where(real, 1, -1), sizes)


def draws_of(draws: PositionDraws, at: int, options: argparse.Namespace) -> DrawsAt:
    """Return the draws of the planning call number `at` of the middle shard."""
    step, slot = np.divmod(np.arange(options.at_once), options.batch_size)
    first_step = at * options.at_once // options.batch_size
    return draws.at(0, 1 << 20, first_step + step, options.shards // 2 * options.batch_size + slot)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="ssd300")
    parser.add_argument("--at-once", type=int, default=BLOCK_IMAGES)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    recipe = make_recipe(getattr(da.presets, options.preset)())
    for name, objects, typical in (("VOC", 2.4, 0.38), ("COCO", 7.3, 0.17)):
        groups, times = [views(options.at_once, objects, typical, seed) for seed in range(8)], []
        draws = PositionDraws(0, options.batch_size * options.shards)
        for at in range(options.rounds):
            start = time.process_time()
            recipe.plan(groups[at % 8], draws_of(draws, at, options))
            times.append(time.process_time() - start)
        median, best = (1e6 * each / options.at_once for each in (statistics.median(times), min(times)))
        what = f"{options.preset}, {name}-like boxes, {options.at_once} at once"
        print(f"{what}: {median:.1f} us an image, best {best:.1f}")


if __name__ == "__main__":
    main()
