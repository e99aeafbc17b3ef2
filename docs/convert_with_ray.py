"""Convert a dataset to one COCO JSON file with the tasks of Ray, on disks that all of its machines share.

python convert_with_ray.py photos train.json --parts 64
"""

from __future__ import annotations

import argparse
from pathlib import Path

import ray

from detaug.converters import convert_to_coco, merge_coco


@ray.remote
def convert_part(path: str, output: str, part: tuple[int, int]) -> str:
    convert_to_coco(path, output, part=part)
    return output


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("output")
    parser.add_argument("--parts", type=int, default=8)
    options = parser.parse_args()
    output = Path(options.output).absolute()
    names = [str(output.with_name(f"{output.stem}-part-{number}.json")) for number in range(1, options.parts + 1)]
    path = str(Path(options.path).absolute())
    parts = [convert_part.remote(path, name, (number, options.parts)) for number, name in enumerate(names, 1)]
    print(merge_coco(ray.get(parts), output))
    for name in names:
        Path(name).unlink()


if __name__ == "__main__":
    main()
