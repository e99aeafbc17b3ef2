"""Predict with a model that `detaug train` wrote."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from detaug.arguments import SCORE, check, checks_names, is_number
from detaug.boxes.keypoints import KeyPoints
from detaug.boxes.views import invert
from detaug.coco.table import THIN
from detaug.drawing import class_colors, draw_boxes, draw_key_points, draw_masks
from detaug.drawing.maps import MapMarks, draw_map
from detaug.errors import InputError
from detaug.evaluation.merging import merge_tiles
from detaug.files.image_headers import PILLOW_ERRORS, read_orientation, upright
from detaug.files.large_images import ANY_NUMBER, allow_pixels, too_few_bytes
from detaug.files.pixel_types import refuse_loss
from detaug.findings.finding import counted
from detaug.loading.batch import Batch
from detaug.loading.batch_shapes import marks_of_classes
from detaug.loading.devices import resolve_device
from detaug.loading.source_pixels import move_boxes, move_masks, move_points
from detaug.maps.kinds import ClassMap
from detaug.ops.normalize import Normalize
from detaug.ops.op import Op
from detaug.ops.resize import Resize
from detaug.samples.images import read_image
from detaug.samples.samples import batch
from detaug.sheets import Detections
from detaug.sources.coco_reader import UnusedParents
from detaug.tiles.windows import check_grid, plan_tiles
from detaug.training.detectors import images_for, make_detector, place_model
from detaug.training.loaders import make_resize
from detaug.training.model_table import MODELS, Finds
from detaug.training.semantic_models import classes_in_source, classes_of_pixels
from detaug.training.torch_files import read_torch_file
from detaug.training.tta import TTA, SeenIn, merged_views
from detaug.training.weights import load_weights

OneImage: TypeAlias = str | os.PathLike[str] | Image.Image | NDArray[Any] | Tensor


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A trained detector with the preprocessing that it was evaluated with. Calling it is `predict`.

    >>> class Middle(torch.nn.Module):  # a detector that finds a car in the middle of any image
    ...     def forward(self, images):
    ...         box, score, label = torch.tensor([[80.0, 80, 240, 240]]), torch.tensor([0.9]), torch.tensor([1])
    ...         return [{"boxes": box, "scores": score, "labels": label} for _ in images]
    >>> ops = (da.Resize((320, 320)), da.Normalize())
    >>> model = da.TrainedModel(Middle(), ops, ("background", "car"), torch.device("cpu"))
    >>> (found,) = model("demo/VOC/JPEGImages/000003.jpg")
    >>> print(model.class_names[found["labels"][0]], found["boxes"])  # in pixels of the photograph
    car tensor([[ 93.7500, 125.0000, 281.2500, 375.0000]])
    """

    model: nn.Module
    """In evaluation mode; takes (N, 3, H, W) images after `ops`."""
    ops: tuple[Op, ...]
    class_names: tuple[str, ...]
    """Name of each label; index 0 is the background. Of "semantic", of each class of a pixel, from 0."""
    device: torch.device
    keypoints: KeyPoints | None = None
    """Names and skeletons of the keypoints that the model finds, of 0 annotations."""
    finds: Finds = "bbox"
    """What it finds beside boxes: "segm" masks, "keypoints" keypoints, "rotated" corners, "bbox" nothing else; or, in
    the place of objects, "semantic": the class of each pixel."""
    unused_parents: UnusedParents = "keep"
    """That of the training: whether its labels leave out categories that only group others, see `CocoReader`."""
    map: ClassMap | None = None
    """Of "semantic": what numbers in the files of the training's maps mean. Its folder is "". None: not known."""
    stride: int = 1
    """Both sides of its input are multiples of it; 0 where it takes a single size. For `TTA`."""
    smallest: int = 1
    """The shortest side of its input."""

    def predict(
        self,
        images: OneImage | Iterable[OneImage] | Batch,
        *,
        min_score: float = SCORE,
        tile: int | None = None,
        overlap: float = 0.2,
        tta: TTA | None = None,
    ) -> list[dict[str, Tensor]]:
        """Return the detections of each image, best first: boxes (K, 4) XYXY, scores (K,) and labels (K,), on the CPU.

        A model of keypoints also finds keypoints (K, P, 3), x, y in continuous pixels and 1, as torchvision has them; a
        model of masks also finds masks (K, H, W) bool; one of rotated boxes also finds corners (K, 4, 2) x, y, and
        boxes are those around them. Corners may lie outside of the image. A model of semantic segmentation finds
        "semantic" alone: (H, W) uint8, the class of each pixel.

        Raises OSError for a file that is not an image, InputError for other values, TypeError for what is not an image.

        Args:
            images: One or several, in a list also for one. An image is a file, whose EXIF orientation is applied; a PIL
                image, as it is; an array (H, W, 3) or a tensor (3, H, W), uint8 or floats in 0..1. Boxes are in its
                pixels. A `Batch` of a loader whose recipe is `ops` is several images, and boxes are in pixels of their
                sources; those in the padding are left out.
            min_score: The lowest score that counts, 0..1. The images of `detaug train` have the same default.
            tile: For large images, detect in tiles of this many pixels per side, whose neighbors have the fraction
                `overlap` of a side in common, and merge the detections, see `merge_tiles`; not for models of masks.
            tta: Detect in several views of each image, or tile, and merge the detections, see `TTA`. A model of
                semantic segmentation takes none of these, and a batch neither `tile` nor `tta`.
        """
        check("min_score", min_score, is_number(min_score, 0, 1), "in 0..1")
        if self.finds == "semantic":
            check("min_score", min_score, min_score == SCORE, "left out for a model of semantic segmentation")
            check("tile", tile, tile is None, "left out for a model of semantic segmentation")
            check("tta", tta, tta is None, "left out for a model of semantic segmentation")
        check("tta", tta, tta is None or isinstance(tta, TTA), "None or a da.TTA(...)")
        if isinstance(images, Batch):
            for name, value in (("tile", tile), ("tta", tta)):
                check(name, value, value is None, "None for a batch: give the images themselves")
            return self._predict_batch(images, min_score)
        several = [images] if _is_one(images) else cast("Iterable[OneImage]", images)
        if tile is None:
            return [self._predict(pixels_of(image), min_score, tta) for image in several]
        check_grid(tile, overlap)
        return [self._predict_in_tiles(pixels_of(image), min_score, tile, overlap, tta) for image in several]

    __call__ = predict

    def views(self, tta: TTA) -> list[tuple[Op, ...]]:
        """Return the recipe of each view of `tta`, in sizes that the model takes."""
        return tta.views(self.ops, stride=self.stride, smallest=self.smallest)

    def _predict_batch(self, batch: Batch, min_score: float) -> list[dict[str, Tensor]]:
        batch = batch.to(self.device)
        if self.finds == "semantic":
            with torch.inference_mode():
                scores = self.model(batch.images)
            return [{"semantic": classes_in_source(batch, scores, index)} for index in range(len(batch))]
        with torch.inference_mode():
            every = Detections.of(batch, self.model(images_for(self.model, batch)), min_score)
        detections = []
        for objects in every:
            arrays = {"boxes": torch.from_numpy(objects.boxes).float()}
            arrays |= {
                "scores": torch.tensor(objects.scores),
                "labels": torch.tensor(objects.labels, dtype=torch.int64),
            }
            if objects.masks is not None:
                arrays["masks"] = torch.from_numpy(objects.masks)
            if objects.corners is not None:
                arrays["corners"] = torch.from_numpy(objects.corners).float()
            if objects.keypoints is not None:
                points = torch.from_numpy(objects.keypoints).float()
                arrays["keypoints"] = torch.cat([points, torch.ones_like(points[..., :1])], dim=-1)
            detections.append(arrays)
        return detections

    def _predict_in_tiles(
        self, image: NDArray[np.uint8], min_score: float, tile: int, overlap: float, tta: TTA | None
    ) -> dict[str, Tensor]:
        size = image.shape[:2]
        windows = plan_tiles(np.array([size]), tile, overlap).windows
        tiles = []
        for x, y, width, height in windows.tolist():
            tiles.append(self._predict(np.ascontiguousarray(image[y : y + height, x : x + width]), 0, tta))
            if "masks" in tiles[0]:
                raise InputError("tile is for models of boxes and keypoints, and this one finds masks; leave it out")
        merged = merge_tiles(tiles, windows, size)
        high = merged["scores"] >= min_score  # only now: a cut box gives way to a whole one of a lower score
        return {name: values[high] for name, values in merged.items()}

    def draw(self, image: OneImage, *, min_score: float = SCORE) -> Image.Image:
        """Draw the detections on the image: boxes, scores, masks, skeletons, rotated boxes; or classes.

        Arguments as in `predict`.
        """
        pixels = pixels_of(image)
        detections = self._predict(pixels, min_score)
        return self.draw_found(pixels, {name: values.numpy() for name, values in detections.items()})

    def draw_found(self, pixels: NDArray[np.uint8], detections: Mapping[str, NDArray[Any]]) -> Image.Image:
        """Return an image of an image (H, W, 3) with detections, as `predict` finds them, as arrays."""
        if "semantic" in detections:
            marks = MapMarks(detections["semantic"], -1, dict(enumerate(self.class_names)))
            return draw_map(pixels, marks, class_colors(self.class_names))
        names = [self.class_names[label] for label in detections["labels"].tolist()]
        texts = [f"{name} {score:.2f}" for name, score in zip(names, detections["scores"].tolist(), strict=True)]
        colors = class_colors(self.class_names)
        image = Image.fromarray(pixels)
        if "masks" in detections:
            image = draw_masks(image, detections["masks"], [colors[name] for name in names])
        corners = detections.get("corners")
        image = draw_boxes(image, detections["boxes"], names, labels=texts, colors=colors, corners=corners)
        if self.keypoints is None:
            return image
        points = detections["keypoints"][..., :2]
        return draw_key_points(image, marks_of_classes(self.keypoints, detections["labels"] - 1, points))

    def _predict(self, image: NDArray[np.uint8], min_score: float, tta: TTA | None = None) -> dict[str, Tensor]:
        if tta is not None:
            seen = [self._seen_in(image, ops) for ops in self.views(tta)]
            merged = merged_views(seen, image.shape[:2], self.keypoints, tta)
            high = merged["scores"] >= min_score  # only now: of views that miss an object the mean is lower
            return {name: values[high] for name, values in merged.items()}
        samples = batch([image], device=self.device).then(*self.ops)
        with torch.inference_mode():
            (predictions,) = self.model(torch.from_numpy(samples.images[0])[None].to(self.device))
        if self.finds == "semantic":
            to_output, output = torch.from_numpy(samples.matrix[0]), samples.images[0].shape[1:]
            return {"semantic": classes_of_pixels(predictions, to_output, image.shape[:2], output)}
        boxes, scores, labels = (predictions[name].cpu() for name in ("boxes", "scores", "labels"))
        to_source = torch.from_numpy(invert(samples.matrix))
        boxes = move_boxes(boxes[None], to_source)[0]
        height, width, _ = image.shape
        inside = boxes.clamp(min=0).minimum(boxes.new_tensor([width, height] * 2))
        in_image = (inside[:, 2:] - inside[:, :2] >= THIN).all(1)  # the others lie in the fill of a letterbox
        high = (scores >= min_score) & in_image
        detections = {"boxes": inside[high], "scores": scores[high], "labels": labels[high]}
        if "masks" in predictions:
            to_output = torch.from_numpy(samples.matrix[0])
            parts = move_masks(predictions["masks"][high.to(self.device), 0], to_output, height, width)
            detections["masks"] = torch.cat([part.cpu() for part in parts])
        if "corners" in predictions:
            detections["corners"] = move_points(predictions["corners"].cpu()[high][None], to_source)[0]
        if self.keypoints is not None:
            points = predictions["keypoints"].cpu()[high]
            moved = move_points(points[None, ..., :2], to_source)[0]
            detections["keypoints"] = torch.cat([moved, points[..., 2:].to(moved)], dim=-1)
        return detections

    def _seen_in(self, image: NDArray[np.uint8], ops: tuple[Op, ...]) -> SeenIn:
        samples = batch([image], device=self.device).then(*ops)
        (pixels,), field = samples.images, samples.plan.views.field
        with torch.inference_mode():
            (predictions,) = self.model(torch.from_numpy(pixels)[None].to(self.device))
        return SeenIn(predictions, samples.matrix[0], pixels.shape[1:], field)


def keypoints_entry(key_points: KeyPoints | None) -> dict[str, Any]:
    """Return the entry of model.pt for the keypoints of a model, {} without any."""
    if key_points is None:
        return {}
    names, skeletons = map(list, key_points.names), [[[*bone] for bone in bones] for bones in key_points.skeletons]
    entry = {"count": key_points.count, "names": [*names], "skeletons": skeletons}
    return {"keypoints": entry | {"swapped": key_points.swapped.tolist(), "flips_unknown": key_points.flips_unknown}}


def map_entry(map: ClassMap | None) -> dict[str, Any]:
    """Return the entry of model.pt for what the numbers in the files of maps mean, {} without maps."""
    if map is None:
        return {}
    table: Any = map.table
    if isinstance(table, Mapping):  # of plain numbers, which `read_torch_file` takes
        keys = (tuple(int(band) for band in key) if isinstance(key, tuple) else int(key) for key in table)
        table = dict(zip(keys, [int(value) for value in table.values()], strict=True))
    return {"map": {"ignore": int(map.ignore), "table": table}}


def _read_keypoints(entry: dict[str, Any] | None) -> KeyPoints | None:
    """Return what `keypoints_entry` made an entry of."""
    if entry is None:
        return None
    skeletons = [[(a, b) for a, b in bones] for bones in entry["skeletons"]]
    swapped, unknown = np.array(entry["swapped"], np.int64), entry.get("flips_unknown", "")  # 0.2 had no such entry
    return KeyPoints(np.zeros((0, entry["count"], 3)), entry["names"], skeletons, swapped, unknown)


@checks_names
def load_model(path: str | os.PathLike[str], device: torch.device | str | None = None) -> TrainedModel:
    """Load the model.pt of `detaug train`. `device`: as in `Loader`. Raises InputError for another file.

    Args:
        path: The file, model.pt or best.pt.
        device: As in `Loader`.

    >>> from detaug.training.detectors import make_detector
    >>> name, classes = "ssdlite320_mobilenet_v3_large", ("background", "ball", "car")
    >>> weights = make_detector(name, len(classes)).model.state_dict()  # detaug train would train them, and write:
    >>> torch.save({"name": name, "size": (320, 320), "class_names": classes, "model": weights}, "model.pt")
    >>> model = da.load_model("model.pt", device="cpu")
    >>> (found,) = model.predict("demo/VOC/JPEGImages/000003.jpg")
    >>> print(model.class_names[1:], found["boxes"].shape)
    ('ball', 'car') torch.Size([0, 4])
    """
    content = read_torch_file(Path(path))
    unknown = [name for name in ("name", "size", "class_names") if name not in content]
    if unknown:
        remedy = "to train from the weights of another program, give them to detaug train as --weights"
        if "ranks" in content:
            remedy = "it is a checkpoint for --resume, and the models are best.pt and model.pt beside it"
        raise InputError(
            f"{os.fspath(path)} is not a model.pt of detaug train: it lacks {', '.join(unknown)}; {remedy}"
        )
    class_names, chosen = tuple(content["class_names"]), resolve_device(device)
    keypoints = _read_keypoints(content.get("keypoints"))
    of_data = {} if keypoints is None else {"num_keypoints": keypoints.count}
    finds = MODELS[content["name"]].finds
    detector, missing, _ = load_weights(make_detector(content["name"], len(class_names), **of_data), Path(path))
    classes = len(class_names) - (finds != "semantic")  # without the background
    if missing:  # to predict with random weights would be noise; only a training may begin so
        raise InputError(
            f"{os.fspath(path)} does not hold the whole {content['name']} of its {classes} class_names: "
            f"{counted(len(missing), 'weight')} missing or of another shape, the first is {missing[0]!r}; give a "
            "model.pt as detaug train wrote it, or train with this file as --weights"
        )
    if "resize" in content:
        resize = Resize(**content["resize"])
    else:  # a file of 0.2.0 or before
        size = content["size"]
        resize = make_resize(int(size) if isinstance(size, int) else (int(size[0]), int(size[1])))
    ops = (resize, Normalize(detector.mean, detector.std))
    row = MODELS[content["name"]]
    of_map = content.get("map")  # so has no file of 0.2.0 or before, as no `unused_parents`
    return TrainedModel(
        place_model(detector.model, chosen).eval(),
        ops,
        class_names,
        chosen,
        keypoints,
        finds,
        content.get("unused_parents", "keep"),
        None if of_map is None else ClassMap("", classes=class_names, **of_map),
        row.stride,
        row.smallest,
    )


def code_to_predict(model: Path, image: Path, finds: Finds) -> str:
    """Return Python that predicts with a model.pt, and prints and draws what it finds in an image."""
    name = "found" if finds == "semantic" else "detections"
    uses = """names = [model.class_names[label] for label in detections["labels"]]
print(names, detections["scores"], detections["boxes"])"""
    if finds == "semantic":
        uses = """names = [model.class_names[number] for number in found["semantic"].unique()]
print(names, found["semantic"].shape)"""
    return f"""\
import detaug as da

model = da.load_model({str(model)!r})
({name},) = model.predict({str(image)!r})
{uses}
model.draw({str(image)!r}).save("{name}.jpg")"""


def _is_one(images: Any) -> bool:
    if isinstance(images, np.ndarray | Tensor):
        return images.ndim <= 3
    return isinstance(images, str | bytes | os.PathLike | Image.Image) or not isinstance(images, Iterable)


def pixels_of(image: Any) -> NDArray[np.uint8]:
    """Return an image as (H, W, 3) uint8."""
    if isinstance(image, str | os.PathLike):
        with open(image, "rb") as content:
            refuse_loss(image, content)
            orientation = read_orientation(content)
            with allow_pixels(ANY_NUMBER), Image.open(content) as file:
                width, height = file.size
                if fault := too_few_bytes(width, height, os.fstat(content.fileno()).st_size):
                    raise InputError(f"{os.fspath(image)} {fault}; get the file again")
                try:
                    file.load()
                except PILLOW_ERRORS as error:
                    raise OSError(f"{os.fspath(image)}: does not decode ({error}); get the file again") from None
                return pixels_of(upright(file, orientation))
    if isinstance(image, Image.Image) and image.mode[0] not in "IF":  # those are more than 8 bits
        image = image.convert("RGB")
    return read_image(image.cpu() if isinstance(image, Tensor) else image)
