"""Read every pair of a Pascal VOC data set, and find what is wrong between them."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import chain, tee
from typing import NamedTuple

from detaug.coco.classes_and_images import alike_classes, joined_splits, unused_classes
from detaug.coco.how_to_load import shapes_of
from detaug.converters.voc.folders import Folders, find_split, known_stem, pair_split, read_split
from detaug.converters.voc.pairs import PairResult, StoredPair, VocRules, read_pair
from detaug.errors import ConversionError
from detaug.files.image_headers import IMAGE_EXTENSIONS
from detaug.files.known_files import what_folder_has
from detaug.files.matching import (
    BY_FILENAME,
    ImageNames,
    Pair,
    PairsByStem,
    settle_claims,
    similar_names,
)
from detaug.files.paths import list_files, stem_of
from detaug.files.repeated import repeated_files
from detaug.files.spool import Spool
from detaug.findings.finding import Finding, shown
from detaug.machine.parallel import Progress, map_in_jobs, with_progress
from detaug.outputs.part import Part
from detaug.outputs.summary import left_out_classes

_PAIRS_AT_ONCE = 64


class VocDataSet(NamedTuple):
    """The pairs that can be used, in the order of the image ids, and all that is known of the others."""

    pairs: list[StoredPair]
    stored: Spool
    findings: list[Finding]
    names: Sequence[str]
    """Of all images, also of other parts and splits."""
    counts: Counter[str]
    """Boxes by class."""
    without_boxes: int
    """Images."""
    shapes: frozenset[str] = frozenset()
    """What objects have beside boxes: masks, rotated."""

    def results(self) -> Iterator[PairResult]:
        """Yield what was read of each pair, without its findings."""
        return (PairResult._make(self.stored.get(pair.start)) for pair in self.pairs)


class PairReader(NamedTuple):
    """Reads the pairs of one data set, and stores their boxes."""

    folders: Folders
    rules: VocRules
    stored: Spool
    jobs: int = 1
    progress: Progress | None = None

    def read(self, pairs: Sequence[Pair]) -> list[StoredPair]:
        """Read pairs in several processes, in their order."""
        read = partial(_read_chunk, folders=self.folders, rules=self.rules)
        starts = range(0, len(pairs), _PAIRS_AT_ONCE)
        chunks, again = tee(pairs[start : start + _PAIRS_AT_ONCE] for start in starts)  # pairs are found when asked for
        results = chain.from_iterable(map_in_jobs(read, chunks, min(self.jobs, len(starts))))
        counted = with_progress(range(len(pairs)), self.progress)
        read_pairs = zip(counted, chain.from_iterable(again), results, strict=True)
        return [self._store(pair, result) for _, pair, result in read_pairs]

    def _store(self, pair: Pair, result: PairResult) -> StoredPair:
        start = self.stored.put(tuple(result._replace(findings=(), filename="")))
        image = next((each for each in pair.images if each == result.image), result.image)  # not another process's copy
        filename = result.filename if image is None else ""
        return StoredPair(pair.label, image, pair.rank, start, filename, result.findings)


def _read_chunk(pairs: Sequence[Pair], folders: Folders, rules: VocRules) -> list[PairResult]:
    return [read_pair(pair, folders, rules) for pair in pairs]


def read_data_set(reader: PairReader, split: str | None, part: Part | None = None) -> VocDataSet:
    """Return what a data set has. Raises ConversionError for another folder.

    part: only its images, consecutive ones of the split, or else of all in the order of their names.
    """
    folders, rules = reader.folders, reader.rules
    images = ImageNames(list_files(folders.images, IMAGE_EXTENSIONS))
    xmls = list_files(folders.annotations, (".xml",), regular=False)
    if not xmls:
        what = what_folder_has(folders.root)
        raise ConversionError(f"{folders.annotations} has no XML files; give the folder of the VOC data set{what}")
    all_pairs = PairsByStem(xmls, images)
    pairs, findings = (all_pairs, []) if split is None else _pairs_of_split(folders, split, xmls, images)
    names = images.names if part is None else part.items(images.names)
    own = _of_part(pairs, names, split, part)
    results = reader.read(pairs if part is None else [pairs[at] for at in own])
    _find_by_filename(results, all_pairs, images, reader)
    if not any(pair.label and pair.images for pair in pairs):
        _refuse_other_folder(results, folders)
    _note_shared_images(results, all_pairs if split or part else (), folders)
    if split is None:
        results += _read_unlabelled(results, pairs, names, reader)
    if part is not None:
        results = _without_other_parts(results, own, len(pairs), {*names}, split, part)
    if split is None:
        results.sort(key=lambda result: result.image or "")  # those of one image stay in the order of their XML
    for result in results:
        findings.extend(result.findings)
    usable = [result for result in results if not result.failed and (result.xml or rules.unlabelled == "keep")]
    dataset = VocDataSet(usable, reader.stored, findings, images.names, Counter(), 0)
    fingerprints, without_boxes, shapes = array("q"), 0, set[str]()
    for each in dataset.results():
        shapes |= shapes_of(each.keys)
        fingerprints.append(hash(each.fingerprint))
        dataset.counts.update(each.names)
        without_boxes += not each.names
    findings.extend(_identical_images(usable, fingerprints, folders))
    findings.extend(_class_findings(dataset, rules))
    findings.extend(joined_splits((each.image or "" for each in usable), folders.images))
    return dataset._replace(without_boxes=without_boxes, shapes=frozenset(shapes))


def _of_part(pairs: Sequence[Pair], names: Sequence[str], split: str | None, part: Part | None) -> Sequence[int]:
    """Return the positions of the pairs to read: of a part also XML without an image, which may claim one of any."""
    if part is None:
        return range(len(pairs))
    wanted = {*names} if split is None else {*part.items(range(len(pairs)))}
    return [
        at
        for at, pair in enumerate(pairs)
        if (pair.label and not pair.images) or (at in wanted if split else not wanted.isdisjoint(pair.images))
    ]


def _without_other_parts(
    results: list[StoredPair], own: Sequence[int], pairs: int, names: Collection[str], split: str | None, part: Part
) -> list[StoredPair]:
    """Return the results of a part. Those without an image are errors of every part."""
    if split is None:
        return [result for result in results if not result.image or result.image in names]
    wanted = part.items(range(pairs))
    return [result for at, result in zip(own, results, strict=True) if at in wanted]


def _pairs_of_split(
    folders: Folders, split: str, xmls: list[str], images: ImageNames
) -> tuple[list[Pair], list[Finding]]:
    by_stem = {stem_of(xml): xml for xml in reversed(xmls)}
    path = find_split(folders, split)
    entries = read_split(path, lambda name: known_stem(name, by_stem, images) is not None)
    return pair_split(entries, f"ImageSets/Main/{path.name}", by_stem, images)


def _find_by_filename(
    results: list[StoredPair], all_pairs: Sequence[Pair], images: ImageNames, reader: PairReader
) -> None:
    """Find the images of the XML whose stem no image has (decision 3)."""
    missing: dict[str, int] = {}
    for at, result in enumerate(results):
        if result.image is None and result.xml is not None:
            candidates = images.with_filename(result.filename, result.xml.rpartition("/")[0])
            if candidates:
                [results[at]] = reader._replace(progress=None).read([Pair(result.xml, candidates, BY_FILENAME)])
            else:
                missing[result.xml] = at
    if not missing:
        return
    claimed = {result.image for result in results}
    claimed |= {image for pair in all_pairs for image in pair.images}
    unclaimed = (name for name in images.names if name not in claimed)
    nearest = {xml: image for image, xml in similar_names(missing, unclaimed).items()}
    for xml, at in missing.items():
        result, image = results[at], nearest.get(xml)
        note = f"no image in {reader.folders.images} has its stem or its <filename> {shown(result.filename)}"
        note += f"; {image} has nearly its name and no XML: rename one of them" if image else ""
        finding = Finding(reader.folders.xml_prefix + xml, "image-missing", before=result.filename, note=note)
        result.image, result.findings = "", (*result.findings, finding)


def _refuse_other_folder(results: list[StoredPair], folders: Folders) -> None:
    """Raise ConversionError where no XML has its image: the folder is wrong, rather than every image missing."""
    missing = [finding for result in results for finding in result.findings if finding.kind == "image-missing"]
    if len(missing) > 1 and len(missing) == sum(result.xml is not None for result in results):
        raise ConversionError(
            f"{folders.images} has the image of none of the {len(missing):,} XML files, the first is "
            f"{missing[0].before}; give the folder of the images: --images",
            missing,
        )


def _note_shared_images(results: list[StoredPair], all_pairs: Sequence[Pair], folders: Folders) -> None:
    """Add an error to XML files whose image belongs to another XML.

    all_pairs: those of the folder, if some of them are not in the results, since they are of other parts or splits.
    """
    read = {each.xml for each in results} if all_pairs else ()

    def claims() -> Iterator[Pair]:
        yield from (Pair(each.xml, (each.image,), each.rank) for each in results if each.xml and each.image)
        yield from (pair for pair in all_pairs if pair.label not in read)

    losers = settle_claims(claims)
    for each in results:
        if each.xml in losers:
            note = f"its image {each.image} belongs to another XML"
            finding = Finding(f"{folders.xml_prefix}{each.xml}", "image-shared", after=each.image, note=note)
            each.findings = (*each.findings, finding)


def _read_unlabelled(
    results: list[StoredPair], pairs: Sequence[Pair], names: Sequence[str], reader: PairReader
) -> list[StoredPair]:
    """Read the images of these names that belong to no XML; an image whose stem belongs to one does not count."""
    claimed = {result.image or "" for result in results}
    if not claimed.issuperset(names):
        claimed.update(image for pair in pairs for image in pair.images)
    rest = [Pair(None, (name,)) for name in names if name not in claimed]
    return reader._replace(progress=None).read(rest)


def _identical_images(pairs: Sequence[StoredPair], fingerprints: Sequence[int], folders: Folders) -> Iterator[Finding]:
    names = [pair.image or "" for pair in pairs]
    for position, earlier in repeated_files(fingerprints, lambda at: folders.images / names[at]):
        yield Finding(folders.image_prefix + names[position], "image-identical", after=names[earlier])


def _class_findings(dataset: VocDataSet, rules: VocRules) -> Iterator[Finding]:
    unused = (name for name in rules.classes or () if name not in dataset.counts)
    yield from unused_classes(unused, left_out_classes(dataset.findings))
    yield from alike_classes(sorted(dataset.counts))
