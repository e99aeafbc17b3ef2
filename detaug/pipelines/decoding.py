"""Read and decode the images of a source: the DALI nodes, and what they are fed with."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from nvidia.dali import fn, tensors, types

from detaug.arrays import Bytes, Ints
from detaug.files.decodable import as_decodable
from detaug.machine.cores import available_cores
from detaug.machine.threads import Threads
from detaug.pipelines.graph import Node, Nodes, either
from detaug.pipelines.scaled_decoding import decode_scaled
from detaug.pixel_format import PixelFormat
from detaug.sources.decoder import as_stored, dali_type
from detaug.sources.source import Source


def decoded(source: Source, device: str, hw_decoder_load: float = 1.0, part: Nodes | None = None) -> Node:
    """Return the node of (H, W, 3) uint8 RGB images on `device`, with the EXIF orientation applied.

    For a source with another `pixel_format` they are (H, W, bands) float32, in the values of the files; for a GPU too
    the CPU decodes them, and they are copied in the type of the files, which is smaller. It is fed with `inputs`. An
    image that does not decode, or not of the size that the source says, is an error of the pipeline. On a GPU the
    fraction `hw_decoder_load` of the JPEGs goes to its JPEG engine. `part`: on the CPU, what to decode of the image:
    its "window", the first corner and the size, (2, 2) (y, x), whose pixels are those of the whole image; and, of a
    smaller image, the "scale", see `scaled_decoding`.
    """
    pixels = source.pixel_format
    if pixels.is_rgb8:
        return decode(input_nodes(source), device, hw_decoder_load, part)
    image = decode(input_nodes(source), "cpu", part=part, output=as_stored(pixels))
    return used_bands(image, pixels, device)


def decode(
    encoded: Nodes,
    device: str,
    hw_decoder_load: float = 1.0,
    part: Nodes | None = None,
    output: Mapping[str, Any] = MappingProxyType({"output_type": types.RGB}),
) -> Node:
    """Return `decoded` of the nodes of `input_nodes`. `output`: what the decoder returns."""
    if "pixels" in encoded:
        return _pixels(encoded["pixels"], device, part)
    file = fn.io.file.read(encoded["path"], dont_use_mmap=True) if "path" in encoded else encoded["bytes"]
    image = of_size(file, encoded["size"])  # mmap would stall all threads
    if part:
        return _decode_part({"image": image, **part}, output)
    if device == "cpu":
        return fn.decoders.image(image, device="cpu", **output)
    return fn.decoders.image(
        image,
        device="mixed",
        **output,
        hw_decoder_load=hw_decoder_load,
        preallocate_width_hint=640,
        preallocate_height_hint=640,
    )


def _decode_part(nodes: Nodes, output: Mapping[str, Any]) -> Node:
    def decode_window(nodes: Nodes) -> Node:
        start, shape = nodes["window"][0], nodes["window"][1]
        return fn.decoders.image_slice(nodes["image"], start=start, shape=shape, axes=[0, 1], device="cpu", **output)

    scaled = "scale" in nodes
    return either(nodes["scale"] > 1, nodes, decode_scaled, decode_window) if scaled else decode_window(nodes)


def used_bands(image: Node, pixels: PixelFormat, device: str) -> Node:
    """Return the bands that are used of an image on the CPU, as float32 on the device.

    An image of other bands is an error of the pipeline.
    """
    height, width = (image.shape(dtype=types.INT32)[axis] for axis in (0, 1))
    image = image if device == "cpu" else image.gpu()
    image = fn.reshape(image, shape=fn.stack(height, width, np.int32(pixels.channels)), layout="HWC")  # no copy
    if pixels.bands is not None:
        image = fn.cat(*(image[:, :, band : band + 1] for band in pixels.bands), axis=2)
    return fn.reshape(fn.cast(image, dtype=types.FLOAT), layout="HWC")


def _pixels(image: Node, device: str, part: Nodes | None) -> Node:
    """Return images that the source has decoded."""
    if part:
        start, shape = part["window"][0], part["window"][1]
        image = fn.slice(image, start=start, shape=shape, axes=[0, 1])
    return image if device == "cpu" else image.gpu()


def input_nodes(source: Source) -> Nodes:
    """Return the nodes of `inputs`, by name."""
    if source.decodes:
        dtype = dali_type(source.pixel_format)
        return {"pixels": fn.external_source(name="pixels", no_copy=True, dtype=dtype, layout="HWC")}
    size = fn.external_source(name="size")
    if source.files:
        return {"path": fn.external_source(name="path"), "size": size}
    return {"bytes": fn.external_source(name="bytes", no_copy=True, dtype=types.UINT8, ndim=1), "size": size}


def inputs(source: Source, indices: Ints, wanted: Ints | None = None) -> dict[str, Any]:
    """Return the inputs of `decoded` for these images, by name. `wanted`: the positions of those that are used."""
    wanted = np.arange(len(indices)) if wanted is None else wanted
    if source.decodes:
        unread = np.zeros((1, 1, source.pixel_format.channels), source.pixel_format.dtype)
        return {"pixels": _contents(source, indices, wanted, unread, "HWC")}
    size = source.sizes[indices].astype(np.int32)
    if source.files:
        return {"path": source.paths(indices), "size": size}
    contents = _contents(source, indices, wanted, np.zeros(1, np.uint8))
    return {"bytes": contents, "size": size}


def _contents(source: Source, indices: Ints, wanted: Ints, unread: Bytes, layout: str = "") -> list[Any]:
    """Return what the source has of images, for DALI, without a copy. `unread`: for those that are not `wanted`.

    What DALI's decoder cannot read, or not with all its bands, is written again.
    """
    contents, as_rgb = [unread] * len(indices), source.pixel_format.is_rgb8
    encoded = source.contents(indices[wanted]) if len(wanted) else []
    if not source.decodes and (source.has_heif or not as_rgb):
        sizes = map(tuple, source.sizes[indices[wanted]].tolist())
        with Threads(available_cores()) as pool:
            encoded = pool.map(partial(as_decodable, as_rgb=as_rgb), encoded, [*sizes])
    for index, content in zip(wanted.tolist(), encoded, strict=True):
        contents[index] = content
    return [tensors.TensorCPU(content, layout) for content in contents]


def of_size(encoded: Node, size: Node) -> Node:
    """Return the encoded images; one that is not of `size` (height, width) is an error of the pipeline.

    The decoder must not see it: DALI 2.4 ends the process on a GPU for a file that is not an image while other batches
    are in flight, and on both devices where a view lies outside of a smaller image.
    """
    shape = fn.peek_image_shape(encoded, dtype=types.INT32)
    length = encoded.shape(dtype=types.INT32)[0] + (shape[0] != size[0]) + (shape[1] != size[1])
    length = fn.stack(fn.cast(length, dtype=types.INT32))
    return fn.reshape(encoded, shape=length)  # no copy; fails where the image has another size than the JSON file says
