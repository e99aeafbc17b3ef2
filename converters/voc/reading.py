"""Read Pascal VOC as records: an XML for each image, found by the numbered decisions of the design page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from detaug.coco.writer import whole_numbers
from detaug.converters.records.images import Images
from detaug.converters.records.record import Contents, Object, Record
from detaug.converters.voc.folders import Folders, find_split, known_stem, read_split, stems_of_split
from detaug.converters.voc.placing import VocRules, place
from detaug.converters.voc.xml import FLAGS, XmlError, read_voc_xml
from detaug.errors import ConversionError
from detaug.files.known_files import what_folder_has
from detaug.files.matching import BY_FILENAME, OTHER_FOLDER, Pair, PairsByStem, settle_claims
from detaug.files.paths import folded, last_part, list_files, stem_of
from detaug.files.text import joined_spaces
from detaug.findings.finding import Finding, has_error, shown

_FLAGS = {"0": 0, "1": 1, "false": 0, "true": 1, "no": 0, "yes": 1, "": 0, "unspecified": 0}


def contents_of(folders: Folders, split: str | None, rules: VocRules, *, keeps_unlabeled: bool) -> Contents:
    """Return the records of a dataset, or of a split in its order. Raises ConversionError for another folder."""
    xmls = list_files(folders.annotations, (".xml",), regular=False)
    if not xmls:
        what = what_folder_has(folders.root)
        raise ConversionError(f"{folders.annotations} has no XML files; give the folder of the VOC dataset{what}")
    images = Images(folders.images, prefix=folders.image_prefix)
    contents = Contents(
        (_record(folders, xml) for xml in xmls),
        partial(_read, folders),
        len(xmls),
        partial(place, rules, folders.root),
        info={"origin": rules.origin, "difficult": rules.difficult},
        files=1,  # the name of an image tells its XML
        finder=images,
        find=find_image,
        unlabeled="unlabeled-kept" if keeps_unlabeled else "unlabeled-skipped",
        compares_images=True,
        keeps_folder=True,
    )
    return contents if split is None else _split_of(contents, split, xmls, images, folders)


def _record(folders: Folders, xml: str, lost: str | None = None) -> Record:
    """Return the record of an XML. lost: its image, if that belongs to another XML, which need not be of the split."""
    record = Record(folders.xml_prefix + xml, stem=stem_of(xml))
    if lost is not None:
        note = f"its image {lost} belongs to another XML"
        record.findings.append(Finding(record.file, "image-shared", after=lost, note=note))
    return record


def _split_of(contents: Contents, split: str, xmls: Sequence[str], images: Images, folders: Folders) -> Contents:
    """Return the contents with the records and images of a split only."""
    by_stem = {stem_of(xml): xml for xml in reversed(xmls)}
    path = find_split(folders, split)
    entries = read_split(path, lambda name: known_stem(name, by_stem, images.lookup) is not None)
    stems, findings = stems_of_split(entries, f"ImageSets/Main/{path.name}", by_stem, images.lookup)
    pairs = [_pair(stem, by_stem.get(stem), images, folders) for stem in stems]
    labels = {pair.label for pair in pairs}

    def claims() -> Iterator[Pair]:
        yield from pairs
        yield from (pair for pair in PairsByStem(xmls, images.lookup) if pair.label not in labels)

    lost = settle_claims(claims)
    losers = {pair.label: pair.images[0] for pair in pairs if pair.label in lost}
    pairs = [pair._replace(images=()) if pair.label in losers else pair for pair in pairs]
    taken = {image for pair in pairs if pair.label for image in pair.images}
    names = (image for pair in pairs for image in pair.images if pair.label or image not in taken)
    records = [_record(folders, xml, losers.get(xml)) for xml, *_ in pairs if xml]
    return contents._replace(records=records, total=len(records), images=[*names], findings=findings)


def _pair(stem: str, xml: str | None, images: Images, folders: Folders) -> Pair:
    """Return an XML of a split, if there is one, with its image, if there is one, and how well that fits."""
    if xml is None:
        return Pair(None, images.lookup.by_stem.get(stem)[:1])
    matches, rank = images.lookup.with_stem(stem)
    if len(matches) != 1:  # <filename> tells which one it is
        record = _record(folders, xml)
        _read(folders, record)
        name, rank = find_image(images, record)
        matches = (name,) if name else ()
    return Pair(xml, matches, rank)


def _read(folders: Folders, record: Record) -> None:
    """Fill a record from its XML, whose objects keep their corners as written."""
    try:
        annotation = read_voc_xml(os.path.join(folders.annotations, record.file.removeprefix(folders.xml_prefix)))
    except XmlError as error:
        finding = Finding(record.file, error.kind, error.object_index, error.line, error.before, note=str(error))
        record.findings.append(finding)
        record.names = (error.filename,)
        return
    record.names, record.objects = (annotation.filename,), annotation.objects
    if annotation.size:
        width, height = whole_numbers(annotation.size)
        record.size = width, height
    record.unread.update(annotation.unread)
    for item in annotation.objects:
        item.columns = _columns(record, item)


@lru_cache(1024)  # most objects have the same ones, and one dict of them is small
def _columns_of(bits: tuple[int, ...], pose: str) -> Mapping[str, Any]:
    return {**dict(zip(FLAGS, bits, strict=True)), "pose": pose}


def _columns(record: Record, item: Object) -> Mapping[str, Any]:
    """Return the flags and the pose of an object as the JSON file has them."""
    bits = []
    for tag in FLAGS:
        text = item.columns[tag]
        value = 0 if text is None else _FLAGS.get(text.strip().lower())
        if value is None:
            record.findings.append(Finding(record.file, "flag-invalid", item.object_index, item.line, text, 0))
        bits.append(value or 0)
    return _columns_of(tuple(bits), joined_spaces(item.columns["pose"] or "") or "Unspecified")


def find_image(images: Images, record: Record) -> tuple[str | None, int]:
    """Return the image of an XML's stem, else of its <filename>, and how well it fits (decision 3).

    Unlike the path in a file of another format, a <filename> counts after all forms of the stem, and only its last
    part: it is often that of a file before it was renamed, or of another machine.
    """
    if record.findings and record.findings[0].kind == "image-shared":  # of a split: see `_record`
        return None, OTHER_FOLDER
    (filename,) = record.names
    matches, rank = images.lookup.with_stem(record.stem)
    if not matches:
        matches, rank = images.lookup.with_filename(filename, record.stem.rpartition("/")[0]), BY_FILENAME
    if not matches:
        if filename or not has_error(record.findings):
            note = f"no image in {images.folder} has its stem or its <filename> {shown(filename)}"
            record.findings.append(Finding(record.file, "image-missing", before=filename, note=note))
        return None, rank
    image = next((image for image in matches if last_part(image) == last_part(filename)), matches[0])
    if len(matches) > 1:
        images.note_several(record, matches, image)
        record.alike = () if rank == BY_FILENAME else matches
    if not has_error(record.findings):
        meant, name = folded(filename.strip()), folded(last_part(image))
        if rank == BY_FILENAME:
            record.findings.append(Finding(record.file, "filename-used", before=filename, after=image))
        elif meant and meant not in (name, stem_of(name)):
            record.findings.append(Finding(record.file, "filename-differs", before=filename, after=image))
        if rank == OTHER_FOLDER:
            record.findings.append(Finding(record.file, "image-elsewhere", before=record.file, after=image))
    return image, rank
