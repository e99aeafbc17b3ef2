"""Plant one bug at a time in a copy of the package, and see the quick tests that are named beside it fail.

    python benchmarks/mutants.py [--only boxes] [--jobs 2]

Each row of `MUTANTS` is a bug as people write them: the first index, < for <=, x for y, a constant. First the named
tests must pass as the package is. Then each bug has a copy of its own in a temporary folder, and its tests run there,
in a process forked from one that has imported torch and DALI. Prints for each bug whether it was killed or SURVIVED,
and the seconds. The exit code is 1 unless all are killed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
COPIED = ("detaug", "converters", "tests", "benchmarks", "docs", "pyproject.toml")
SECONDS = 180  # for the tests of a bug: one that hangs is seen too


class Mutant(NamedTuple):
    """A bug, and the tests that see it."""

    file: str
    old: str
    """What stands there exactly once."""
    new: str
    tests: str
    """Ids of quick tests, with spaces between them."""

    @property
    def room(self) -> str:
        """Return the folder in the package: `boxes` for detaug/boxes/tight.py."""
        return Path(self.file).parts[-2]

    def __str__(self) -> str:
        line = next((line for line in self.new.splitlines() if line not in self.old.splitlines()), self.new)
        return f"{self.file}: {line.strip()}"


MUTANTS: list[Mutant] = [
    Mutant(
        "detaug/boxes/bent.py",
        "visible[image, place] *= share",
        "visible[image, place] *= 1",
        "tests/ops/test_distortion.py::test_visible_is_the_share_of_the_area",
    ),
    Mutant(
        "detaug/boxes/box_loops.py",
        "length = end[image, axis] - low",
        "length = end[image, 0] - start[image, 0]",
        "tests/boxes/test_planning_loops.py::test_boxes_are_cropped_and_clipped_as_numpy_does",
    ),
    Mutant(
        "detaug/boxes/box_loops.py",
        "    for side in range(4):\n                clipped[image",
        "    for side in range(3):\n                clipped[image",
        "tests/boxes/test_planning_loops.py::test_boxes_are_cropped_and_clipped_as_numpy_does",
    ),
    Mutant(
        "detaug/boxes/fields.py",
        "x.clip(0 * width, width), y.clip(0 * height, height)",
        "x.clip(0 * width, width), y.clip(0 * height, width)",
        "tests/boxes/test_bent_shapes.py::test_polygons_and_key_points_of_a_batch_are_where_the_field_shows_them",
    ),
    Mutant(
        "detaug/boxes/fields.py",
        "    finest = np.sqrt(curvature / (8 * CHORD_ERROR)).clip(None, FINEST)",
        "    finest = np.sqrt(curvature / (800 * CHORD_ERROR)).clip(None, FINEST)",
        "tests/boxes/test_bent_shapes.py::test_tight_boxes_are_around_the_points_that_show_the_outline",
    ),
    Mutant(
        "detaug/boxes/fields.py",
        "    curvature += np.maximum(*second_differences) / self.spacing**2",
        "    curvature += 0 * self.spacing",
        "tests/boxes/test_bent_shapes.py::test_tight_boxes_are_around_the_points_that_show_the_outline",
    ),
    Mutant(
        "detaug/boxes/hidden.py",
        "hidden = unsure[show_fewer(table, objects.part(unsure), boxes[unsure], views.min_mask_area)]",
        "hidden = unsure[show_fewer(table, objects.part(unsure), boxes[: len(unsure)], views.min_mask_area)]",
        "tests/boxes/test_masks.py::test_boxes_stay_if_their_masks_show_enough",
    ),
    Mutant(
        "detaug/boxes/keypoints.py",
        "skeleton = self.skeletons[index if len(self.skeletons) > 1 else 0]",
        "skeleton = self.skeletons[0]",
        "tests/boxes/test_keypoints.py::test_each_class_has_its_own_swaps_sides_and_lines",
    ),
    Mutant(
        "detaug/boxes/keypoints.py",
        "swapped = self.swapped[index if len(self.swapped) > 1 else 0]",
        "swapped = self.swapped[0]",
        "tests/boxes/test_keypoints.py::test_each_class_has_its_own_swaps_sides_and_lines",
    ),
    Mutant(
        "detaug/boxes/layers.py",
        "parts.copy + np.tile(copies, n)[:, None] * room(count)",
        "parts.copy + np.tile(copies, n)[:, None]",
        "tests/boxes/test_layers.py::test_masks_and_tight_boxes_are_of_one_copy",
    ),
    Mutant(
        "detaug/boxes/mask_loops.py",
        "out[index] = shown < pixels",
        "out[index] = shown <= pixels",
        "tests/boxes/test_masks.py::test_boxes_stay_if_their_masks_show_enough",
    ),
    Mutant(
        "detaug/boxes/masks.py",
        "return moved if placement.field is None else placement.field.place(placement.image[of_object], moved)",
        "return moved",
        "tests/boxes/test_bent_shapes.py::test_polygons_and_key_points_of_a_batch_are_where_the_field_shows_them",
    ),
    Mutant(
        "detaug/boxes/masks.py",
        "placement.field.place(placement.image[of_object], moved)",
        "placement.field.place(placement.image[of_object] * 0, moved)",
        "tests/boxes/test_bent_shapes.py::test_polygons_and_key_points_of_a_batch_are_where_the_field_shows_them",
    ),
    Mutant(
        "detaug/boxes/masks.py",
        "    others = ((copies[:, :, None] == copies[:, None]) & used[:, None]).sum(2) - used",
        "    others = ((copies[:, :1, None] == copies[:, None]) & used[:, None]).sum(2) - used",
        "tests/boxes/test_layers.py::test_masks_and_tight_boxes_are_of_one_copy",
    ),
    Mutant(
        "detaug/boxes/masks.py",
        "    others = ((copies[:, :, None] == copies[:, None]) & used[:, None]).sum(2) - used",
        "    others = 0 * copies",
        "tests/boxes/test_layers.py::test_masks_and_tight_boxes_are_of_one_copy",
    ),
    Mutant(
        "detaug/boxes/masks.py",
        'np.argsort(-masks.sum((1, 2)), kind="stable")',
        'np.argsort(masks.sum((1, 2)), kind="stable")',
        "tests/boxes/test_masks.py::test_what_batches_make_of_masks",
    ),
    Mutant(
        "detaug/boxes/placement.py",
        "        placed[..., :2] = placement.field.place(placement.image, placed[..., :2])",
        "        placed[..., :2] = placement.field.place(placement.image * 0, placed[..., :2])",
        "tests/boxes/test_bent_shapes.py::test_polygons_and_key_points_of_a_batch_are_where_the_field_shows_them",
    ),
    Mutant(
        "detaug/boxes/placement.py",
        "        placed[(placed[..., 2] == 0) | ~placement.field.shows(placement.image, placed[..., :2])] = 0",
        "        placed[~placement.field.shows(placement.image, placed[..., :2])] = 0",
        "tests/boxes/test_bent_shapes.py::test_polygons_and_key_points_of_a_batch_are_where_the_field_shows_them",
    ),
    Mutant(
        "detaug/boxes/placement.py",
        "layers.source_bounds[own].reshape(-1, 4),\n        borders,",
        "layers.source_bounds[:1, 0].repeat(len(own[0]), 0).reshape(-1, 4),\n        borders,",
        "tests/boxes/test_cropped_points.py::test_points_and_boxes_are_seen_where_their_pixels_are",
    ),
    Mutant(
        "detaug/boxes/placement.py",
        "of_class = classes[placement.rows[flipped]] if",
        "of_class = classes[flipped] if",
        "tests/boxes/test_keypoints.py::test_each_class_has_its_own_swaps_sides_and_lines",
    ),
    Mutant(
        "detaug/boxes/point_loops.py",
        "y0 - EDGE <= y <= y1 + EDGE",
        "y0 - EDGE <= y <= y1 + EDGE + 1",
        "tests/boxes/test_cropped_points.py::test_points_and_boxes_are_seen_where_their_pixels_are",
    ),
    Mutant(
        "detaug/boxes/point_loops.py",
        "x0 - EDGE <= x <= x1 + EDGE and",
        "x0 - EDGE <= x and",
        "tests/boxes/test_cropped_points.py::test_points_and_boxes_are_seen_where_their_pixels_are",
    ),
    Mutant(
        "detaug/boxes/point_loops.py",
        "out[index, number, 2] = visibility if on_top == VISIBLE else HIDDEN",
        "out[index, number, 2] = on_top",
        "tests/boxes/test_cropped_points.py::test_points_and_boxes_are_seen_where_their_pixels_are",
    ),
    Mutant(
        "detaug/boxes/point_loops.py",
        "(d * x + e * y + f) / depth",
        "(d * y + e * x + f) / depth",
        "tests/boxes/test_cropped_points.py::test_points_and_boxes_are_seen_where_their_pixels_are",
    ),
    Mutant(
        "detaug/boxes/point_loops.py",
        "for side_y in (y + EDGE, y - EDGE):",
        "for side_y in (y + EDGE,):",
        "tests/boxes/test_cropped_points.py::test_points_and_boxes_are_seen_where_their_pixels_are",
    ),
    Mutant(
        "detaug/boxes/point_loops.py",
        "    for index in range(len(rows)):\n"
        "        image, layer, row = own[index, 0], own[index, 1], rows[index]\n"
        "        a,",
        "    for index in range(len(rows)):\n"
        "        image, layer, row = own[0, 0], own[index, 1], rows[index]\n"
        "        a,",
        "tests/boxes/test_cropped_points.py::test_points_and_boxes_are_seen_where_their_pixels_are",
    ),
    Mutant(
        "detaug/boxes/rotated.py",
        "smallest = np.argmin(np.round(areas, 6), axis=0)",
        "smallest = np.argmin(np.round(areas[:3], 6), axis=0)",
        "tests/boxes/test_rotated_boxes.py::test_the_smallest_rectangle_is_found_by_brute_force",
    ),
    Mutant(
        "detaug/boxes/rotated.py",
        "swapped = width < height",
        "swapped = width > height",
        "tests/boxes/test_rotated_boxes.py::test_forms_convert_there_and_back",
    ),
    Mutant(
        "detaug/boxes/tight.py",
        "        changed |= views.field.bends[image]\n    if outlines",
        "        pass\n    if outlines",
        "tests/boxes/test_bent_shapes.py::test_tight_boxes_are_around_the_points_that_show_the_outline",
    ),
    Mutant(
        "detaug/boxes/tight.py",
        "    same = (layers.copy[image] == layers.copy[image, layer][:, None]) & used[image]",
        "    same = (layers.copy[image] == layers.copy[image, 0][:, None]) & used[image]",
        "tests/boxes/test_layers.py::test_masks_and_tight_boxes_are_of_one_copy",
    ),
    Mutant(
        "detaug/boxes/views.py",
        "visible=self.visible * left)",
        "visible=left)",
        "tests/boxes/test_cropped_points.py::test_points_and_boxes_are_seen_where_their_pixels_are",
    ),
    Mutant(
        "detaug/boxes/views.py",
        "_QUARTERS[-turns % 4]",
        "_QUARTERS[turns % 4]",
        "tests/boxes/test_cropped_points.py::test_points_and_boxes_are_seen_where_their_pixels_are",
    ),
    Mutant(
        "detaug/boxes/visible_part.py",
        "    cut = np.flatnonzero(~whole | placement.field.bends[placement.image])",
        "    cut = np.flatnonzero(~whole)",
        "tests/boxes/test_bent_shapes.py::test_tight_boxes_are_around_the_points_that_show_the_outline",
    ),
    Mutant(
        "detaug/boxes/visible_part.py",
        "    image = placement.image[of_object]\n    start, end = (",
        "    image = placement.image[of_object] * 0\n    start, end = (",
        "tests/boxes/test_bent_shapes.py::test_tight_boxes_are_around_the_points_that_show_the_outline",
    ),
    Mutant(
        "detaug/boxes/visible_part.py",
        "corners = polygons.UNIT_SQUARE * field.size[placement.image[objects], None, ::-1]",
        "corners = polygons.UNIT_SQUARE * field.size[placement.image[objects], None]",
        "tests/boxes/test_bent_shapes.py::test_tight_boxes_are_around_the_points_that_show_the_outline",
    ),
    Mutant(
        "detaug/boxes/visible_part.py",
        "corners[..., 0], corners[..., 1]), axis=-1)\n    in_source",
        "corners[..., 0], corners[..., 0]), axis=-1)\n    in_source",
        "tests/boxes/test_bent_shapes.py::test_tight_boxes_are_around_the_points_that_show_the_outline",
    ),
    Mutant(
        "detaug/boxes/visible_part.py",
        "    shown &= _in_outlines(in_source, objects, vertices)",
        "    shown &= _in_outlines(corners, objects, vertices)",
        "tests/boxes/test_bent_shapes.py::test_tight_boxes_are_around_the_points_that_show_the_outline",
    ),
    Mutant(
        "detaug/boxes/visible_part.py",
        "slack = 0.0 if placement.field is None else EDGE",
        "slack = 0.0",
        "tests/boxes/test_bent_shapes.py::test_tight_boxes_are_around_the_points_that_show_the_outline",
    ),
    Mutant(
        "detaug/ops/erasing.py",
        "fits = (sides < views.size[:, None]).all(2)",
        "fits = (sides <= views.size[:, None]).all(2)",
        "tests/ops/test_erasing.py::test_the_erased_rectangle_is_torchvisions_draw",
    ),
    Mutant(
        "detaug/ops/erasing.py",
        'np.floor(drawn["offset"] * (views.size - shape + 1))',
        'np.floor(drawn["offset"] * (views.size - shape))',
        "tests/ops/test_erasing.py::test_the_erased_rectangle_is_torchvisions_draw",
    ),
    Mutant(
        "detaug/ops/erasing.py",
        "whole_side = np.tile((hidden >= length - 1e-6)[..., ::-1], 2)",
        "whole_side = np.tile(hidden >= length - 1e-6, 2)",
        "tests/ops/test_erasing.py::test_boxes_are_the_hull_of_what_is_left",
    ),
    Mutant(
        "detaug/ops/iou_loops.py",
        "return window[0] < x < window[2] and window[1] < y < window[3]",
        "return window[0] < x < window[2] and window[1] < x < window[3]",
        "tests/ops/test_iou_crop.py::test_iou_crop_drops_by_the_rule_that_was_set",
    ),
    Mutant(
        "detaug/ops/iou_loops.py",
        "choice = np.int64(_numbers(seed, counter)[half] * (reachable + allow_no_crop))",
        "choice = np.int64(_numbers(seed, counter)[0] * (reachable + allow_no_crop))",
        "tests/boxes/test_planning_loops.py::test_windows_are_those_of_a_search_one_by_one",
    ),
    Mutant(
        "detaug/ops/mixing.py",
        "return first + GROUP * group, np.where(group < last, GROUP, size - GROUP * last)",
        "return first + GROUP * group, np.where(group < last, GROUP, GROUP)",
        "tests/ops/test_mixing.py::test_every_other_image_is_a_partner_as_often",
    ),
    Mutant(
        "detaug/ops/mixing.py",
        "step += enough & (step >= earlier)",
        "step += enough & (step > earlier)",
        "tests/ops/test_mixing.py::test_the_images_of_a_mosaic_are_different_ones_where_the_batch_has_them",
    ),
    Mutant(
        "detaug/ops/noise.py",
        "self.mean * pixels.white)",
        "self.mean)",
        "tests/ops/test_bands.py::test_the_mean_and_the_sigma_of_noise",
    ),
    Mutant(
        "detaug/ops/noise.py",
        "self.mean * pixels.white)",
        "self.mean * 255)",
        "tests/ops/test_bands.py::test_the_mean_and_the_sigma_of_noise",
    ),
    Mutant(
        "detaug/ops/noise.py",
        "(self.sigma * pixels.white)",
        "(self.sigma * 255)",
        "tests/ops/test_bands.py::test_the_mean_and_the_sigma_of_noise",
    ),
    Mutant(
        "detaug/ops/noise.py",
        "clamp(noisy) if pixels.is_rgb8 else noisy",
        "clamp(noisy)",
        "tests/ops/test_bands.py::test_the_mean_and_the_sigma_of_noise",
    ),
    Mutant(
        "detaug/ops/noise.py",
        "channels=pixels.count)) for index in (0, 1))",
        "channels=pixels.count)) for index in (0, 0))",
        "tests/ops/test_bands.py::test_the_mean_and_the_sigma_of_noise",
    ),
    Mutant(
        "detaug/ops/noise.py",
        "(normal * (self.sigma * pixels.white) + self.mean",
        "(normal * (self.sigma * pixels.white) - self.mean",
        "tests/ops/test_bands.py::test_the_mean_and_the_sigma_of_noise",
    ),
    Mutant(
        "detaug/loading/batch_masks.py",
        "        placement = self._group.placement.some(np.arange(self.moved.boxes.start, self.moved.boxes.stop))",
        "        placement = self._group.placement.some(np.arange(self.moved.boxes.stop - self.moved.boxes.start))",
        "tests/boxes/test_bent_shapes.py::test_polygons_and_key_points_of_a_batch_are_where_the_field_shows_them",
    ),
    Mutant(
        "detaug/loading/batch_masks.py",
        "padding = (y[:, None] >= size[..., 0]) | (x[None, :] >= size[..., 1])",
        "padding = (y[:, None] >= size[..., 1]) | (x[None, :] >= size[..., 0])",
        "tests/boxes/test_masks.py::test_what_batches_make_of_masks",
    ),
    Mutant(
        "detaug/loading/clip_batch.py",
        "order = torch.sort(self.valid.flatten(0, 1).int(), dim=1, descending=True, stable=True).indices",
        (
            "order = torch.sort(self.valid.flatten(0, 1).int(), dim=1, descending=True, "
            "stable=True).indices[:1].expand(len(self.valid.flatten(0, 1)), -1)"
        ),
        "tests/sources/test_clips.py::test_as_images",
    ),
    Mutant(
        "detaug/loading/draws.py",
        "[*key, self.view] if self.view else key",
        "key",
        "tests/loading/test_views.py::test_views_of_one_recipe_differ_in_all_draws",
    ),
    Mutant(
        "detaug/loading/other_view.py",
        "to_other @ inverse(to_own)",
        "inverse(to_own) @ to_other",
        "tests/loading/test_other_view.py::test_points_and_boxes_go_through_both_maps",
    ),
    Mutant(
        "detaug/loading/other_view.py",
        "(ours == theirs) & (ours >= 0)",
        "ours == theirs",
        "tests/loading/test_other_view.py::test_match_finds_all_pairs",
    ),
    Mutant(
        "detaug/loading/other_view.py",
        "torch.cat(parts) & inside[0].all(-1)",
        "torch.cat(parts)",
        "tests/loading/test_other_view.py::test_padding_and_fill_have_no_mask",
    ),
    Mutant(
        "detaug/loading/other_view.py",
        "masks[:, :own_height, :own_width]",
        "masks",
        "tests/loading/test_other_view.py::test_padding_and_fill_have_no_mask",
    ),
    Mutant(
        "detaug/loading/planner.py",
        "recipe.plan(views, draws[view], ",
        "recipe.plan(views, draws[0], ",
        "tests/loading/test_views.py::test_views_of_one_recipe_differ_in_all_draws",
    ),
    Mutant(
        "detaug/loading/renderers.py",
        "region[:, :2] for region in regions]",
        "region[:, :2] for region in regions[:1]]",
        "tests/loading/test_views.py::test_every_view_is_replayed_by_a_loader_of_its_recipe",
    ),
    Mutant(
        "detaug/loading/renderers.py",
        "np.minimum.reduce(",
        "np.maximum.reduce(",
        "tests/loading/test_views.py::test_scaled_decoding_takes_the_larger_image",
    ),
    Mutant(
        "detaug/loading/source_pixels.py",
        "field is not None or onto is not None",
        "field is not None",
        "tests/loading/test_other_view.py::test_boxes_onto_a_bent_view_are_hulls_of_bent_sides",
    ),
    Mutant(
        "detaug/loading/state.py",
        "PositionDraws(0, 22, view)",
        "PositionDraws(0, 22)",
        "tests/loading/test_views.py::test_the_draws_of_a_state_are_those_of_the_views",
    ),
    Mutant(
        "detaug/loading/view_recipes.py",
        'next(iter(changing.values()), "epoch")',
        '"epoch"',
        "tests/loading/test_views.py::test_stages_by_step_of_several_views",
    ),
    Mutant(
        "detaug/loading/epochs.py",
        "max(rest, least)",
        "rest",
        "tests/loading/test_stages.py::test_the_partial_batch_of_each_stage",
    ),
    Mutant(
        "detaug/loading/epochs.py",
        'if last_batch == "partial" and rest > 0:',
        'if last_batch == "partial" and rest > 1:',
        "tests/loading/test_stages.py::test_the_partial_batch_of_each_stage",
    ),
    Mutant(
        "detaug/loading/epochs.py",
        "least = min(self.smallest_batch, self.batch_size) * self.shard[1]",
        "least = min(self.smallest_batch, self.batch_size)",
        "tests/loading/test_stages.py::test_the_partial_batch_of_each_stage",
    ),
    Mutant(
        "detaug/loading/epochs.py",
        "np.resize(order, full * global_batch + max(rest, least))[full * global_batch :]",
        "order[: max(rest, least)]",
        "tests/loading/test_stages.py::test_the_partial_batch_of_each_stage",
    ),
    Mutant(
        "detaug/loading/epochs.py",
        "positions + hop) % len(good)",
        "positions) % len(good)",
        "tests/loading/test_samplers.py::test_a_stand_in_is_the_next_good_image_of_its_group_a_hop_later",
    ),
    Mutant(
        "detaug/loading/epochs.py",
        "of_rounds[epoch % len(of_rounds)]",
        "of_rounds[0]",
        "tests/tiles/test_tiles.py::test_an_epoch_has_one_grid",
    ),
    Mutant(
        "detaug/loading/epochs.py",
        "further[np.argmax(images)]",
        "further[np.argmin(images)]",
        "tests/loading/test_epoch_length.py::test_a_group_gets_as_many_further_batches_as_it_has_images",
    ),
    Mutant(
        "detaug/loading/fixed_rows.py",
        "real.reshape(clips).any(1)",
        "real.reshape(clips)[:, 0]",
        "tests/loading/test_max_boxes.py::test_a_clip_keeps_the_objects_that_are_largest_in_a_frame",
    ),
    Mutant(
        "detaug/loading/fixed_rows.py",
        "max(counts, default=0) > rows",
        "max(counts, default=0) > rows + 1",
        "tests/loading/test_max_boxes.py::test_the_largest_boxes_are_targets_of_detr",
    ),
    Mutant(
        "detaug/loading/loader.py",
        "next((recipe.mixing_op for recipe in recipes if recipe.mixing_op), None)",
        "recipes[0].mixing_op",
        "tests/loading/test_stages.py::test_the_partial_batch_of_each_stage",
    ),
    Mutant(
        "detaug/loading/samplers.py",
        "share * presence.sum() / of_sources, lengths)",
        "share * presence.sum() / of_sources[::-1], lengths)",
        "tests/loading/test_samplers.py::test_factors_by_hand",
    ),
    Mutant(
        "detaug/loading/stages.py",
        "bisect_right(self._starts, position) - 1",
        "max(0, bisect_right(self._starts, Position(position.epoch, position.step - 1)) - 1)",
        "tests/loading/test_stages.py::test_the_partial_batch_of_each_stage",
    ),
    Mutant(
        "detaug/loading/planner.py",
        "last_steps if number == last else len(batches.indices)",
        "len(batches.indices)",
        "tests/loading/test_stages_by_step.py::test_a_stage_reads_no_image_of_the_next_one",
    ),
    Mutant(
        "detaug/tiles/annotations.py",
        "scale = width * height / float(reader.windows[tile, 2:].prod())",
        "scale = 1.0",
        "tests/tiles/test_numbers_of_tiles.py::test_numbers_of_rotated_boxes",
    ),
    Mutant(
        "detaug/tiles/annotations.py",
        'round(entry["area"] * visible * scale, DECIMALS)',
        'round(entry["area"] * scale, DECIMALS)',
        "tests/tiles/test_numbers_of_tiles.py::test_numbers_of_rotated_boxes",
    ),
    Mutant(
        "detaug/tiles/annotations.py",
        "for point in shapes.corners[index].tolist()",
        "for point in shapes.corners[0].tolist()",
        "tests/tiles/test_numbers_of_tiles.py::test_numbers_of_rotated_boxes",
    ),
    Mutant(
        "detaug/tiles/annotations.py",
        '        keys["truncated"] = 1',
        "        pass",
        "tests/tiles/test_numbers_of_tiles.py::test_numbers_of_rotated_boxes",
    ),
    Mutant(
        "detaug/tiles/cut.py",
        "relative = placed.corners[cut] / sides[cut, None]",
        "relative = placed.corners[cut] / sides[cut, None, ::-1]",
        "tests/tiles/test_numbers_of_tiles.py::test_rotated_boxes_of_tiles",
    ),
    Mutant(
        "detaug/tiles/cut.py",
        "whole, seen = polygons.area(relative), polygons.area(polygons.clip(relative))",
        "whole, seen = polygons.area(relative), polygons.area(relative)",
        "tests/tiles/test_numbers_of_tiles.py::test_rotated_boxes_of_tiles",
    ),
    Mutant(
        "detaug/tiles/cut.py",
        "corners = None if shapes.corners is None else placement.move(shapes.corners[rows])",
        "corners = None if shapes.corners is None else placement.move(shapes.corners[: len(rows)])",
        "tests/tiles/test_numbers_of_tiles.py::test_numbers_of_rotated_boxes",
    ),
    Mutant(
        "detaug/tiles/cut.py",
        "end = (tiles.windows[:, :2] + tiles.windows[:, 2:]) / size[:, ::-1]",
        "end = (tiles.windows[:, :2] + tiles.windows[:, 2:]) / size",
        "tests/tiles/test_numbers_of_tiles.py::test_rotated_boxes_of_tiles",
    ),
    Mutant(
        "detaug/tiles/windows.py",
        "-int(phase * step) // align * align",
        "-int(phase * step)",
        "tests/tiles/test_numbers_of_tiles.py::test_windows_of_aligned_grids",
    ),
    Mutant(
        "detaug/tiles/windows.py",
        "-(-(side - tile) // align) * align",
        "(side - tile) // align * align",
        "tests/tiles/test_numbers_of_tiles.py::test_windows_of_aligned_grids",
    ),
    Mutant(
        "detaug/tiles/windows.py",
        "max((tile - int(overlap * tile)) // align, 1) * align",
        "max((tile - int(overlap * tile)) // align, 2) * align",
        "tests/tiles/test_numbers_of_tiles.py::test_windows_of_aligned_grids",
    ),
    Mutant(
        "detaug/tiles/windows.py",
        "round(image_size[0] * scale)), max(1, round(image_size[1] * scale))",
        "round(image_size[0] * scale)), max(1, round(image_size[0] * scale))",
        "tests/tiles/test_numbers_of_tiles.py::test_windows_of_aligned_grids",
    ),
    Mutant(
        "detaug/tiles/windows.py",
        "np.ones((len(windows) - len(in_grid), grids), bool)",
        "np.arange(grids)[None] == np.zeros((len(windows) - len(in_grid), 1))",
        "tests/tiles/test_numbers_of_tiles.py::test_windows_of_aligned_grids",
    ),
    Mutant(
        "detaug/tiles/windows.py",
        "(min(size[0], image_size[0] - top), min(size[1], image_size[1] - left))",
        "(min(size[0], image_size[0] - top), min(size[1], image_size[1] - top))",
        "tests/tiles/test_numbers_of_tiles.py::test_windows_of_aligned_grids",
    ),
    Mutant(
        "detaug/video/frames.py",
        '"sizes": np.array(sizes)[video_of],',
        '"sizes": np.array(sizes)[video_of, ::-1],',
        "tests/video/test_video_reader.py::test_every_frame_of_every_clip",
    ),
    Mutant(
        "detaug/video/stretches.py",
        "if key - cuts[-1] >= length:",
        "if key - cuts[-1] > length:",
        "tests/video/test_stretches.py::test_stretches_begin_at_key_frames",
    ),
    Mutant(
        "detaug/video/stretches.py",
        "parts = max(1, (end - start) // length)",
        "parts = max(1, -(-(end - start) // length))",
        "tests/video/test_stretches.py::test_stretches_begin_at_key_frames",
    ),
    Mutant(
        "detaug/dali/batch_planner.py",
        "points[..., :2] *= size[:, ::-1].repeat(rows.counts, 0)[:, None]",
        "points[..., :2] *= size.repeat(rows.counts, 0)[:, None]",
        "tests/boxes/test_keypoints.py::test_key_points_in_a_dali_pipeline",
    ),
    Mutant(
        "detaug/dali/batch_planner.py",
        "placement.move(views.shapes.corners[placement.rows])",
        "placement.move(views.shapes.corners[: len(placement.rows)])",
        "tests/boxes/test_rotated_boxes.py::test_corners_in_a_dali_pipeline",
    ),
    Mutant(
        "detaug/dali/coco.py",
        "sizes = np.concatenate([reader.sizes[indices], np.zeros",
        "sizes = np.concatenate([reader.sizes[indices, ::-1], np.zeros",
        "tests/dali/test_dali_coco.py::test_it_gives_what_coco_reader_reads",
    ),
    Mutant(
        "detaug/samples/annotations.py",
        "else boxes[:, :2] - boxes[:, 2:] / 2",
        "else boxes[:, :2] - boxes[:, 2:3] / 2",
        "tests/samples/test_compose.py::test_forms_of_boxes_by_hand",
    ),
    Mutant(
        "detaug/samples/samples.py",
        "heights = np.repeat([len(array) for array in arrays], counts)",
        "heights = np.repeat([array.shape[1] for array in arrays], counts)",
        "tests/boxes/test_masks.py::test_run_lengths_of_another_height",
    ),
    Mutant(
        "detaug/samples/target_shapes.py",
        "values = array[placement.rows].max((1, 2), keepdims=True)",
        "values = array[: len(placement.rows)].max((1, 2), keepdims=True)",
        "tests/boxes/test_masks.py::test_compose_keeps_the_values_of_masks",
    ),
    Mutant(
        "detaug/drawing/boxes.py",
        "np.array([width / image.width, height / image.height] * 2)",
        "np.array([width / image.width, width / image.width] * 2)",
        "tests/drawing/test_drawing.py::test_boxes_grow_along_both_axes",
    ),
    Mutant(
        "detaug/drawing/points.py",
        "* [*factors, 1]",
        "* [factors[0], factors[0], 1]",
        "tests/drawing/test_draw_points.py::test_marks_grow_along_both_axes",
    ),
    Mutant(
        "detaug/sheets/batch_sheets.py",
        "_names(samples.labels[index], class_names)",
        "_names(samples.labels[0], class_names)",
        "tests/sheets/test_sheets.py::test_each_image_of_samples_has_its_own_names",
    ),
    Mutant(
        "detaug/sheets/recipe_sheets.py",
        "first + _first_shown(own",
        "_first_shown(own",
        "tests/sheets/test_sheets.py::test_chosen_draws_are_drawn_as_all_are",
    ),
    Mutant(
        "detaug/sheets/recipe_sheets.py",
        "(source >= low) & (source <= high)",
        "(source >= low) | (source <= high)",
        "tests/sheets/test_sheets.py::test_the_fraction_that_shows_the_source_is_that_of_its_pixels",
    ),
    Mutant(
        "detaug/pages/line_chart.py",
        "SIDE * y",
        "SIDE * x",
        "tests/training/test_train_reports.py::test_a_single_evaluation_has_a_marker",
    ),
    Mutant(
        "detaug/sheets/captions.py",
        "yield f\"shifted {' x '.join(f'{value:+.0%}' for value in shift)}\"",
        "yield f\"shifted {' x '.join(f'{value:+.0%}' for value in shift[::-1])}\"",
        "tests/sheets/test_change_captions.py::test_geometry",
    ),
    Mutant(
        "detaug/sheets/captions.py",
        "    return width if width == height else",
        "    return width if width else",
        "tests/sheets/test_change_captions.py::test_geometry",
    ),
    Mutant(
        "detaug/sheets/captions.py",
        "angle = np.degrees(np.arctan2(-linear[1, 0], linear[0, 0]))",
        "angle = np.degrees(np.arctan2(linear[1, 0], linear[0, 0]))",
        "tests/sheets/test_change_captions.py::test_geometry",
    ),
    Mutant(
        "detaug/training/rotated_fcos.py",
        "torch.stack([cos, sin], 1) * boxes[:, 2:3] / 2",
        "torch.stack([cos, sin], 1) * boxes[:, 3:4] / 2",
        "tests/training/test_rotated_fcos.py::test_corners_are_those_of_the_product",
    ),
    Mutant(
        "detaug/training/rotated_fcos.py",
        "across = torch.stack([-sin, cos], 1)",
        "across = torch.stack([sin, cos], 1)",
        "tests/training/test_rotated_fcos.py::test_corners_are_those_of_the_product",
    ),
    Mutant(
        "detaug/training/rotated_fcos.py",
        "cos, sin = boxes[:, 4].cos(), boxes[:, 4].sin()\n    along",
        "cos, sin = boxes[:, 4].cos(), -boxes[:, 4].sin()\n    along",
        "tests/training/test_rotated_fcos.py::test_the_angle_is_clockwise_on_the_screen",
    ),
    Mutant(
        "detaug/training/rotated_fcos.py",
        "angle = torch.atan2(sin4, cos4) / 4",
        "angle = torch.atan2(sin2, cos2) / 2",
        "tests/training/test_rotated_fcos.py::test_the_vector_of_4a_tells_the_angle_and_that_of_2a_the_side",
    ),
    Mutant(
        "detaug/training/rotated_fcos.py",
        "* sin2 < 0",
        "* sin2 > 0",
        "tests/training/test_rotated_fcos.py::test_a_box_is_coded_and_decoded",
    ),
    Mutant(
        "detaug/training/rotated_fcos.py",
        '"quadruple": quadruple,',
        '"quadruple": 0 * quadruple,',
        "tests/training/test_rotated_fcos.py::test_the_loss_of_boxes_is_least_at_the_box",
    ),
    Mutant(
        "detaug/training/rotated_fcos.py",
        "(1 - height / width).clamp(min=0) * double",
        "double",
        "tests/training/test_rotated_fcos.py::test_which_side_of_a_near_square_is_longer_costs_little",
    ),
    Mutant(
        "detaug/training/rotated_fcos.py",
        "(2 * boxes[:, 4], 4 * boxes[:, 4])",
        "(boxes[:, 4], 4 * boxes[:, 4])",
        "tests/training/test_rotated_fcos.py::test_the_code_has_no_jump",
    ),
    Mutant(
        "detaug/training/rotated_fcos.py",
        "boxes[:, 2:4].clamp(min=1) / stride",
        "boxes[:, 2:4] / stride",
        "tests/training/test_rotated_fcos.py::test_losses_and_gradients_are_finite",
    ),
    Mutant(
        "detaug/training/rotated_fcos.py",
        "/ det / 4",
        "/ det / 2",
        "tests/training/test_rotated_fcos.py::test_probiou_is_the_hellinger_distance_of_gaussians",
    ),
    Mutant(
        "detaug/training/rotated_fcos.py",
        "- 2 * sin * x * y",
        "+ 2 * sin * x * y",
        "tests/training/test_rotated_fcos.py::test_probiou_is_the_hellinger_distance_of_gaussians",
    ),
    Mutant(
        "detaug/training/rotated_fcos.py",
        "return (1e-3 - torch",
        "return (-torch",
        "tests/training/test_rotated_fcos.py::test_the_loss_of_boxes_is_least_at_the_box",
    ),
    Mutant(
        "detaug/training/rotated_fcos.py",
        ".log2().ceil()",
        ".log2().floor()",
        "tests/training/test_rotated_fcos.py::test_places_predict_boxes_of_their_level",
    ),
    Mutant(
        "detaug/training/rotated_fcos.py",
        "area.clamp(min=1).sqrt()",
        "boxes[:, 2:4].amax(1)",
        "tests/training/test_rotated_fcos.py::test_places_predict_boxes_of_their_level",
    ),
    Mutant(
        "detaug/training/rotated_fcos.py",
        "away[..., 0] * cos + away[..., 1] * sin",
        "away[..., 0] * cos - away[..., 1] * sin",
        "tests/training/test_rotated_fcos.py::test_places_lie_inside_of_a_box_at_its_angle",
    ),
    Mutant(
        "detaug/training/rotated_fcos.py",
        "device=boxes.device)] = True",
        "device=boxes.device)] = False",
        "tests/training/test_rotated_fcos.py::test_the_nearest_place_predicts_a_narrow_box_and_a_place_the_smallest_box",
    ),
    Mutant(
        "detaug/training/rotated_fcos.py",
        "torch.where(inside, area, torch.inf)",
        "torch.where(inside, -area, torch.inf)",
        "tests/training/test_rotated_fcos.py::test_the_nearest_place_predicts_a_narrow_box_and_a_place_the_smallest_box",
    ),
    Mutant(
        "detaug/training/rotated_fcos.py",
        "np.triu(classes[:, None] == classes, 1)",
        "np.triu(classes[:, None] >= 0, 1)",
        "tests/training/test_rotated_fcos.py::test_suppression_beside_brute_force",
    ),
    Mutant(
        "detaug/training/rotated_fcos.py",
        "        if stays[row]:\n            stays",
        "        if len(stays):\n            stays",
        "tests/training/test_rotated_fcos.py::test_suppression_beside_brute_force",
    ),
    Mutant(
        "detaug/training/rotated_fcos.py",
        "count = max(1, len(place))",
        "count = len(place)",
        "tests/training/test_rotated_fcos.py::test_losses_and_gradients_are_finite",
    ),
    Mutant(
        "detaug/training/rotated_fcos.py",
        "centerness.sum().clamp(min=LEAST_CENTERNESS)",
        "centerness.sum()",
        "tests/training/test_rotated_fcos.py::test_losses_and_gradients_are_finite",
    ),
    Mutant(
        "detaug/training/rotated_fcos.py",
        "around.new_tensor([width, height, width, height])",
        "around.new_tensor([height, width, height, width])",
        "tests/training/test_rotated_fcos.py::test_detections_of_a_model",
    ),
    Mutant(
        "detaug/sheets/detections.py",
        "self.corners[rows],",
        "self.corners,",
        "tests/training/test_rotated_fcos.py::test_the_json_of_predictions",
    ),
    Mutant(
        "detaug/training/predict.py",
        'predictions["corners"].cpu()[high][None], to_source',
        'predictions["corners"].cpu()[None], to_source',
        "tests/training/test_rotated_fcos.py::test_corners_in_pixels_of_the_source",
    ),
    Mutant(
        "detaug/training/loaders.py",
        "_of_reader(read_val(options.val, options), finds)",
        '_of_reader(read_val(options.val, options), "bbox")',
        "tests/training/test_rotated_fcos.py::test_a_json_without_rotated_boxes_is_refused",
    ),
    Mutant(
        "detaug/training/loaders.py",
        '"flips": [RandomVerticalFlip()]',
        '"flips": []',
        "tests/training/test_rotated_fcos.py::test_the_recipe_flips_both_ways",
    ),
    Mutant(
        "detaug/training/curves.py",
        'return ("AP", "AP50", "AP75") if',
        'return ("AP", "AP50") if',
        "tests/training/test_rotated_fcos.py::test_a_training_evaluates_rotated_boxes",
    ),
    Mutant(
        "detaug/training/optimization.py",
        "return top * (step + 1) / warmup_steps",
        "return top * step / warmup_steps",
        "tests/training/test_train.py::test_warm_up_and_cosine",
    ),
    Mutant(
        "detaug/training/optimization.py",
        'if parameter.ndim <= 1], "weight_decay": 0.0}',
        'if parameter.ndim <= 1], "weight_decay": decay}',
        "tests/training/test_train.py::test_biases_and_norms_have_no_weight_decay",
    ),
    Mutant(
        "detaug/evaluation/errors.py",
        "if NEAR <= best < FOUND:",
        "if NEAR < best < FOUND:",
        "tests/evaluation/test_errors_of_detectors.py::test_limits_of_the_iou",
    ),
    Mutant(
        "detaug/evaluation/errors.py",
        "high = scores >= min_score",
        "high = scores > min_score",
        "tests/evaluation/test_errors_of_detectors.py::test_a_threshold_takes_all_detections_of_equal_scores",
    ),
    Mutant(
        "detaug/evaluation/errors.py",
        "left[detection], left[:, target] = 0, 0",
        "left[detection] = 0",
        "tests/evaluation/test_errors_of_detectors.py::test_a_second_implementation",
    ),
    Mutant(
        "detaug/evaluation/masks.py",
        "before[first[:-1]] = 0",
        "before[first[0]] = 0",
        "tests/evaluation/test_mask_scores.py::test_run_lengths_are_pycocotools",
    ),
    Mutant(
        "detaug/evaluation/merging.py",
        "at_end = (end - boxes[:, 2:] <= near) & (end < np.array([size[1], size[0]]))",
        "at_end = (end - boxes[:, 2:] <= near) & (end < np.array(size))",
        "tests/tiles/test_merged_tiles.py::test_what_merging_leaves",
    ),
    Mutant(
        "detaug/evaluation/rotated.py",
        "for corners in ([0, 1, 2], [0, 2, 3]):",
        "for corners in ([0, 1, 2], [1, 2, 3]):",
        "tests/evaluation/test_point_scores.py::test_the_iou_of_quadrangles_is_shapelys",
    ),
    Mutant(
        "detaug/importing/torchvision_rules.py",
        '    width, height = args.get("target_size")\n',
        '    height, width = args.get("target_size")\n',
        "tests/importing/test_import_recipe.py::test_pairs_of_torchvision_keep_their_order",
    ),
    Mutant(
        "detaug/importing/torchvision_rules.py",
        "(width + height) // 2 | 1",
        "width // 2 | 1",
        "tests/importing/test_import_recipe.py::test_pairs_of_torchvision_keep_their_order",
    ),
    Mutant(
        "detaug/importing/torchvision_rules.py",
        "for threshold in options if threshold < 1)",
        "for threshold in options if threshold <= 1)",
        "tests/importing/test_import_recipe.py::test_pairs_of_torchvision_keep_their_order",
    ),
    Mutant(
        "detaug/importing/units.py",
        "else difference * sum(self.scale) / 3",
        "else difference * self.scale[0]",
        "tests/importing/test_import_units.py::test_units_by_hand",
    ),
    Mutant(
        "detaug/importing/units.py",
        "zero = [offset + scale * middle for scale, offset, middle, _ in channels]",
        "zero = [offset + middle for scale, offset, middle, _ in channels]",
        "tests/importing/test_import_units.py::test_units_by_hand",
    ),
    Mutant(
        "detaug/sources/class_folders.py",
        "range(int(numbers.max()) + 1)",
        "range(int(numbers.max()))",
        "tests/sources/test_image_folder.py::test_a_list_with_numbers",
    ),
    Mutant(
        "detaug/sources/coco_shapes.py",
        "points[..., :2] + 0.5, 0)  # COCO",
        "points[..., :2] + 1, 0)  # COCO",
        "tests/boxes/test_keypoints.py::test_the_loader_and_coco_reader",
    ),
    Mutant(
        "detaug/storage/prefetch.py",
        "before = np.cumsum(lengths[order]) - lengths[order]",
        "before = np.cumsum(lengths[order])",
        "tests/storage/test_object_store.py::test_the_window_comes_first_and_what_is_needed_last_goes",
    ),
    Mutant(
        "detaug/storage/prefetch.py",
        'np.argsort(-by_all[removable], kind="stable")',
        'np.argsort(by_all[removable], kind="stable")',
        "tests/storage/test_object_store.py::test_the_window_comes_first_and_what_is_needed_last_goes",
    ),
    Mutant(
        "converters/records/to_coco.py",
        "is_own = not record.video or record.video in own_videos",
        "is_own = True",
        "tests/converters/test_shared_options.py::test_jobs_and_parts_write_the_same_bytes[mot]",
    ),
    Mutant(
        "converters/records/to_coco.py",
        "if image.size != size:",
        "if image.size[0] != size[0]:",
        "tests/converters/test_mot.py::test_faults_of_a_sequence",
    ),
    Mutant(
        "converters/records/to_coco.py",
        "-1 if image.frame is None else image.frame",
        "0",
        "tests/converters/test_mot.py::test_frames_are_in_the_order_of_their_numbers",
    ),
    Mutant(
        "converters/records/reading.py",
        "pixels > _PIXELS_AT_ONCE",
        "pixels < 0",
        "tests/converters/test_formats.py::test_records_with_large_masks_are_read_few_at_once",
    ),
    Mutant(
        "converters/records/data_set.py",
        "not_listed[about.file, name] += n",
        "not_listed[about.file, name] = n",
        "tests/converters/test_shared_options.py::test_classes[csv]",
    ),
    Mutant(
        "converters/records/data_set.py",
        "listed = [name for name in listed if counts[name]] or listed[:1]",
        "listed = [name for name in listed if counts[name]]",
        "tests/converters/test_mot.py::test_test_sequences_have_no_boxes",
    ),
    Mutant(
        "detaug/coco/parts.py",
        "free = count(max(lasts, default=0) + 1)",
        "free = count(max(lasts, default=0))",
        "tests/converters/test_shared_options.py::test_jobs_and_parts_write_the_same_bytes[mot]",
    ),
    Mutant(
        "detaug/coco/parts.py",
        "listed = [name for name in listed if name in used] or listed[:1]",
        "pass",
        "tests/converters/test_shared_options.py::test_jobs_and_parts_write_the_same_bytes[mot]",
    ),
    Mutant(
        "converters/mot/to_coco.py",
        "{number + 1: f",
        "{number: f",
        "tests/converters/test_mot.py::test_video_files_have_the_boxes_of_their_frames",
    ),
    Mutant(
        "converters/mot/to_coco.py",
        "(edge - first_pixel for edge in entry.edges)",
        "(edge - 1 for edge in entry.edges)",
        "tests/converters/test_mot.py::test_pixels_from_zero",
    ),
    Mutant(
        "converters/mot/to_coco.py",
        "frame=number - 1,",
        "frame=number,",
        "tests/converters/test_mot.py::test_frames_are_in_the_order_of_their_numbers",
    ),
    Mutant(
        "converters/mot/to_coco.py",
        'if entry.is_ignored and ignored == "drop":',
        "if entry.is_ignored:",
        "tests/converters/test_mot.py::test_ignored_entries",
    ),
    Mutant(
        "converters/yolo/to_coco.py",
        "class_names[box.number]",
        "class_names[0]",
        "tests/converters/test_yolo.py::test_images_without_labels_have_no_boxes",
    ),
    Mutant(
        "converters/yolo/files.py",
        "return os.path.join(self.root, os.path.relpath(path, self.images)) if is_elsewhere else path",
        "return path",
        "tests/converters/test_shared_options.py::test_images_elsewhere[yolo]",
    ),
    Mutant(
        "converters/records/placing.py",
        "if edges[0] > edges[2] or edges[1] > edges[3]:",
        "if edges[0] > edges[2]:",
        "tests/converters/test_placing.py::test_reversed_edges",
    ),
    Mutant(
        "converters/records/placing.py",
        "x * self.scale[0] - 0.5, y * self.scale[1] - 0.5",
        "x * self.scale[0] - 0.5, y * self.scale[0] - 0.5",
        "tests/converters/test_placing.py::test_keypoints_have_the_scale_of_their_axis",
    ),
    Mutant(
        "converters/records/placing.py",
        "max(-left, -top, right - width, bottom - height)",
        "max(-left, -top, right - width)",
        "tests/converters/test_placing.py::test_an_outline_is_cut_at_each_edge",
    ),
    Mutant(
        "detaug/boxes/map_loops.py",
        "range(first + count - 1, first - 1, -1)",
        "range(first + count - 1, first, -1)",
        "tests/maps/test_maps.py::test_maps_follow_pixels",
    ),
    Mutant(
        "detaug/boxes/map_loops.py",
        "seen = filled[number] & free",
        "seen = filled[number]",
        "tests/maps/test_maps.py::test_of_averages_of_averages_the_largest_share_counts",
    ),
    Mutant(
        "detaug/boxes/map_loops.py",
        "share += lengths[first // count, part]",
        "share += lengths[0, part]",
        "tests/maps/test_maps.py::test_of_averages_of_averages_the_largest_share_counts",
    ),
    Mutant(
        "detaug/boxes/layers.py",
        "none = np.where(self.image == ERASED, ERASED_SHOWN, NOTHING_SHOWN)",
        "none = ERASED_SHOWN",
        "tests/maps/test_maps.py::test_the_fill_of_a_pasted_image_is_ignored_also_where_what_is_erased_is_kept",
    ),
    Mutant(
        "detaug/boxes/layers.py",
        "none = np.where(self.image == ERASED, ERASED_SHOWN, NOTHING_SHOWN)",
        "none = NOTHING_SHOWN",
        "tests/maps/test_maps.py::test_what_is_erased_is_ignored_or_kept",
    ),
    Mutant(
        "detaug/boxes/map_loops.py",
        "_in_bounds(layers[number], y + HALF, x + HALF)",
        "_in_bounds(layers[number], y, x)",
        "tests/maps/test_maps.py::test_maps_follow_random_chains",
    ),
    Mutant(
        "detaug/boxes/layers.py",
        "rectangle = parts.rectangle.clip(low, high)",
        "rectangle = parts.rectangle",
        "tests/maps/test_maps.py::test_maps_follow_random_chains",
    ),
    Mutant(
        "detaug/sources/stack.py",
        "for name in source.maps:",
        "for name in ():",
        "tests/maps/test_maps.py::test_stacked_sources_have_maps_of_other_names",
    ),
    Mutant(
        "detaug/samples/annotations.py",
        "size in (shape[:2], shape[-2:])",
        "size == shape",
        "tests/maps/test_maps.py::test_compose_refuses_what_would_stay_behind",
    ),
    Mutant(
        "detaug/loading/loader.py",
        "if source.maps and source.frames is not None:",
        "if False:",
        "tests/maps/test_maps.py::test_clips_refuse_maps",
    ),
    Mutant(
        "detaug/boxes/map_loops.py",
        "at_x = np.floor(source_x * SINGLE_ONE + HALF) / ONE * scale_x + left",
        "at_x = source_x * scale_x + left",
        "tests/maps/test_maps.py::test_ties_go_to_one_side_also_where_a_scale_is_no_binary_fraction",
    ),
    Mutant(
        "detaug/boxes/map_loops.py",
        "* scale_y + top",
        "* scale_x + top",
        "tests/maps/test_maps.py::test_a_map_whose_sides_are_rounded",
    ),
    Mutant(
        "detaug/boxes/map_loops.py",
        "if weight >= best:",
        "if weight > best:",
        "tests/maps/test_maps.py::test_of_pixels_at_one_distance_the_nearest_is_that_of_classes",
    ),
    Mutant(
        "detaug/boxes/map_loops.py",
        "height, width, at_y - 0.5, at_x - 0.5, empty",
        "height, width, at_y, at_x, empty",
        "tests/maps/test_maps.py::test_depth_is_interpolated_where_it_is_known",
    ),
    Mutant(
        "detaug/maps/values.py",
        "offset=(left + x * across, top + y * down)",
        "offset=(left + y * across, top + x * down)",
        "tests/maps/test_maps.py::test_tiles_have_the_parts_of_the_map",
    ),
    Mutant(
        "detaug/maps/derived.py",
        "table[kind.ignore] = joined.ignore",
        "pass",
        "tests/maps/test_maps.py::test_joined_sources_have_the_classes_of_all_by_name",
    ),
    Mutant(
        "detaug/maps/kinds.py",
        "number: number - 1 for number",
        "number: number for number",
        "tests/maps/test_maps.py::test_tables",
    ),
    Mutant(
        "detaug/maps/values.py",
        "<= max(image)",
        "<= 100 * max(image)",
        "tests/maps/test_maps.py::test_a_map_that_cannot_be_used_is_named_or_skipped",
    ),
    Mutant(
        "detaug/maps/run_file.py",
        "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "pass",
        "tests/maps/test_map_cache.py::test_a_file_that_another_process_is_writing_is_left_alone",
    ),
    Mutant(
        "detaug/maps/run_file.py",
        "for key, runs in maps if not self._has(key)",
        "for key, runs in maps",
        "tests/maps/test_map_cache.py::test_maps_that_another_source_wrote_are_not_written_again",
    ),
    Mutant(
        "detaug/maps/run_file.py",
        "if crc32(content) != checksum:",
        "if False:",
        "tests/maps/test_map_cache.py::test_a_file_that_is_damaged_at_any_byte_is_used_as_far_as_it_is_right",
    ),
    Mutant(
        "detaug/maps/run_file.py",
        "if crc32(rows, crc32(header[:-4])) != checksum:",
        "if False:",
        "tests/maps/test_map_cache.py::test_a_file_that_is_damaged_at_any_byte_is_used_as_far_as_it_is_right",
    ),
    Mutant(
        "detaug/maps/run_file.py",
        "if not os.path.samestat(status, os.fstat(self._file)):",
        "if False:",
        "tests/maps/test_map_cache.py::test_a_file_that_is_removed_and_made_again_while_it_is_used",
    ),
    Mutant(
        "detaug/maps/run_file.py",
        "(os.O_CREAT if self._file < 0 else 0)",
        "os.O_CREAT",
        "tests/maps/test_map_cache.py::test_a_file_that_is_removed_while_it_is_used",
    ),
    Mutant(
        "detaug/maps/run_file.py",
        "if self._end + len(block) > MOST:",
        "if len(block) > MOST:",
        "tests/maps/test_map_cache.py::test_the_limits_of_the_disk",
    ),
    Mutant(
        "detaug/maps/run_file.py",
        "if self._replaced > max(self._bytes, len(block)):",
        "if False:",
        "tests/maps/test_map_cache.py::test_where_most_maps_changed_the_file_begins_anew",
    ),
    Mutant(
        "detaug/maps/run_file.py",
        "self._file).atexit = False",
        "self._file)",
        "tests/maps/test_map_cache.py::test_the_rest_is_written_when_the_process_ends",
    ),
    Mutant(
        "detaug/maps/kept.py",
        "return self._in_use.setdefault(index, runs)",
        "return runs",
        "tests/maps/test_map_cache.py::test_tiles_of_an_image_have_its_pixels_once",
    ),
    Mutant(
        "detaug/maps/kept.py",
        "if maps and file.writes and file.path.exists():",
        "if False:",
        "tests/maps/test_map_cache.py::test_the_rest_is_written_at_the_end",
    ),
    Mutant(
        "detaug/maps/kept.py",
        "if maps and file.writes and file.path.exists():",
        "if maps and file.writes:",
        "tests/maps/test_map_cache.py::test_few_maps_get_no_file",
    ),
    Mutant(
        "detaug/maps/kept.py",
        "values=runs.values.astype(self._dtype)",
        "values=runs.values",
        "tests/maps/test_map_cache.py::test_another_json_file_of_segments",
    ),
    Mutant(
        "detaug/maps/files.py",
        "*self._sizes[index], *self._numbers(index)]",
        "*self._numbers(index)]",
        "tests/maps/test_map_cache.py::test_a_map_of_another_image_size_is_refused",
    ),
    Mutant(
        "detaug/maps/files.py",
        "*self._sizes[index], *self._numbers(index)]",
        "*self._sizes[index]]",
        "tests/maps/test_map_cache.py::test_another_json_file_of_segments",
    ),
    Mutant(
        "detaug/maps/files.py",
        "[status.st_size, status.st_mtime_ns,",
        "[status.st_size,",
        "tests/maps/test_map_cache.py::test_a_map_that_changed_is_decoded_again",
    ),
    Mutant(
        "detaug/maps/files.py",
        "[status.st_size, status.st_mtime_ns,",
        "[status.st_mtime_ns,",
        "tests/maps/test_map_cache.py::test_a_map_that_changed_is_decoded_again",
    ),
    Mutant(
        "detaug/maps/kinds.py",
        "return self.ignore, None if self._numbers is None",
        "return 0, None if self._numbers is None",
        "tests/maps/test_map_cache.py::test_other_rules_decode_again",
    ),
    Mutant(
        "detaug/maps/kinds.py",
        "else sorted(self._numbers.items()), self._has_colors",
        "else 0, self._has_colors",
        "tests/maps/test_map_cache.py::test_other_rules_decode_again",
    ),
    Mutant(
        "detaug/maps/kinds.py",
        "None if self.classes is None else len(self.classes)))",
        "None))",
        "tests/maps/test_map_cache.py::test_names_of_classes_decode_nothing_again_and_their_number_does",
    ),
    Mutant(
        "detaug/maps/values.py",
        "LONGEST = (1 << 16) - 1",
        "LONGEST = 1 << 16",
        "tests/maps/test_map_cache.py::test_runs_of_any_length",
    ),
    Mutant(
        "detaug/maps/values.py",
        "lengths - (parts - 1) * LONGEST",
        "lengths % LONGEST",
        "tests/maps/test_map_cache.py::test_runs_of_any_length",
    ),
    Mutant(
        "detaug/maps/sampling.py",
        "RIM = 0.5",
        "RIM = 0.0",
        "tests/maps/test_maps.py::test_maps_follow_pixels",
    ),
    Mutant(
        "detaug/evaluation/semantic.py",
        "iou = right / (is_of + predicted - right)",
        "iou = right / (is_of + predicted)",
        "tests/maps/test_maps.py::test_scores_are_those_of_a_confusion_matrix_by_hand",
    ),
    Mutant(
        "detaug/evaluation/semantic.py",
        "predicted = counts.diagonal(), counts.sum(1), counts[:, :-1].sum(0)",
        "predicted = counts.diagonal(), counts.sum(1), counts.sum(0)[1:]",
        "tests/maps/test_maps.py::test_scores_are_those_of_a_confusion_matrix_by_hand",
    ),
    Mutant(
        "detaug/maps/kinds.py",
        'image.info.get("compression") == "jpeg"',
        "False",
        "tests/check/test_check_maps.py::test_each_kind_is_found_and_its_remedy_works",
    ),
    Mutant(
        "detaug/maps/files.py",
        "if path is not None and path != (images / file_names[index]).absolute()",
        "if False",
        "tests/check/test_check_maps.py::test_each_kind_is_found_and_its_remedy_works",
    ),
    Mutant(
        "detaug/check/maps.py",
        "if counts[kind.ignore] == values.size:",
        "if counts[kind.ignore] > 0:",
        "tests/check/test_check_maps.py::test_each_kind_is_found_and_its_remedy_works",
    ),
    Mutant(
        "detaug/check/maps.py",
        "others = np.delete(counts, [0, kind.ignore]).sum()",
        "others = 0",
        "tests/check/test_check_maps.py::test_masks_of_0_and_255_are_found_as_one_and_the_table_is_the_remedy",
    ),
    Mutant(
        "detaug/check/maps.py",
        "if values.shape != (tall, wide):",
        "if values.shape == (wide, tall):",
        "tests/check/test_check_maps.py::test_each_kind_is_found_and_its_remedy_works",
    ),
    Mutant(
        "detaug/check/maps.py",
        "elif not NEAR <= (middle := float(np.median(known))) <= FAR:",
        "elif not NEAR <= (middle := float(np.median(known))):",
        "tests/check/test_check_maps.py::test_depths_that_are_none",
    ),
    Mutant(
        "detaug/check/maps.py",
        "int((real < 0).sum())",
        "int((real > 0).sum() * 0)",
        "tests/check/test_check_maps.py::test_depths_that_are_none",
    ),
    Mutant(
        "detaug/maps/named.py",
        "key[0] if len(key) == 1 else tuple(key): value",
        "tuple(key): value",
        "tests/check/test_check_maps.py::test_masks_of_0_and_255_are_found_as_one_and_the_table_is_the_remedy",
    ),
    Mutant(
        "detaug/drawing/maps.py",
        "pixels[covered] += fill * (painted[covered] - pixels[covered])",
        "pixels[covered] += fill * (painted[covered])",
        "tests/check/test_check_maps.py::test_the_page_has_the_map_and_the_fractions",
    ),
    Mutant(
        "detaug/sheets/maps.py",
        "field = None if views.field is None else views.field[one]",
        "field = None",
        "tests/sheets/test_map_sheets.py::test_maps_of_samples_follow_their_pixels",
    ),
    Mutant(
        "detaug/sheets/maps.py",
        "self._of_rows[row] for index, row in enumerate(rows)}",
        "self._of_rows[0] for index, row in enumerate(rows)}",
        "tests/sheets/test_map_sheets.py::test_maps_of_samples_follow_their_pixels",
    ),
    Mutant(
        "detaug/sheets/recipe_sheets.py",
        "result.tile(index, caption)._replace(map=own[index])",
        "result.tile(index, caption)._replace(map=own[0])",
        "tests/sheets/test_map_sheets.py::test_a_preview_has_a_row_for_each_map",
    ),
    Mutant(
        "detaug/drawing/maps.py",
        "_of_scale(1 - (values",
        "_of_scale((values",
        "tests/sheets/test_map_sheets.py::test_depths_are_lighter_where_they_are_nearer",
    ),
    Mutant(
        "detaug/drawing/maps.py",
        "covered = ~empty & np.array(",
        "covered = np.array(",
        "tests/sheets/test_map_sheets.py::test_classes_have_their_colors",
    ),
    Mutant(
        "detaug/loading/loader.py",
        "isinstance(op, MixUp) and op.alpha >= 1",
        "isinstance(op, MixUp) and op.alpha > 1",
        "tests/maps/test_maps.py::test_an_average_of_halves_is_warned_of_once",
    ),
    Mutant(
        "detaug/sources/stack.py",
        "and same >= SAME_NEIGHBORS",
        "",
        "tests/sources/test_stacked_bands.py::test_a_band_of_classes_is_warned_of_once",
    ),
    Mutant(
        "detaug/sources/stack.py",
        "self._looked = number == len(self.sources) - 1",
        "self._looked = False",
        "tests/sources/test_stacked_bands.py::test_a_band_of_classes_is_warned_of_once",
    ),
    Mutant(
        "detaug/sources/stack.py",
        "self._looked = number == len(self.sources) - 1",
        "self._looked = True",
        "tests/sources/test_stacked_bands.py::test_a_band_of_classes_is_warned_of_once",
    ),
    Mutant(
        "converters/formats/label_maps.py",
        "UNKNOWN = frozenset((0, voc.VOID))",
        "UNKNOWN = frozenset((0,))",
        "tests/converters/test_label_maps.py::test_masks_of_voc",
    ),
    Mutant(
        "converters/formats/label_maps.py",
        'return names[1:] if names[:1] == ["__ignore__"] else names',
        "return names",
        "tests/converters/test_label_maps.py::test_names_of_voc_layouts",
    ),
    Mutant(
        "converters/formats/label_maps.py",
        "is_crowd=number < FIRST_INSTANCE",
        "is_crowd=False",
        "tests/converters/test_label_maps.py::test_cityscapes",
    ),
    Mutant(
        "converters/formats/label_maps.py",
        "class_id = number // FIRST_INSTANCE if number >= FIRST_INSTANCE else number",
        "class_id = number // FIRST_INSTANCE",
        "tests/converters/test_label_maps.py::test_cityscapes",
    ),
    Mutant(
        "converters/formats/label_maps.py",
        "if name is None and (number >= FIRST_INSTANCE or number > max(CITYSCAPES)):",
        "if False:",
        "tests/converters/test_label_maps.py::test_faults_of_cityscapes",
    ),
    Mutant(
        "converters/formats/label_maps.py",
        'table="ade20k" if is_ade else table',
        "table=table",
        "tests/converters/test_label_maps.py::test_ade20k",
    ),
    Mutant(
        "converters/formats/label_maps.py",
        "if not is_scaled((height, width), size):",
        "if False:",
        "tests/converters/test_label_maps.py::test_faults_of_class_maps",
    ),
    Mutant(
        "detaug/maps/kinds.py",
        "COLOR_UNITS = 1, 256, 65536",
        "COLOR_UNITS = 65536, 256, 1",
        "tests/converters/test_coco_panoptic.py::test_things_have_the_masks_of_their_segments",
    ),
    Mutant(
        "converters/formats/coco_panoptic.py",
        'is_crowd = segment.get("iscrowd") == 1',
        "is_crowd = False",
        "tests/converters/test_coco_panoptic.py::test_things_have_the_masks_of_their_segments",
    ),
    Mutant(
        "converters/formats/coco_panoptic.py",
        'if row.get("isthing", 1)',
        "if True",
        "tests/converters/test_coco_panoptic.py::test_things_have_the_masks_of_their_segments",
    ),
    Mutant(
        "converters/formats/coco_panoptic.py",
        "known - {0}",
        "known - {0, 5}",
        "tests/converters/test_coco_panoptic.py::test_a_segment_that_the_json_does_not_have_is_counted",
    ),
    Mutant(
        "converters/formats/coco_panoptic.py",
        "    if not is_below(name):",
        "    if False:",
        "tests/converters/test_coco_panoptic.py::test_pngs_that_are_not_there_or_outside",
    ),
    Mutant(
        "detaug/loading/panoptic_tables.py",
        "key = int(boxes.layers.copy[number, layer]), image",
        "key = 0, image",
        "tests/maps/test_panoptic.py::test_copies_of_an_object_are_masks_of_their_own",
    ),
    Mutant(
        "detaug/maps/panoptic.py",
        'near = near[np.argsort(-iou[near], kind="stable")]',
        'near = near[np.argsort(iou[near], kind="stable")]',
        "tests/maps/test_panoptic.py::test_each_segment_is_the_annotation_whose_box_fits_best",
    ),
    Mutant(
        "detaug/maps/panoptic.py",
        'near = near[np.argsort(-iou[near], kind="stable")]',
        "near = near[np.arange(len(near))]",
        "tests/maps/test_panoptic.py::test_each_segment_is_the_annotation_whose_box_fits_best",
    ),
    Mutant(
        "detaug/maps/panoptic.py",
        "iou >= SAME_OBJECT",
        "iou > SAME_OBJECT",
        "tests/maps/test_panoptic.py::test_each_segment_is_the_annotation_whose_box_fits_best",
    ),
    Mutant(
        "detaug/maps/panoptic.py",
        "SAME_OBJECT = 0.5",
        "SAME_OBJECT = 0.45",
        "tests/maps/test_panoptic.py::test_each_segment_is_the_annotation_whose_box_fits_best",
    ),
    Mutant(
        "detaug/maps/panoptic.py",
        "if match[one] < 0 and not taken[other]:",
        "if match[one] < 0:",
        "tests/maps/test_panoptic.py::test_each_segment_is_the_annotation_whose_box_fits_best",
    ),
    Mutant(
        "detaug/maps/segments.py",
        "new_row[rows] = np.arange(len(rows))",
        "new_row[rows] = rows",
        "tests/maps/test_panoptic.py::test_tiles_have_the_rows_of_their_own_boxes",
    ),
    Mutant(
        "detaug/evaluation/panoptic.py",
        "shared[number, other] - shared[0, other]",
        "shared[number, other]",
        "tests/evaluation/test_panoptic_scores.py::test_scores_are_those_of_panopticapi",
    ),
    Mutant(
        "detaug/evaluation/panoptic.py",
        "if label in crowd_of else 0",
        "if label < 0 else 0",
        "tests/evaluation/test_panoptic_scores.py::test_scores_are_those_of_panopticapi",
    ),
    Mutant(
        "detaug/files/near_duplicates.py",
        "(np.arange(FREQUENCIES) % 2 == 1)",
        "(np.arange(FREQUENCIES) % 2 == 0)",
        "tests/check/test_near.py::test_all_pairs_are_compared_over_blocks_of_rows",
    ),
    Mutant(
        "detaug/files/near_duplicates.py",
        "np.tril_indices(len(rows), -1, alike.shape[1])",
        "np.tril_indices(len(rows), 0, alike.shape[1])",
        "tests/check/test_near.py::test_all_pairs_are_compared_over_blocks_of_rows",
    ),
    Mutant(
        "detaug/files/near_duplicates.py",
        "one[flipped] = one[flipped, :, ::-1]",
        "one[flipped] = one[flipped, ::-1]",
        "tests/check/test_near.py::test_all_pairs_are_compared_over_blocks_of_rows",
    ),
    Mutant(
        "detaug/files/near_duplicates.py",
        "yield start + row, first + column,",
        "yield start + row, start + column,",
        "tests/check/test_near.py::test_all_pairs_are_compared_over_blocks_of_rows",
    ),
    Mutant(
        "detaug/files/near_duplicates.py",
        'np.argsort(-alike[row, columns], kind="stable")[:MOST_CANDIDATES]',
        'np.argsort(-alike[row, columns], kind="stable")',
        "tests/check/test_near.py::test_of_many_that_look_alike_the_nearest_are_aligned",
    ),
    Mutant(
        "detaug/check/near.py",
        "joined = {**later, **joined}",
        "joined = {**joined}",
        "tests/check/test_near.py::test_of_many_that_look_alike_the_nearest_are_aligned",
    ),
    Mutant(
        "detaug/files/near_duplicates.py",
        "parts.mean((2, 4))).max((1, 2))",
        "parts.mean((2, 4))).mean((1, 2))",
        "tests/check/test_near.py::test_one_piece_less_is_another_image",
    ),
    Mutant(
        "detaug/files/near_duplicates.py",
        "own[flat] = 0",
        "own[flat] *= 1",
        "tests/check/test_near.py::test_images_of_one_color_are_not_compared",
    ),
    Mutant(
        "detaug/files/near_duplicates.py",
        '1 if image.format == "TIFF" else orientation',
        "1",
        "tests/check/test_near.py::test_the_photo_as_displayed_counts",
    ),
    Mutant(
        "detaug/check/near.py",
        'row not in same["image-identical"]',
        'row not in same["image-leaked"]',
        "tests/check/test_near.py::test_same_bytes_are_named_once",
    ),
    Mutant(
        "detaug/check/near.py",
        "if row not in leaked:",
        "if row in rows:",
        "tests/check/test_near.py::test_another_split",
    ),
    Mutant(
        "detaug/check/near.py",
        "NearPair(rows[pair.first], rows[pair.second], pair.flipped)",
        "NearPair(pair.first, pair.second, pair.flipped)",
        "tests/check/test_near.py::test_same_bytes_are_named_once",
    ),
    Mutant(
        "detaug/coco/split.py",
        "near_copies(table, folder) if near else ()",
        "near_copies(table, folder) if not near else ()",
        "tests/check/test_near.py::test_split_keeps_them_together",
    ),
    Mutant(
        "detaug/evaluation/fusion.py",
        "best < 0 or overlaps[best] <= min_iou",
        "best < 0 or overlaps[best] < min_iou",
        "tests/training/test_tta.py::test_classes_do_not_merge",
    ),
    Mutant(
        "detaug/evaluation/fusion.py",
        "weighted_mean(shapes[own[best]], scores[own[best]])",
        "shapes[own[best]].mean(0)",
        "tests/training/test_tta.py::test_boxes_merge_as_in_the_paper",
    ),
    Mutant(
        "detaug/evaluation/fusion.py",
        "rows = order[labels[order] == label]",
        "rows = np.flatnonzero(labels == label)",
        "tests/training/test_tta.py::test_boxes_merge_as_in_the_paper",
    ),
    Mutant(
        "detaug/evaluation/fusion.py",
        "corners, corners[:, ::-1])",
        "corners, corners)",
        "tests/training/test_tta.py::test_the_mean_of_rotated_boxes_is_one_at_their_mean_angle",
    ),
    Mutant(
        "detaug/evaluation/fusion.py",
        "for shift in range(4)]",
        "for shift in range(2)]",
        "tests/training/test_tta.py::test_the_mean_of_rotated_boxes_is_one_at_their_mean_angle",
    ),
    Mutant(
        "detaug/training/tta.py",
        "merged_scores / np.maximum(shown, counts)",
        "merged_scores / len(seen)",
        "tests/training/test_tta.py::test_a_view_that_does_not_show_an_object_does_not_count",
    ),
    Mutant(
        "detaug/training/tta.py",
        "np.maximum(shown, counts)",
        "shown",
        "tests/training/test_tta.py::test_boxes_merge_as_in_the_paper",
    ),
    Mutant(
        "detaug/training/tta.py",
        "and mirrors(matrix)[0]:",
        "and not mirrors(matrix)[0]:",
        "tests/training/test_tta.py::test_left_and_right_are_swapped_back_after_a_flip",
    ),
    Mutant(
        "detaug/training/tta.py",
        "swaps[labels - 1] if len(swaps) > 1",
        "swaps[labels - 2] if len(swaps) > 1",
        "tests/training/test_tta.py::test_swaps_are_those_of_the_class",
    ),
    Mutant(
        "detaug/training/tta.py",
        "summed > 0.5",
        "summed > 0",
        "tests/training/test_tta.py::test_masks_are_those_of_most_views_by_score",
    ),
    Mutant(
        "detaug/training/tta.py",
        "round(pixels * scale / stride)",
        "int(pixels * scale / stride)",
        "tests/training/test_tta.py::test_sizes_are_those_that_the_model_takes",
    ),
    Mutant(
        "detaug/training/tta.py",
        "size=(width, height) if turned else (height, width)",
        "size=(height, width)",
        "tests/training/test_tta.py::test_sizes_are_those_that_the_model_takes",
    ),
    Mutant(
        "detaug/training/tta.py",
        "boxes.clip(0, [size[1], size[0]] * 2)",
        "boxes.clip(0, [size[0], size[1]] * 2)",
        "tests/training/test_tta.py::test_boxes_end_at_the_edges_of_the_image",
    ),
    Mutant(
        "detaug/training/tta.py",
        "matrix=identity, image_size=batch.source_size",
        "image_size=batch.source_size",
        "tests/training/test_tta.py::test_over_a_dataset_with_a_loader_for_each_view",
    ),
    Mutant(
        "detaug/evaluation/label_errors.py",
        "explained[row] < FOUND and",
        "explained[row] < NEAR and",
        "tests/evaluation/test_label_errors.py::test_a_duplicate_is_hardly_missing",
    ),
    Mutant(
        "detaug/evaluation/label_errors.py",
        "(1 - explained[row] / FOUND)",
        "(1 - explained[row])",
        "tests/evaluation/test_label_errors.py::test_a_duplicate_is_hardly_missing",
    ),
    Mutant(
        "detaug/evaluation/label_errors.py",
        "between[row, :row] >= FOUND",
        "between[row, :row] >= 2",
        "tests/evaluation/test_label_errors.py::test_a_duplicate_is_hardly_missing",
    ),
    Mutant(
        "detaug/evaluation/label_errors.py",
        "scores[other] * (1 - fits)",
        "scores[other]",
        "tests/evaluation/test_label_errors.py::test_a_fitting_detection_of_the_class_outweighs_another",
    ),
    Mutant(
        "detaug/evaluation/label_errors.py",
        "* recall[int(self.category_ids[column])]",
        "* 1",
        "tests/evaluation/test_label_errors.py::test_what_the_detector_often_misses_is_less_suspect",
    ),
    Mutant(
        "detaug/evaluation/label_errors.py",
        "shift = 1 - self.overlaps[best, column]",
        "shift = self.overlaps[best, column]",
        "tests/evaluation/test_label_errors.py::test_one_error_of_each_kind",
    ),
    Mutant(
        "detaug/evaluation/label_errors.py",
        "np.maximum(best, self.of_ignored)",
        "best",
        "tests/evaluation/test_label_errors.py::test_crowds_and_difficult_objects_are_not_suspected",
    ),
    Mutant(
        "detaug/evaluation/label_errors.py",
        "rows = objects[~ignored]",
        "rows = objects[: (~ignored).sum()]",
        "tests/evaluation/test_label_errors.py::test_crowds_and_difficult_objects_are_not_suspected",
    ),
    Mutant(
        "detaug/evaluation/label_errors.py",
        "key=lambda error: -error.suspicion",
        "key=lambda error: error.suspicion",
        "tests/evaluation/test_label_errors.py::test_one_error_of_each_kind",
    ),
    Mutant(
        "detaug/scoring/label_errors.py",
        'key=lambda row: order[row["id"]]',
        'key=lambda row: row["id"]',
        "tests/evaluation/test_label_errors.py::test_the_file_is_a_dataset_for_labeling_tools",
    ),
    Mutant(
        "detaug/scoring/label_errors.py",
        "error.suspicion >= LEAST_SUSPICION]",
        "error.suspicion >= 0]",
        "tests/evaluation/test_label_errors.py::test_the_file_is_a_dataset_for_labeling_tools",
    ),
    Mutant(
        "detaug/scoring/maps.py",
        "if is_float else super()",
        "if False else super()",
        "tests/scoring/test_evaluate_maps.py::test_depths_score_as_numpy_counts",
    ),
    Mutant(
        "detaug/scoring/maps.py",
        "known = _at_pixels((estimates > 0).astype",
        "known = _at_pixels((estimates >= 0).astype",
        "tests/scoring/test_evaluate_maps.py::test_depths_of_another_size_are_interpolated_where_they_are_known",
    ),
    Mutant(
        "detaug/scoring/maps.py",
        "(values >= self.count)",
        "(values > self.count)",
        "tests/scoring/test_evaluate_maps.py::test_predictions_that_are_no_classes_are_named",
    ),
    Mutant(
        "detaug/evaluation/semantic.py",
        " & (predicted != ignore)",
        "",
        "tests/maps/test_maps.py::test_a_prediction_of_what_is_ignored_is_wrong_and_of_no_class",
    ),
    Mutant(
        "detaug/maps/kinds.py",
        ".astype(np.float64) * float(scale)",
        " * scale",
        "tests/maps/test_maps.py::test_a_scale_holds_for_all_files_and_does_not_overflow",
    ),
    Mutant(
        "detaug/cli/main.py",
        "words[index] = RENAMED[old] + equals + value",
        "words[index] = RENAMED[old] + value",
        "tests/project/test_old_names.py::test_old_options_on_the_command_line",
    ),
    Mutant(
        "detaug/cli/main.py",
        '            if word == "--":\n                break\n',
        "",
        "tests/project/test_old_names.py::test_old_options_on_the_command_line",
    ),
    Mutant(
        "detaug/files/matching.py",
        "return index < len(self.names) and self.names[index] == name",
        "return index < len(self.names)",
        "tests/converters/test_parts.py::test_voc",
    ),
    Mutant(
        "detaug/files/matching.py",
        "return exact or tuple(images)",
        "return tuple(images)",
        "tests/converters/test_voc_to_coco.py::test_of_images_with_one_stem_the_filename_names_one",
    ),
    Mutant(
        "detaug/findings/finding.py",
        "hours = round(seconds / 3600)",
        "hours = round(minutes / 24)",
        "tests/outputs/test_texts.py::test_times_have_one_or_two_units",
    ),
    Mutant(
        "detaug/findings/finding.py",
        "if rate >= 9.95 else",
        "if rate >= 9 else",
        "tests/outputs/test_texts.py::test_a_low_rate_is_not_0",
    ),
    Mutant(
        "detaug/machine/cores.py",
        "yield int(limit[0]) - int(used[0]) + _file_cache(group)",
        "yield int(limit[0]) - int(used[0])",
        "tests/machine/test_machine.py::test_limits_of_version_2",
    ),
    Mutant(
        "detaug/machine/cores.py",
        'if len(quota) == 2 and quota[0] not in ("max", "-1"):',
        'if len(quota) == 2 and quota[0] != "max":',
        "tests/machine/test_machine.py::test_no_quota_of_version_1",
    ),
    Mutant(
        "detaug/outputs/part.py",
        "for number in (self.number - 1, self.number))",
        "for number in (self.number, self.number + 1))",
        "tests/converters/test_parts.py::test_labelme",
    ),
    Mutant(
        "detaug/outputs/part.py",
        "if not 1 <= number <= of:",
        "if not 0 <= number <= of:",
        "tests/converters/test_parts.py::test_what_is_refused",
    ),
    Mutant(
        "detaug/pipelines/scaled_decoding.py",
        ".min(1)  # source pixels",
        ".max(1)  # source pixels",
        "tests/pipelines/test_scaled_decoding.py::test_scales",
    ),
    Mutant(
        "detaug/pipelines/scaled_decoding.py",
        'shrinks, side="right")',
        'shrinks, side="left")',
        "tests/pipelines/test_scaled_decoding.py::test_scales",
    ),
    Mutant(
        "detaug/recipes/stages.py",
        "for start, ops in reversed(self.stages) if start <= epoch)",
        "for start, ops in reversed(self.stages) if start < max(epoch, 1))",
        "tests/loading/test_stages.py::test_a_stage_begins_at_its_epoch",
    ),
    Mutant(
        "detaug/recipes/stages.py",
        "or sorted(set(starts)) != starts:",
        "or sorted(starts) != starts:",
        "tests/loading/test_stages.py::test_epochs_that_do_not_grow",
    ),
    Mutant(
        "detaug/report/charts.py",
        "max(HEIGHT * count / top, LEAST_COLUMN) if count else 0",
        "HEIGHT * count / top",
        "tests/report/test_html_report.py::test_one_box_is_seen_beside_thousands",
    ),
    Mutant(
        "detaug/report/charts.py",
        "(high[:, 0], high[:, 1], 1),",
        "(high[:, 0], high[:, 1], -1),",
        "tests/report/test_html_report.py::test_the_map_of_boxes_is_dark_where_they_are",
    ),
    Mutant(
        "detaug/bench/measure.py",
        "min(batch_size, images - step * batch_size)",
        "batch_size",
        "tests/bench/test_bench.py::test_an_epoch_counts_each_image_once",
    ),
    Mutant(
        "detaug/bench/measure.py",
        "own.children_user + own.children_system + alive",
        "own.children_user + own.children_system",
        "tests/bench/test_bench.py::test_cpu_seconds_include_a_child_that_runs",
    ),
    Mutant(
        "detaug/bench/report.py",
        'a["images_per_s"] / b for a, b in',
        'b / a["images_per_s"] for a, b in',
        "tests/bench/test_bench.py::test_the_table_has_medians_ranges_and_ratios_turn_by_turn",
    ),
    Mutant(
        "detaug/bench/report.py",
        "(LEFT, y, LEFT + median * scale.pixels",
        "(LEFT, y, LEFT + max(rates) * scale.pixels",
        "tests/bench/test_bench.py::test_the_chart_has_bars_as_long_as_the_rates",
    ),
    Mutant(
        "detaug/bench/tuning.py",
        "final_rates[best] > WORTH_IT * final_rates[default]",
        "final_rates[best] > final_rates[default]",
        "tests/bench/test_bench.py::test_a_gain_within_the_noise_keeps_the_defaults",
    ),
    Mutant(
        "detaug/export/graph.py",
        "(size / source).amin(1, keepdim=True)",
        "(size / source).amax(1, keepdim=True)",
        "tests/export/test_graph.py::test_boxes_are_in_pixels_of_the_source_image",
    ),
    Mutant(
        "detaug/export/graph.py",
        'if self.resize.letterbox == "center" else',
        'if self.resize.letterbox == "top-left" else',
        "tests/export/test_graph.py::test_boxes_are_in_pixels_of_the_source_image",
    ),
    Mutant(
        "detaug/export/graph.py",
        "pair.flip(1).repeat",
        "pair.repeat",
        "tests/export/test_graph.py::test_boxes_are_in_pixels_of_the_source_image",
    ),
    Mutant(
        "detaug/export/graph.py",
        "return moved.clamp(min=0).minimum(limit) if clip else moved",
        "return moved.clamp(min=0) if clip else moved",
        "tests/export/test_graph.py::test_boxes_are_in_pixels_of_the_source_image",
    ),
    Mutant(
        "detaug/export/graph.py",
        "scores = candidates.scores * (candidates.labels > 0)",
        "scores = candidates.scores * (candidates.labels >= 0)",
        "tests/export/test_graph.py::test_the_best_come_first_and_the_rest_is_zero",
    ),
    Mutant(
        "detaug/export/graph.py",
        "(boxes[..., 2:] - boxes[..., :2]).amin(-1) > 0)",
        "(boxes[..., 2:] - boxes[..., :2]).amax(-1) > 0)",
        "tests/export/test_graph.py::test_the_best_come_first_and_the_rest_is_zero",
    ),
    Mutant(
        "detaug/export/graph.py",
        "(value * kept.view(",
        "(value + 0 * kept.view(",
        "tests/export/test_graph.py::test_the_best_come_first_and_the_rest_is_zero",
    ),
    Mutant(
        "detaug/export/graph.py",
        "(images - self.mean) / self.std)",
        "(images - self.mean) * self.std)",
        "tests/export/test_graph.py::test_images_are_normalized",
    ),
    Mutant(
        "detaug/export/graph.py",
        "(scores[image, label] > least)",
        "(scores[image, label] >= least)",
        "tests/export/test_graph.py::test_rows_of_each_image_and_suppression_of_each_class",
    ),
    Mutant(
        "detaug/export/graph.py",
        "torch.full_like(kept, image), torch.full_like(kept, label)",
        "torch.full_like(kept, label), torch.full_like(kept, image)",
        "tests/export/test_graph.py::test_rows_of_each_image_and_suppression_of_each_class",
    ),
    Mutant(
        "detaug/export/verify.py",
        "return [int(sure.sum()), int(sure.sum() + sure_b.sum()), tied], 0.0",
        "return [int(sure.sum()), 0, tied], 0.0",
        "tests/export/test_graph.py::test_detections_are_compared",
    ),
    Mutant(
        "detaug/export/verify.py",
        "box_iou(boxes, boxes_b) * (labels[:, None] == labels_b)",
        "box_iou(boxes, boxes_b)",
        "tests/export/test_graph.py::test_detections_are_compared",
    ),
    Mutant(
        "detaug/export/verify.py",
        "(overlap.amax(0)[sure_b] < 0.9).sum()",
        "0",
        "tests/export/test_graph.py::test_detections_are_compared",
    ),
    Mutant(
        "detaug/export/verify.py",
        "sure, sure_b = scores >= SURE",
        "sure, sure_b = scores > SURE",
        "tests/export/test_graph.py::test_detections_are_compared",
    ),
    Mutant(
        "detaug/export/verify.py",
        "abs(of_torch - of_onnx) <= TOLERANCE",
        "of_torch - of_onnx <= TOLERANCE",
        "tests/export/test_graph.py::test_both_scores_agree_or_not",
    ),
    Mutant(
        "detaug/testing/__init__.py",
        "assert compared >= least, _too_few",
        "assert compared >= 0, _too_few",
        "tests/testing/test_testing.py::test_min_boxes_finds_an_op_that_drops_some_boxes",
    ),
    Mutant(
        "detaug/testing/pixels.py",
        "return _crossing(bright, inside[0]), len(bright) - _crossing(bright[::-1], len(bright) - 1 - inside[-1])",
        "return _crossing(bright, inside[0]), float(inside[-1])",
        "tests/testing/test_testing.py::test_half_a_pixel_is_found_when_asked_for",
    ),
    Mutant(
        "detaug/testing/pixels.py",
        "side ^ int(flipped)",
        "side",
        "tests/testing/test_testing.py::test_points_follow_pixels_through_turns",
    ),
    Mutant(
        "detaug/testing/pixels.py",
        "np.abs(seen - box).max() <= allowed",
        "np.abs(seen - box)[:2].max() <= allowed",
        "tests/testing/test_testing.py::test_one_side_that_is_off_is_found",
    ),
    Mutant(
        "detaug/trainers/dataloader.py",
        "self._loader, self._is_taken = loader, False",
        "self._loader, self._is_taken = loader, True",
        "tests/training/test_as_dataloader.py::test_another_dataloader_of_its_data_is_refused",
    ),
    Mutant(
        "detaug/trainers/dataloader.py",
        "batch_size=None, collate_fn=_as_it_is, ",
        "batch_size=None, ",
        "tests/training/test_as_dataloader.py::test_what_a_collate_function_returns_is_not_changed",
    ),
    Mutant(
        "detaug/trainers/dataloader.py",
        ", generator=torch.Generator())",
        ")",
        "tests/training/test_as_dataloader.py::test_the_batches_are_those_of_the_loader",
    ),
    Mutant(
        "detaug/trainers/dataloader.py",
        "self.set_epoch = loader.set_epoch",
        "",
        "tests/training/test_as_dataloader.py::test_fabric_sets_it_up",
    ),
    Mutant(
        "detaug/workflow/prepare.py",
        "RATIOS if len(rows) >= 10 else",
        "RATIOS if len(rows) > 10 else",
        "tests/workflow/test_commands.py::test_a_fifth_is_for_the_validation",
    ),
    Mutant(
        "detaug/workflow/prepare.py",
        "(max(1, len(rows) - 1), 1)",
        "(1, max(1, len(rows) - 1))",
        "tests/workflow/test_commands.py::test_a_fifth_is_for_the_validation",
    ),
    Mutant(
        "detaug/workflow/steps.py",
        'str(word).startswith("-")',
        'str(word).endswith("-")',
        "tests/workflow/test_commands.py::test_a_step_is_a_command_that_a_shell_takes",
    ),
    Mutant(
        "detaug/workflow/steps.py",
        "for word in words if word is not None)",
        "for word in words if word)",
        "tests/workflow/test_commands.py::test_a_step_is_a_command_that_a_shell_takes",
    ),
    Mutant(
        "detaug/workflow/steps.py",
        'not in "\'\\\\"',
        'not in "\'"',
        "tests/workflow/test_commands.py::test_a_step_is_a_command_that_a_shell_takes",
    ),
    Mutant(
        "detaug/workflow/train_folder.py",
        'words += [option, "x".join(map(str, value))]',
        'words += [option, "x".join(map(str, value[::-1]))]',
        "tests/workflow/test_commands.py::test_the_command_that_trains_alone",
    ),
    Mutant(
        "detaug/workflow/train_folder.py",
        'f"{value / 60:g}m"',
        'f"{value / 3600:g}m"',
        "tests/workflow/test_commands.py::test_the_command_that_trains_alone",
    ),
    Mutant(
        "detaug/workflow/train_folder.py",
        '",".join(f"{a}:{b}" for a, b in value) or "none"',
        '",".join(f"{a}:{b}" for a, b in value)',
        "tests/workflow/test_commands.py::test_the_command_that_trains_alone",
    ),
    Mutant(
        "detaug/workflow/train_folder.py",
        'option if value else f"--no-{name}"',
        'option if value else f"--{name}"',
        "tests/workflow/test_commands.py::test_the_command_that_trains_alone",
    ),
    Mutant(
        "detaug/workflow/train_folder.py",
        'self.training.get("optimizer", "adamw") != "adamw"',
        'self.training.get("optimizer", "adamw") == "adamw"',
        "tests/workflow/test_commands.py::test_defaults_are_those_of_the_device_and_the_optimizer",
    ),
    Mutant(
        "detaug/workflow/train_folder.py",
        "**{**SMALL_DATA, **own, **self.training, **more}",
        "**{**self.training, **SMALL_DATA, **own, **more}",
        "tests/workflow/test_commands.py::test_defaults_are_those_of_the_device_and_the_optimizer",
    ),
    Mutant(
        "detaug/coco/rows.py",
        "parent in NO_PARENT or parent == category",
        "parent in NO_PARENT or parent != category",
        "tests/converters/test_way_back.py::test_keys_of_categories_without_a_place_are_counted",
    ),
    Mutant(
        "converters/yolo/label_rows.py",
        '"flip_idx": "flip_idx"}',
        '"skeleton": "flip_idx"}',
        "tests/converters/test_way_back.py::test_keys_of_categories_without_a_place_are_counted",
    ),
    Mutant(
        "detaug/maps/named.py",
        "(kind.table is None or own is None)",
        "(kind.table is None and own is None)",
        "tests/scoring/test_semantic_scores.py::test_maps_whose_numbers_mean_other_classes_are_refused",
    ),
    Mutant(
        "detaug/maps/kinds.py",
        "return self.ignore, None if self._numbers",
        "return 255, None if self._numbers",
        "tests/scoring/test_semantic_scores.py::test_maps_whose_numbers_mean_other_classes_are_refused",
    ),
    Mutant(
        "converters/formats/label_maps.py",
        "len(names) in (0, 2)",
        "len(names) in (0, 3)",
        "tests/converters/test_label_maps.py::test_binary_masks_with_names",
    ),
    Mutant(
        "converters/formats/label_maps.py",
        "if max(own, default=0) >= IDS:",
        "if max(own, default=0) > 4 * IDS:",
        "tests/converters/test_label_maps.py::test_one_file_of_many_is_named",
    ),
    Mutant(
        "converters/formats/csv_tables.py",
        "if words <= max(table.class_name, *table.edges)",
        "if words < min(table.class_name, *table.edges)",
        "tests/converters/test_csv_tables.py::test_a_row_that_is_cut_off_is_no_image_without_objects",
    ),
    Mutant(
        "detaug/named_options.py",
        "(command or name)",
        "(name or command)",
        "tests/cli/test_cli.py::test_messages_name_arguments_as_the_user_gave_them",
    ),
    Mutant(
        "detaug/check/boxes.py",
        "alone=not others)",
        "alone=bool(others))",
        "tests/check/test_repairs.py::test_a_class_that_another_split_has_is_kept",
    ),
    Mutant(
        "detaug/coco/typed.py",
        'finding.severity == "error" or finding.kind in REPAIRABLE',
        "finding.kind in REPAIRABLE",
        "tests/coco/test_typed.py::test_any_other_entry_is_read_or_refused_as_ever",
    ),
    Mutant(
        "detaug/coco/typed.py",
        "if left and left != sum(",
        "if False and left != sum(",
        "tests/coco/test_typed.py::test_any_other_text_is_read_or_refused_as_ever",
    ),
    Mutant(
        "detaug/coco/typed.py",
        'if "videos" in document.others or "segments_info" in annotations.others:',
        'if "segments_info" in annotations.others:',
        "tests/coco/test_typed.py::test_any_other_entry_is_read_or_refused_as_ever",
    ),
    Mutant(
        "detaug/coco/typed.py",
        "    if not data.isascii():",
        "    if False:",
        "tests/coco/test_typed.py::test_any_other_text_is_read_or_refused_as_ever",
    ),
    Mutant(
        "detaug/coco/typed.py",
        'return map(rings_of, values) if name == "segmentation" else values',
        "return values",
        "tests/coco/test_typed.py::test_any_other_entry_is_read_or_refused_as_ever",
    ),
    Mutant(
        "detaug/coco/typed.py",
        "[None if value is msgspec.UNSET else value for value in map(attrgetter(name), self.rows)]",
        "[0 for value in map(attrgetter(name), self.rows)]",
        "tests/coco/test_typed.py::test_columns_are_those_of_the_ordinary_way",
    ),
    Mutant(
        "detaug/files/pixel_types.py",
        "not kind & 0b101",
        "not kind & 0b001",
        "tests/files/test_image_headers.py::test_smaller_copies_and_masks_in_a_tiff_are_not_pages",
    ),
    Mutant(
        "detaug/files/image_headers.py",
        '> b"\\0\\0\\0\\1"',
        '>= b"\\0\\0\\0\\1"',
        "tests/files/test_image_headers.py::test_an_animation_of_one_frame_is_one_image",
    ),
    Mutant(
        "detaug/files/image_headers.py",
        "bool(head[20] & 0x02)",
        "bool(head[20] & 0x10)",
        "tests/files/test_image_headers.py::test_files_with_several_images_are_known",
    ),
    Mutant(
        "converters/mot/ground_truth.py",
        'text.rstrip(", ").split(",")] if "," in text else text.split()',
        'text.rstrip(", ").split(",") if word] if "," in text else text.split()',
        "tests/converters/test_mot.py::test_bad_lines",
    ),
    Mutant(
        "converters/records/record.py",
        "    if value is None and optional:",
        "    if value is None:",
        "tests/converters/test_missing_lists.py::test_a_list_that_is_not_there",
    ),
    Mutant(
        "detaug/ops/flips_and_crops.py",
        "resized = np.round(resized).clip(1)",
        "resized = resized.clip(1)",
        "tests/ops/test_geometric_draws.py::test_a_size_crop_of_a_crop_lies_in_the_image",
    ),
]


class Run(NamedTuple):
    """Tests that run."""

    mutant: Mutant
    process: BaseProcess
    folder: Path
    start: float


def planted(mutant: Mutant, root: Path) -> str:
    """Return the text of the file with the bug. Raise ValueError if what it replaces does not stand there once."""
    text = (root / mutant.file).read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.file} has {text.count(mutant.old)} times {mutant.old!r}")
    return text.replace(mutant.old, mutant.new)


def copy_of(source: Path, folder: Path) -> Path:
    """Copy the package and its tests, with what Python and Numba have compiled."""
    for name in COPIED:
        if (source / name).is_dir():
            shutil.copytree(source / name, folder / name, symlinks=True)
        else:
            shutil.copy2(source / name, folder / name)
    return folder


def plant(mutant: Mutant, folder: Path) -> None:
    """Write the bug into a copy. Numba would not compile the loops of other files again that call a changed one."""
    text = planted(mutant, folder)
    (folder / mutant.file).write_text(text, encoding="utf-8")
    if "@compiled" in text:
        for index in folder.rglob("*.nbi"):
            index.unlink()


def run_tests(folder: Path, tests: Sequence[str]) -> None:
    """Run tests of a copy in this process, which ends with pytest's exit code. Its output is FOLDER/output.txt."""
    os.setsid()
    with open(folder / "output.txt", "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(folder)
    os.environ["PYTHONPATH"] = str(folder)
    sys.path.insert(0, str(folder))
    import pytest

    options = ["-x", "-q", "-p", "no:cacheprovider", "-n", "0", "--basetemp", str(folder / "tmp")]
    code = pytest.main([*tests, *options])
    sys.stdout.flush()
    os._exit(code)


def started(mutant: Mutant, source: Path, folder: Path) -> Run:
    """Plant a bug in a new copy of `source`, and start its tests."""
    plant(mutant, copy_of(source, folder))
    process = multiprocessing.get_context("fork").Process(target=run_tests, args=(folder, mutant.tests.split()))
    process.start()
    return Run(mutant, process, folder, time.monotonic())


def verdict(run: Run) -> str:
    """Say how the tests of a bug ended, and remove its copy."""
    overdue = run.process.is_alive()
    if overdue:
        assert run.process.pid
        os.killpg(run.process.pid, signal.SIGKILL)
    run.process.join()
    code = run.process.exitcode
    tail = (run.folder / "output.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
    shutil.rmtree(run.folder, ignore_errors=True)
    if overdue or code == 1 or (code or 0) < 0:  # it hangs, a test fails, the process dies
        return "killed"
    return "SURVIVED" if code == 0 else f"error: pytest ended with {code}: {' '.join(tail)}"


def verdicts(mutants: Iterable[Mutant], source: Path, jobs: int) -> Iterator[tuple[Mutant, str, float]]:
    """Yield each bug, what its tests say, and the seconds that they took, as they end."""
    left, running = list(mutants)[::-1], list[Run]()
    with TemporaryDirectory() as parent:
        while left or running:
            while left and len(running) < jobs:
                running.append(started(left.pop(), source, Path(parent, str(len(left)))))
            ends = min(each.start for each in running) + SECONDS
            wait([each.process.sentinel for each in running], max(0, ends - time.monotonic()))
            now = time.monotonic()
            for run in [each for each in running if not each.process.is_alive() or now >= each.start + SECONDS]:
                running.remove(run)
                yield run.mutant, verdict(run), now - run.start


def import_libraries() -> None:
    """Import what takes seconds, once for all forks, but nothing of the package."""
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # threads do not live on in a fork
    import numba  # noqa: F401
    import nvidia.dali  # noqa: F401
    import torch  # noqa: F401


def check_tests(mutants: Sequence[Mutant], folder: Path) -> None:
    """Exit unless the named tests pass in a copy without a bug; that compiles its loops, too."""
    tests = sorted({test for mutant in mutants for test in mutant.tests.split()})
    process = multiprocessing.get_context("fork").Process(target=run_tests, args=(folder, tests))
    process.start()
    process.join()
    if process.exitcode:
        sys.exit((folder / "output.txt").read_text(encoding="utf-8", errors="replace") + "no bug is planted yet")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rooms = sorted({mutant.room for mutant in MUTANTS})
    parser.add_argument("--only", metavar="ROOM", choices=rooms, help=f"one of {', '.join(rooms)}")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="bugs at a time")
    options = parser.parse_args()
    mutants = [mutant for mutant in MUTANTS if options.only in (None, mutant.room)]
    for mutant in mutants:
        planted(mutant, ROOT)
    import_libraries()
    with TemporaryDirectory() as folder:
        source, survived = copy_of(ROOT, Path(folder)), 0
        check_tests(mutants, source)
        for mutant, how, seconds in verdicts(mutants, source, options.jobs):
            print(f"{how:8} {seconds:4.0f} s  {mutant}", flush=True)
            survived += how != "killed"
    print(f"{len(mutants) - survived} of {len(mutants)} are killed")
    sys.exit(int(survived > 0))


if __name__ == "__main__":
    main()
