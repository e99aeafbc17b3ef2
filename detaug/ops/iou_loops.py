"""Numba's loops that search windows for SSD's random crop: see `iou_crop.py`.

Boxes and windows are XYXY, relative to the view. `visibility`: the fraction of a box's area by which it stays; -1 where
its center decides.
"""

from __future__ import annotations

import numpy as np

from detaug.compiled import compiled

ROUNDS = 8
"""The largest number of thresholds that are tried for an image."""
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST_FACTOR, _SECOND_FACTOR = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@compiled
def search(boxes, labels, seeds, aspect_ratio, grid, rule, thresholds, attempts, allow_no_crop, windows):
    """Write to `windows` (N, 4) those that were found; others stay as they are.

    `boxes` (N, M, 4), `labels` (N, M), -1 where there is none; `seeds` (N,): an image's numbers depend on its own only.
    `aspect_ratio` (N,): width / height of the views in pixels; `grid` (N, 2, 2): for x, y the view's side in source
    pixels, and its first pixel coordinate. `rule`: scaling, its smallest squared, aspect ratios, whether these are
    drawn, visibility. `thresholds`: ascending.
    """
    low, high, low_squared = rule[:3]
    iou, own, extremes = np.empty(ROUNDS), np.empty((boxes.shape[1], 4)), np.empty((2, 3))
    for image in range(len(boxes)):
        count, best = 0, -1.0
        for measure in range(3):
            extremes[0, measure], extremes[1, measure] = np.inf, -np.inf
        for box in range(boxes.shape[1]):
            if labels[image, box] < 0:
                continue
            for side in range(4):
                own[count, side] = boxes[image, box, side]
            width, height = own[count, 2] - own[count, 0], own[count, 3] - own[count, 1]
            count += 1
            for number, measure in enumerate((width, height, width * height)):
                extremes[0, number] = min(extremes[0, number], measure)
                extremes[1, number] = max(extremes[1, number], measure)
            bound = min(width / low, height / low, high / width, high / height, width * height / low_squared)
            best = max(best, bound)  # no window has a larger IoU with any box
        if count:
            reachable = 0
            for threshold in thresholds:
                reachable += threshold <= best
            _draw_thresholds(seeds[image], reachable, thresholds, allow_no_crop, iou)
            view = aspect_ratio[image], grid[image]
            _search(own[:count], extremes, seeds[image], view, rule, iou, attempts, windows[image])


@compiled
def _draw_thresholds(seed, reachable, thresholds, allow_no_crop, iou):
    """Draw the IoU to reach in each round, up to the NaN of "no crop". Only the `reachable` first ones are drawn."""
    for number in range(ROUNDS):
        half, counter = divmod(number, ROUNDS // 2)
        choice = np.int64(_numbers(seed, counter)[half] * (reachable + allow_no_crop))
        if choice >= reachable:
            iou[number] = np.nan
            break
        iou[number] = thresholds[choice]


@compiled
def _search(boxes, extremes, seed, view, rule, iou, attempts, window):
    """Write the first window that keeps a box and reaches the IoU of its round with it, if there is one."""
    low, high, _, narrowest, widest, ratio_is_drawn, visibility = rule
    ratio_of_view, grid = view
    start, end = np.empty(2), np.empty(2)
    for attempt in range(ROUNDS * attempts):
        wanted, counter = iou[attempt // attempts], ROUNDS + 2 * attempt
        if np.isnan(wanted):
            return
        numbers = _numbers(seed, counter)
        width, height = low + (high - low) * numbers[0], low + (high - low) * numbers[1]
        if ratio_is_drawn:
            slope = narrowest * (widest / narrowest) ** numbers[1] / ratio_of_view  # width / height, both relative
            least, most = max(low, low * slope), min(high, high * slope)
            if least > most:
                continue
            width = least + (most - least) * numbers[0]
            height = width / slope
        ratio = width / height * ratio_of_view
        if not narrowest * (1 - 1e-9) <= ratio <= widest * (1 + 1e-9):
            continue
        possible = True  # an IoU is at most the ratio of widths, heights or areas, the smaller to the larger
        for measure, side in enumerate((width, height, width * height)):
            possible &= side >= wanted * extremes[0, measure] and side * wanted <= extremes[1, measure]
        if not possible:
            continue
        numbers = _numbers(seed, counter + 1)
        for axis, side in enumerate((width, height)):
            first = numbers[axis] * (1 - side)
            length, phase = grid[axis]
            # whole pixels, outwards; but for rounding, which would add a pixel to a side on the border of one
            pixel, after = np.floor(first * length + phase + 1e-6), np.ceil((first + side) * length + phase - 1e-6)
            start[axis] = min(max((pixel - phase) / length, 0.0), 1.0)
            end[axis] = min(max((after - phase) / length, 0.0), 1.0)
        tried = start[0], start[1], end[0], end[1]
        for box in boxes:
            areas = _area(box) + _area(tried)
            # overlap / (areas - overlap) >= wanted, without a division
            if _overlap(box, tried) * (1 + wanted) >= wanted * areas and _stays(box, tried, visibility):
                window[0], window[1], window[2], window[3] = tried
                return


@compiled
def stay(boxes, labels, windows, visibility):
    """Return (N, M): which of the boxes (N, M, 4) stay in windows (N, 4); False where there is none."""
    keep = np.zeros(labels.shape, np.bool_)
    for image in range(len(boxes)):
        for box in range(boxes.shape[1]):
            if labels[image, box] >= 0:
                keep[image, box] = _stays(boxes[image, box], windows[image], visibility)
    return keep


@compiled
def _stays(box, window, visibility):
    if visibility >= 0:
        return _overlap(box, window) >= visibility * _area(box)
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    return window[0] < x < window[2] and window[1] < y < window[3]


@compiled
def _area(box):
    return (box[2] - box[0]) * (box[3] - box[1])


@compiled
def _overlap(box, window):
    """Return the area of the intersection."""
    width = min(box[2], window[2]) - max(box[0], window[0])
    height = min(box[3], window[3]) - max(box[1], window[1])
    return max(width, 0.0) * max(height, 0.0)


@compiled
def _numbers(seed, counter):
    """Return two numbers in [0, 1) for a seed and a counter.

    The two are the halves of one output of SplitMix64 (Steele et al. 2014, Fast Splittable Pseudorandom Number
    Generators), whose state goes up by a constant for each counter.
    """
    bits = seed + np.uint64(counter) * _STEP
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST_FACTOR
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND_FACTOR
    bits ^= bits >> np.uint64(31)
    high, low = bits >> np.uint64(12), (bits << np.uint64(32)) >> np.uint64(12)
    return np.float64(high) * 2.0**-52, np.float64(low) * 2.0**-52
