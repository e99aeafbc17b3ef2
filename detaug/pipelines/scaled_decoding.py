"""Decode large JPEGs on the CPU at a half, a quarter or an eighth of their size: `Resize(..., decode="scaled")`.

libjpeg-turbo computes fewer pixels from the same coefficients, which costs a third of decoding 12 megapixels whole and
resizing them. The last scale at which the part of the image in view has at least twice the output's pixels along both
axes keeps the result within a few levels of 255: Resize still averages what is left.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile, get_sampling

from detaug.arrays import Bytes, Floats, Ints
from detaug.files.image_headers import parse_image_header, upright
from detaug.files.large_images import ANY_NUMBER, allow_pixels
from detaug.pipelines.graph import Node, Nodes
from detaug.pipelines.threads import apply_in_threads

SCALES = np.array([1, 2, 4, 8], np.int32)
"""The image's side / the decoded image's. libjpeg-turbo decodes at other scales more slowly than whole."""
_LEAST_SHARES = np.array([0, 0.6, 0.4, 0.25])
"""The window's fraction of the image from which scales pay. A smaller window is decoded sooner alone: of the rest of
the image, the decoder then computes no pixels, and reads nothing that is below. Measured with 12 megapixels."""
_REVERSE_ROWS, _REVERSE_COLUMNS = (2, 3, 7, 8), (3, 4, 6, 7)  # values of EXIF's orientation
_SQUARE_SAMPLINGS = (0, 2)  # Pillow's names of 4:4:4 and 4:2:0


def choose_scales(region: Floats, sizes: Ints) -> NDArray[np.int32]:
    """Return (N,): the scale to decode each image at. `region`: the input of Resize; `sizes`: (N, 2) of the images."""
    window = np.abs(region[:, 1] - region[:, 0])
    shrinks = (window / region[:, 2]).min(1)  # source pixels for one of the output
    index = np.searchsorted(2 * SCALES[1:], shrinks, side="right")
    pays = (window / sizes).prod(1) >= _LEAST_SHARES[index]
    return np.asarray(SCALES[np.where(pays, index, 0)])


def decoded_sizes(sizes: Ints, scales: NDArray[np.int32]) -> Ints:
    """Return (N, 2): the (height, width) of images of these sizes, decoded at these scales."""
    return -(-sizes // scales[:, None])


def scaled_region(region: Floats, scales: NDArray[np.int32]) -> Floats:
    """Return the input of Resize for images at these scales."""
    return np.concatenate([region[:, :2] / scales[:, None, None], region[:, 2:]], axis=1, dtype=region.dtype)


def decode_scaled(nodes: Nodes) -> Node:
    """Return the node of (H, W, 3) uint8 RGB images: the "window" of each "image" at its "scale"."""
    return apply_in_threads(_decode, nodes["image"], nodes["scale"], nodes["window"])


def _decode(encoded: Bytes, scale: NDArray[np.int32], window: NDArray[np.int32]) -> NDArray[Any]:
    orientation = parse_image_header(BytesIO(encoded.data)).orientation
    with allow_pixels(ANY_NUMBER), _open(encoded) as image:  # `of_size` has checked the size
        rotated = _upright_at_scale(image, int(scale), orientation)
    (top, left), (height, width) = window.tolist()
    return np.asarray(rotated.crop((left, top, left + width, top + height)))


def _open(encoded: Bytes) -> Image.Image:
    file = BytesIO(encoded.data)
    return JpegImageFile(file) if bytes(encoded[:3]) == b"\xff\xd8\xff" else Image.open(file)  # the former is faster


def _upright_at_scale(image: Image.Image, scale: int, orientation: int) -> Image.Image:
    """Return the image as RGB, upright: its pixel i is made of the pixels from i * scale to (i + 1) * scale.

    What the decoder leaves to do is done by averaging, as all is for other formats than JPEG.
    """
    width = image.width
    if (smaller := _scale_of_decoder(image, scale, orientation)) > 1:
        image.draft(None, (width // smaller, image.height // smaller))
    left = scale if image.width == width else scale // smaller
    rotated: Image.Image = upright(image, orientation).convert("RGB")
    return rotated if left == 1 else rotated.reduce(left)


def _scale_of_decoder(image: Image.Image, scale: int, orientation: int) -> int:
    """Return the scale at which libjpeg-turbo should decode for an image at `scale`.

    It counts from the first pixel of the file: where turning makes that the last one, and the side is not a multiple of
    the scale, the image is decoded whole. A quarter and an eighth lose detail of colors that have fewer columns than
    brightness, but all rows, and of CMYK, of which the average is another color than the average of its colors.
    """
    reversed_sides = [image.width] * (orientation in _REVERSE_ROWS) + [image.height] * (orientation in _REVERSE_COLUMNS)
    if any(side % scale for side in reversed_sides):
        return 1
    return scale if image.mode == "L" or get_sampling(image) in _SQUARE_SAMPLINGS else 2
