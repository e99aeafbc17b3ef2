"""Read the samples of a WebDataset shard: members of a tar with the same key, an image and its labels."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import BinaryIO, NamedTuple, cast

from detaug.coco.writer import whole, whole_numbers
from detaug.converters.shards.documents import Document, ShardPlace, document_sample, parse_document
from detaug.converters.shards.samples import (
    Annotation,
    ClassLabel,
    SampleError,
    Shard,
    ShardContent,
    ShardSample,
    check_header,
    file_name,
    noted,
    shifted,
)
from detaug.converters.shards.tar import Member, read_members
from detaug.converters.yolo.labels import LabelLog, RowForm, read_boxes
from detaug.files.image_file import FileRange, load_crc32c
from detaug.files.image_headers import IMAGE_EXTENSIONS, ImageHeader, parse_image_header
from detaug.files.paths import require_file
from detaug.files.text import MAX_TEXT_BYTES
from detaug.findings.finding import has_error, shown

_NAME = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)")  # webdataset's rule: the key ends at the first dot of the file name
_IMAGES = frozenset(extension[1:] for extension in IMAGE_EXTENSIONS)
_LABELS = frozenset(("json", "cls", "txt"))
_RULE = "a key ends at the first dot of a name's last part"
_MOST_CLASSES = 1_000_000


class _Group(NamedTuple):
    """The members of one sample."""

    key: str
    members: list[tuple[str, Member]]
    """(extension in lower case, member)."""

    def member(self, extension: str) -> Member | None:
        """Return the member with an extension."""
        return next((member for ending, member in self.members if ending == extension), None)


class _Unused:
    """The members that are not read, counted by their extension, with one of each as an example."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        self._reasons: dict[str, str] = {}

    def add(self, member: Member, reason: str = _RULE) -> None:
        """Count a member, and the first reason of its extension why it is not read."""
        name = member.name.rpartition("/")[2]
        extension = "." if name[0] == "." else name.rpartition(".")[2] if "." in name else ""
        self._reasons.setdefault(extension, reason)
        self._counts[extension] += 1
        self._examples.setdefault(extension, member.name)

    def note(self, content: ShardContent) -> None:
        """Append a finding for each extension."""
        special = {"": "members without an extension", ".": "hidden members"}
        for extension, count in sorted(self._counts.items()):
            example, which = self._examples[extension], special.get(extension, f"members .{extension}")
            note = f"{count:,} {which} are not read, such as {example}; {self._reasons[extension]}"
            content.note("member-unused", example, note, [extension, count], count=count)


def read_webdataset(first_label: int, shard: Shard) -> ShardContent:
    """Read all samples of a shard. What cannot be used becomes a finding."""
    content = ShardContent(shard)
    positions: dict[str, int | None] = {}
    with_image = set[str]()
    unused = _Unused()
    with noted(content), _opened(shard.path) as file:
        for group in _groups(file, unused):
            with noted(content, group.key):
                _check_group(group, positions, with_image, content)
                if not _has_dots_in_names(group, content):
                    for extension, member in group.members:
                        if extension not in _IMAGES and extension not in _LABELS:
                            unused.add(member)
                    if _is_used(group):
                        content.add(_sample(file, group, first_label, content, unused))
                        positions[group.key] = len(content.samples) - 1
    content.samples = [sample for sample in content.samples if sample.length]
    unused.note(content)
    return content


@contextmanager
def _opened(path: str) -> Iterator[int]:
    require_file(path)
    file = os.open(path, os.O_RDONLY)
    try:
        yield file
    finally:
        os.close(file)


def _groups(file: int, unused: _Unused) -> Iterator[_Group]:
    """Yield the samples in the tar: consecutive members with the same key."""

    def keyed() -> Iterator[tuple[str, str, Member]]:
        for member in read_members(file):
            match = _NAME.fullmatch(member.name)
            if match:
                extension = match[2].lower()
                is_read = extension.rpartition(".")[2] in _IMAGES | _LABELS
                yield match[1], extension, member if is_read else member._replace(head=b"")
            elif member.fault:
                yield member.name, "", member
            else:
                unused.add(member)

    for key, members in groupby(keyed(), key=lambda entry: entry[0]):
        by_extension = [(extension, member) for _, extension, member in members]
        extensions = {extension for extension, _ in by_extension}
        yield _Group(key, [(_label_extension(ending, extensions), member) for ending, member in by_extension])


def _label_extension(extension: str, extensions: set[str]) -> str:
    """Return `json` for `jpg.json` beside `jpg`, without a `json` of its own: labels with their image's whole name."""
    image, _, label = extension.rpartition(".")
    is_label = label in _LABELS and label not in extensions and image in _IMAGES and image in extensions
    return label if is_label else extension


def _is_used(group: _Group) -> bool:
    """Return whether the group has an image or labels that are read."""
    return any(extension in _IMAGES or extension in _LABELS for extension, _ in group.members)


def _has_dots_in_names(group: _Group, content: ShardContent) -> bool:
    """Return whether a group without a member to read has images, with a finding: they are samples of their own."""
    images = [member.name for extension, member in group.members if extension.rpartition(".")[2] in _IMAGES]
    if not images or _is_used(group):
        return False
    which = "an image is" if len(images) == 1 else f"{len(images):,} images are"
    name = group.key.rpartition("/")[2]
    note = f"{which} not read, such as {images[0]}; {_RULE}, here {name}: write - for the dots in names"
    content.note("member-dots", group.key, note, images[0], count=len(images))
    return True


def _check_group(group: _Group, positions: dict[str, int | None], with_image: set[str], content: ShardContent) -> None:
    """Raise SampleError for members that must not be used, or that occurred before.

    `positions`, `with_image`: the keys so far, and those that had an image; that of the group is added.
    """
    for _, member in group.members:
        if member.fault:
            raise SampleError(member.fault[0], f"{member.name.rpartition('/')[2]} {member.fault[1]}")
    extensions = [extension for extension, _ in group.members]
    content.parts.update(extensions)
    content.labeled = content.labeled or not _LABELS.isdisjoint(extensions)
    has_image = not _IMAGES.isdisjoint(extensions)
    if group.key in positions:
        earlier = positions[group.key]
        if earlier is not None:  # its labels may be here
            content.samples[earlier] = content.samples[earlier]._replace(length=0)  # left out at the end
            positions[group.key] = None
        rule = "the members of a sample must follow each other; sort them: tar --sort=name"
        if group.key in with_image and has_image:  # a tar that is unpacked would lose one of them
            rule = "two samples have the name, each with an image; give them names of their own"
        raise SampleError("member-repeated", f"occurs again later in the shard; {rule}")
    positions[group.key] = None
    if has_image:
        with_image.add(group.key)
    if len(set(extensions)) < len(extensions):
        repeated = next(extension for extension, count in Counter(extensions).items() if count > 1)
        raise SampleError("member-repeated", f"has two members .{repeated}")


def _sample(file: int, group: _Group, first_label: int, content: ShardContent, unused: _Unused) -> ShardSample:
    images = [(extension, member) for extension, member in group.members if extension in _IMAGES]
    if len(images) != 1:
        names = ", ".join(f".{extension}" for extension, _ in (images or group.members))
        raise SampleError("sample-no-image", f"must have one image, got {names}")
    image = images[0][1]
    header = parse_image_header(cast("BinaryIO", FileRange(file, image.offset, image.size, image.head)))
    check_header(header, content, group.key)
    name = file_name(image.name, "image", header, content, group.key)
    data = FileRange(file, image.offset, image.size, image.head).read()
    place = ShardPlace(content, group.key, image.offset, image.size, load_crc32c()(data), name)
    document = Document({}, None, None, False)
    if text := group.member("json"):
        document = parse_document(_content(file, text))
        content.dataset = content.dataset or document.dataset
    sample = document_sample(document, header, place)
    if document.annotations is not None or document.packed:
        for member in filter(None, map(group.member, _LABELS - {"json"})):
            unused.add(member, "the annotations of .json count before them")
        return sample
    return _with_other_labels(file, group, first_label, sample, content)


def _with_other_labels(
    file: int, group: _Group, first_label: int, sample: ShardSample, content: ShardContent
) -> ShardSample:
    """Return the sample with the class of .cls and the boxes of .txt, if there are such members."""
    number, rows = group.member("cls"), group.member("txt")
    if number is not None:
        sample = sample._replace(label=_class(_text(file, number), first_label))
    if rows is not None:
        sample = sample._replace(annotations=_yolo(_text(file, rows), sample.header, group, first_label, content))
    if number is None and rows is None and sample.label is None:
        content.note("label-missing", group.key, "has no annotations, and was kept as an image without boxes")
    return sample


def _class(text: str, first_label: int) -> ClassLabel:
    name = text.strip()
    if re.fullmatch("[0-9]{1,9}", name):
        return ClassLabel(shifted(int(name), first_label), None)
    if not name or "\n" in name:
        raise SampleError("sample-invalid", f".cls must be one class, a number or a name, got {shown(name[:60])}")
    return ClassLabel(None, name)


def _yolo(text: str, header: ImageHeader, group: _Group, first_label: int, content: ShardContent) -> list[Annotation]:
    log = LabelLog(f"{content.shard.name} {group.key}.txt", [])
    boxes = [*read_boxes(text, RowForm(_MOST_CLASSES), (header.height, header.width), log)]
    if has_error(log.findings):
        first = next(finding for finding in log.findings if finding.effect == "error")
        message = f".txt line {first.line}: {first.note}"
        if first.kind == "row-invalid" and group.member("json"):  # as img2dataset writes its captions
            message += "; and its .json has no annotations: a shard of captions has no boxes to read"
        raise SampleError(first.kind, message)
    content.findings += log.findings
    return [
        Annotation(
            ClassLabel(shifted(number, first_label), None),
            {"bbox": whole_numbers(box), "area": whole(box[2] * box[3]), "iscrowd": 0, **keys},
        )
        for number, box, keys, _ in boxes
    ]


def _text(file: int, member: Member) -> str:
    try:
        return _content(file, member).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SampleError("sample-invalid", f"{member.name.rpartition('/')[2]} is not UTF-8 text") from None


def _content(file: int, member: Member) -> bytes:
    if member.size > MAX_TEXT_BYTES:
        name = member.name.rpartition("/")[2]
        raise SampleError("sample-invalid", f"{name} is larger than {MAX_TEXT_BYTES >> 20} MiB")
    if len(member.head) == member.size:
        return member.head
    return FileRange(file, member.offset, member.size, member.head).read()
