"""Settings change the loader's speed and nothing that it yields: pipelines, threads, batches in flight."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np
import torch

from detaug.arguments import check, is_number, is_whole
from detaug.errors import InputError
from detaug.files.atomic import write_json
from detaug.loading.memory_sizes import MemorySize, bytes_of, free_bytes
from detaug.loading.plans import Grouping
from detaug.loading.view_recipes import ViewRecipe
from detaug.machine.cores import available_cores
from detaug.ops.mixing import GROUP
from detaug.pipelines.jpeg_engine import has_jpeg_engine
from detaug.recipes.kernel_chain import KernelChain
from detaug.recipes.recipe import Recipe, draws_from
from detaug.sources.source import Source
from detaug.video.reader import VideoReader


@dataclass(frozen=True)
class Settings:
    """The settings that `detaug tune` varies."""

    pipelines: int
    """DALI pipelines, which get groups of batches in rotation."""
    threads: int
    """CPU threads of each pipeline."""
    depth: int = 2
    """Groups that each pipeline processes at once: with one, it would stand still while its output is collected."""
    batches_per_group: int = 1
    """Batches that a pipeline processes as one, where it can: small batches share the fixed costs."""
    hw_decoder_load: float = 1.0
    """The fraction of a batch's JPEGs that the GPU's JPEG engine decodes; the GPU's other cores decode the rest."""
    parts_per_batch: int = 1
    """Parts in which a batch is decoded and rendered, one after the other, if its images are too large for memory. Of
    no effect with several batches in a group."""

    def __post_init__(self) -> None:
        for name in ("pipelines", "threads", "depth", "batches_per_group", "parts_per_batch"):
            value = getattr(self, name)
            check(name, value, is_whole(value) and value >= 1, "a whole number of at least 1")
        share = is_number(self.hw_decoder_load) and 0 <= self.hw_decoder_load <= 1
        check("hw_decoder_load", self.hw_decoder_load, share, "a fraction in 0..1")


GROUP_IMAGES_ON_GPU = 256
"""Images of 300 x 300 in a group: its batches share the fixed cost of Python. A larger image counts for up to 2."""
GROUP_IMAGES_ON_CPU = 128
"""The same on the CPU, where threads wait for each other at the end of a group. A larger image counts for up to 3."""
DECODED_ON_CPU = 600_000_000
"""Bytes of decoded source images in flight on the CPU, 3 for each pixel; more only if an image for each thread has
more. Images of 12 megapixels take 36 MB each."""
DECODED_ON_GPU = 0.1
"""The same on a GPU, as a fraction of the memory that is free when the loader is made."""
HELD_BY_DECODER = 2.5, 23
"""Images that a GPU's decoder needs room for beside its output, for each image of a job, and at most. Measured on an
H200 with JPEGs of 12 and 48 megapixels and jobs of 1 to 32 images."""
IMAGES_IN_FLIGHT = 768
"""Images of 300 x 300 that a GPU gets at once in batches that cannot be grouped; with fewer it waits for Python. A
larger image counts for up to 2."""
PIXELS_IN_FLIGHT = 350_000_000
"""Output pixels in flight at most, 4.2 GB as float32; more only if two batches for each pipeline have more."""


def settings_for(
    reader: Source,
    views: Sequence[ViewRecipe],
    device: torch.device,
    batch_size: int,
    file: str | os.PathLike[str] | None = None,
    *,
    pipelines: int | None = None,
    threads: int | None = None,
    memory: MemorySize | None = None,
) -> Settings:
    """Return `choose_settings` for these images after these recipes. Raises InputError for more memory than is free."""
    recipes = [view.recipe for view in views]
    limit, mixing = _limit(reader, device, file, memory), any(recipe.mixing_op for recipe in recipes)
    settings = choose_settings(
        device,
        batch_size,
        sum(pixels_in_flight(reader, recipe, kernels) for _, recipe, kernels in views),
        file,
        source_pixels=large_source(reader),
        can_group=all(can_group(recipe, kernels) for _, recipe, kernels in views),
        decodes_on_host=not reader.pixel_format.is_rgb8,
        pipelines=pipelines,
        threads=threads,
        memory=limit,
        together=GROUP if mixing else 1,
    )
    needed = 0 if memory is None else decoded_bytes(reader, settings, recipes, batch_size, device)
    if limit is not None and needed > limit:
        together = f", and ops that mix images keep {GROUP} together" if mixing else ""
        warnings.warn(
            f"decoded images take {needed / 1e9:.2g} GB, more than memory={memory!r} allows: one takes "
            f"{3 * large_source(reader) / 1e9:.2g} GB{together}",
            stacklevel=5,
        )
    return settings


def _limit(
    reader: Source, device: torch.device, file: str | os.PathLike[str] | None, memory: MemorySize | None
) -> int | None:
    """Return the bytes for decoded images, None for no other than the default of `choose_settings`."""
    if device.type == "cuda" and isinstance(reader, VideoReader) and reader.nvdec:
        return None  # NVDEC has memory of its own
    if memory is not None:
        return bytes_of("memory", memory, device)
    return int(DECODED_ON_GPU * free_bytes(device)) if device.type == "cuda" and file is None else None


def can_group(recipe: Recipe, kernels: KernelChain | None) -> bool:
    """Return whether a pipeline can process batches as one: their images have one size, or are resized after it."""
    return recipe.one_size or kernels is not None


def pixels_in_flight(reader: Source, recipe: Recipe, kernels: KernelChain | None) -> int:
    """Estimate the number of pixels of an image after the recipe.

    With kernels, decoded images wait in memory: then it is at least the number of rendered pixels, three float32 each,
    that would fill the memory of a source image. With other bands than 8-bit RGB a pixel counts by its memory, too.
    """
    some = reader.clip_views(reader.clips[np.arange(8) % len(reader.clips)].reshape(-1))
    rendered = int(recipe.plan(some, draws_from(np.random.default_rng(0))).views.size.prod(1).max())
    if not kernels:
        return rendered
    pixels = reader.pixel_format
    return max(rendered * pixels.count // 3, int(reader.pixels.mean()) * pixels.decoded_bytes // _RENDERED_BYTES)


_RENDERED_BYTES = 12
"""Of a pixel of three bands of float32."""


def large_source(reader: Source) -> int:
    """Return the number of pixels of a large source image: the 95th percentile; or the mean, if a few have most.

    A pixel of other bands than 8-bit RGB counts as many as take its memory.
    """
    size = max(np.percentile(reader.pixels, 95), reader.pixels.mean())
    return int(size * reader.pixel_format.decoded_bytes / 3)


def grouping_of(settings: Settings, recipes: Sequence[Recipe]) -> Grouping:
    """Return how batches go to the pipelines. `recipes`: of each view."""
    mixed = GROUP if any(recipe.mixing_op for recipe in recipes) else 1
    return Grouping(settings.batches_per_group, settings.parts_per_batch, mixed)


def decoded_bytes(
    reader: Source, settings: Settings, recipes: Sequence[Recipe], batch_size: int, device: torch.device
) -> int:
    """Return the bytes of the decoded images in flight if all were large ones."""
    grouping = grouping_of(settings, recipes)
    images = grouping.batches * max(int(part.stop - part.start) for part in grouping.parts_of(batch_size))
    return int(images_held(settings.pipelines, settings.depth, images, device) * 3 * large_source(reader))


def images_held(pipelines: int, depth: int, images: int, device: torch.device) -> float:
    """Return the number of decoded images in memory, for jobs of this many.

    A pipeline holds the images of its `depth` jobs, those of the outputs before them, and on a GPU what decodes them.
    """
    per_image, most = HELD_BY_DECODER if device.type == "cuda" else (0, 0)
    return pipelines * ((depth + 1) * images + min(per_image * images, most))


def choose_settings(
    device: torch.device,
    batch_size: int,
    pixels: int,
    file: str | os.PathLike[str] | None = None,
    *,
    source_pixels: int = 1,
    can_group: bool = True,
    decodes_on_host: bool = False,
    pipelines: int | None = None,
    threads: int | None = None,
    memory: int | None = None,
    together: int = 1,
) -> Settings:
    """Return the settings that are given, else those of a file that `detaug tune` wrote, else the device's defaults.

    `pixels`: of an image after the recipe; `source_pixels`: of a large one before it. `can_group`: whether a pipeline
    can process several batches as one. `decodes_on_host`: whether the CPU decodes the images for a GPU. `memory`: bytes
    for decoded images, which also limit the settings of a file; None: those of a file are not limited, and the CPU's
    defaults are. `together`: images that a part has at least.
    """
    if device.type == "cpu":
        batches = _limited(GROUP_IMAGES_ON_CPU / _weight(pixels, 3) / batch_size, least=1)
        default = Settings(1, available_cores(), batches_per_group=batches)
    else:
        default = _on_gpu(batch_size, pixels, can_group, not decodes_on_host and has_jpeg_engine(device))
    chosen = asdict(default)
    chosen |= {"batches_per_group": 1, **read_settings(file)} if file is not None else {}
    chosen |= {name: value for name, value in (("pipelines", pipelines), ("threads", threads)) if value is not None}
    settings = Settings(**(chosen if can_group else chosen | {"batches_per_group": 1}))
    fewest = pipelines or 1
    if memory is not None:
        return within_memory(settings, batch_size, 3 * source_pixels, memory, device, together, fewest_pipelines=fewest)
    if device.type == "cpu" and file is None:
        least = max(default.threads, together)
        return within_memory(
            settings, batch_size, 3 * source_pixels, DECODED_ON_CPU, device, least=least, fewest_pipelines=fewest
        )
    return settings


def within_memory(
    settings: Settings,
    batch_size: int,
    image: int,
    memory: int,
    device: torch.device,
    together: int = 1,
    *,
    least: int = 1,
    fewest_pipelines: int = 1,
) -> Settings:
    """Return settings with which decoded images take at most `memory` bytes in all, as far as that is possible.

    If `images_held` is too much, a pipeline gets less depth, down to 2, then fewer batches in a group, then parts of a
    batch. Where there is no room for the images that must be `together`, `fewest_pipelines` have them alone.

    `image`: bytes of a large one. `least`: images that a job has, whatever they take.
    """
    pipelines, depth = settings.pipelines, settings.depth

    def fits(images: int) -> bool:
        return images_held(pipelines, depth, images, device) * image <= memory

    while depth > 2 and not fits(batch_size):
        depth -= 1
    if not fits(together):
        pipelines, depth = fewest_pipelines, 1
    counts = range(settings.batches_per_group * batch_size, 0, -1)
    images = max(next(filter(fits, counts), 1), least, together)
    batches = _limited(min(settings.batches_per_group, images / batch_size), least=1)
    parts = max(settings.parts_per_batch, -(-batch_size // images))
    return replace(settings, pipelines=pipelines, depth=depth, batches_per_group=batches, parts_per_batch=parts)


def _on_gpu(batch_size: int, pixels: int, can_group: bool, jpeg_engine: bool) -> Settings:
    pipelines, threads = (2, 2) if jpeg_engine else _for_decoding_on_threads()
    images, most = batch_size * _weight(pixels, 2), PIXELS_IN_FLIGHT / (batch_size * pixels)
    batches = _limited(min(GROUP_IMAGES_ON_GPU / images, most / (3 * pipelines)), least=1) if can_group else 1
    depth = 3 if batches > 1 else _limited(min(IMAGES_IN_FLIGHT / images, most) / pipelines, least=2)
    return Settings(pipelines, threads, depth, batches, hw_decoder_load=float(jpeg_engine))


def _for_decoding_on_threads() -> tuple[int, int]:
    """Return the pipelines, and the threads of each, for a GPU without a JPEG engine.

    Half of the decoding is then done by CPU threads, so all cores of this process take part: of an H200 whose engine is
    off, 16 cores decode 12,400 images/s with 4 pipelines of 4 threads, 6,900 with 2 of 4.
    """
    cores = max(1, available_cores() // int(os.environ.get("LOCAL_WORLD_SIZE") or 1))
    pipelines = min(4, cores)
    return pipelines, min(8, cores // pipelines)


def _weight(pixels: int, most: int) -> float:
    """Return the number of 300 x 300 images that one image counts as."""
    return min(max(pixels / (300 * 300), 1), most)


def _limited(number: float, least: int) -> int:
    # at most 8 at once, so that batches of small GPUs stay small
    return int(min(max(number, least), 8))


def read_settings(file: str | os.PathLike[str]) -> dict[str, int | float]:
    """Read the settings of a file. Raises FileNotFoundError, or InputError for one that `detaug tune` did not write."""
    known = {field.name for field in fields(Settings)}
    remedy = f"detaug tune ANNOTATIONS.json IMAGES -o {os.fspath(file)} writes one"
    try:
        content = json.loads(Path(file).read_bytes())["settings"]
        wrong = sorted(set(content) - known)
    except FileNotFoundError:
        raise FileNotFoundError(f"{os.fspath(file)}: no such file of settings; {remedy}") from None
    except (ValueError, KeyError, TypeError, IsADirectoryError):
        raise InputError(f"{os.fspath(file)}: not a file of settings; {remedy}") from None
    if wrong:
        raise InputError(f"{os.fspath(file)}: no settings of this version: {', '.join(wrong)}; run detaug tune again")
    return dict(content)


def write_settings(file: str | os.PathLike[str], settings: Settings) -> None:
    """Write a file for `Loader(..., settings=file)`."""
    write_json(file, {"settings": asdict(settings)})
