"""Read every pair of a Pascal VOC data set, and find what is wrong between them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from detaug.converters.conversion.classes_and_images import alike_classes, unused_classes
from detaug.converters.conversion.part import Part
from detaug.converters.files.image_file import repeated_files
from detaug.converters.files.image_headers import IMAGE_EXTENSIONS
from detaug.converters.files.known_files import what_folder_has
from detaug.converters.files.matching import (
    BY_FILENAME,
    SAME_STEM,
    ImageNames,
    Pair,
    pair_by_stem,
    settle_claims,
    similar_names,
)
from detaug.converters.files.parallel import Progress, map_in_jobs
from detaug.converters.files.paths import list_files, stem_of
from detaug.converters.findings.finding import Finding
from detaug.converters.voc.folders import Folders, find_split, known_stem, pair_split, read_split
from detaug.converters.voc.pairs import PairResult, VocRules, read_pair
from detaug.errors import ConversionError

_PAIRS_AT_ONCE = 64


class PairReader(NamedTuple):
    """Reads the pairs of one data set."""

    folders: Folders
    rules: VocRules
    jobs: int
    progress: Progress | None

    def read(self, pairs: Sequence[Pair]) -> list[PairResult]:
        """Read pairs in several processes, in their order."""
        read = partial(_read_chunk, folders=self.folders, rules=self.rules)
        chunks = [pairs[start : start + _PAIRS_AT_ONCE] for start in range(0, len(pairs), _PAIRS_AT_ONCE)]
        results: list[PairResult] = []
        for chunk in map_in_jobs(read, chunks, self.jobs):
            results.extend(map(_interned, chunk))
            if self.progress:
                self.progress(len(results), len(pairs))
        return results


def _read_chunk(pairs: Sequence[Pair], folders: Folders, rules: VocRules) -> list[PairResult]:
    return [read_pair(pair, folders, rules) for pair in pairs]


def _interned(result: PairResult) -> PairResult:
    """Share equal class names and poses, which arrive from another process as copies."""
    return result._replace(names=tuple(map(sys.intern, result.names)), poses=tuple(map(sys.intern, result.poses)))


def read_data_set(
    reader: PairReader, split: str | None, part: Part | None = None
) -> tuple[list[PairResult], list[Finding], list[str]]:
    """Return the results that can be used, in the order of the image ids, every finding, and the names of all images.

    part: only its images, consecutive ones of the split, or else of all in the order of their names.
    """
    folders, rules = reader.folders, reader.rules
    images = ImageNames(list_files(folders.images, IMAGE_EXTENSIONS))
    xmls = list_files(folders.annotations, (".xml",), regular=False)
    if not xmls:
        what = what_folder_has(folders.root)
        raise ConversionError(f"{folders.annotations} has no XML files; give the folder of the VOC data set{what}")
    pairs, findings = _pairs(folders, split, xmls, images)
    all_pairs = pair_by_stem(xmls, images)
    names = images.names if part is None else part.items(images.names)
    own = _of_part(pairs, names, split, part)
    results = _find_by_filename(reader.read([pairs[at] for at in own]), all_pairs, images, reader)
    if part is None:
        _refuse_other_folder(results, folders)
    results = _refuse_shared_images(results, pairs, all_pairs, folders)
    if split is None:
        results += _read_unlabelled(results, pairs, names, reader)
    if part is not None:
        results = _without_other_parts(results, own, len(pairs), {*names}, split, part)
    if split is None:
        results.sort(key=lambda result: (result.image or "", result.xml or ""))
    for result in results:
        findings.extend(result.findings)
    usable = [result for result in results if not result.failed and (result.xml or rules.unlabelled == "keep")]
    findings.extend(_identical_images(usable, folders))
    findings.extend(_class_findings(usable, rules))
    return usable, findings, images.names


def _of_part(pairs: Sequence[Pair], names: Sequence[str], split: str | None, part: Part | None) -> Sequence[int]:
    """Return the positions of the pairs to read: of a part also XML without an image, which may claim one of any."""
    everything = range(len(pairs))
    if part is None:
        return everything
    wanted = {*names} if split is None else {*part.items(everything)}
    return [
        at
        for at, pair in enumerate(pairs)
        if (pair.label and not pair.images) or (at in wanted if split else not wanted.isdisjoint(pair.images))
    ]


def _without_other_parts(
    results: list[PairResult], own: Sequence[int], pairs: int, names: Collection[str], split: str | None, part: Part
) -> list[PairResult]:
    """Return the results of a part. Those without an image are errors of every part."""
    if split is None:
        return [result for result in results if not result.image or result.image in names]
    wanted = part.items(range(pairs))
    return [result for at, result in zip(own, results, strict=True) if at in wanted]


def _pairs(
    folders: Folders, split: str | None, xmls: list[str], images: ImageNames
) -> tuple[list[Pair], list[Finding]]:
    if split is None:
        return pair_by_stem(xmls, images), []
    by_stem = {stem_of(xml): xml for xml in reversed(xmls)}
    path = find_split(folders, split)
    entries = read_split(path, lambda name: known_stem(name, by_stem, images) is not None)
    return pair_split(entries, f"ImageSets/Main/{path.name}", by_stem, images)


def _find_by_filename(
    results: list[PairResult], all_pairs: list[Pair], images: ImageNames, reader: PairReader
) -> list[PairResult]:
    """Find the images of the XML whose stem no image has (decision 3)."""
    found, missing = {}, {}
    for result in results:
        if result.image is None and result.xml is not None:
            candidates = images.with_filename(result.filename, result.xml.rpartition("/")[0])
            if candidates:
                found[result.xml] = read_pair(Pair(result.xml, candidates, BY_FILENAME), reader.folders, reader.rules)
            else:
                missing[result.xml] = result
    claimed = {result.image for result in (*results, *found.values())}
    claimed |= {image for pair in all_pairs for image in pair.images}
    nearest = similar_names(missing, (name for name in images.names if name not in claimed)) if missing else {}
    nearest = {xml: image for image, xml in nearest.items()}
    found |= {xml: _missing(result, nearest.get(xml), reader.folders) for xml, result in missing.items()}
    return [found.get(result.xml or "", result) for result in results]


def _missing(result: PairResult, nearest: str | None, folders: Folders) -> PairResult:
    assert result.xml is not None
    label = folders.xml_prefix + result.xml
    note = f"no image in {folders.images} has its stem or its <filename> {result.filename!r}"
    note += f"; {nearest} has nearly its name and no XML: rename one of them" if nearest else ""
    finding = Finding(label, "image-missing", before=result.filename, note=note)
    return result._replace(image="", findings=(finding,))


def _refuse_other_folder(results: list[PairResult], folders: Folders) -> None:
    """Raise ConversionError where no XML has its image: the folder is wrong, rather than every image missing."""
    missing = [finding for result in results for finding in result.findings if finding.kind == "image-missing"]
    if len(missing) > 1 and len(missing) == sum(result.xml is not None for result in results):
        raise ConversionError(
            f"{folders.images} has the image of none of the {len(missing):,} XML files, the first is "
            f"{missing[0].before}; give the folder of the images: --images",
            missing,
        )


def _refuse_shared_images(
    results: list[PairResult], pairs: list[Pair], all_pairs: list[Pair], folders: Folders
) -> list[PairResult]:
    """Add an error to XML files whose image belongs to another XML, in the part and the split or not."""
    ranks = {pair.label: pair.rank if pair.images else BY_FILENAME for pair in pairs}
    claims = [
        Pair(each.xml, (each.image,), ranks.get(each.xml, SAME_STEM)) for each in results if each.xml and each.image
    ]
    read = {each.xml for each in results}
    of_other_parts = [pair for pair in pairs if pair.label not in read]
    outside = [pair for pair in all_pairs if pair.label not in ranks]
    losers = settle_claims([*claims, *of_other_parts, *outside])
    return [_with_shared_image(result, folders) if result.xml in losers else result for result in results]


def _with_shared_image(result: PairResult, folders: Folders) -> PairResult:
    assert result.xml is not None
    note = f"its image {result.image} belongs to another XML"
    finding = Finding(folders.xml_prefix + result.xml, "image-shared", after=result.image, note=note)
    return result._replace(findings=(*result.findings, finding))


def _read_unlabelled(
    results: list[PairResult], pairs: list[Pair], names: Sequence[str], reader: PairReader
) -> list[PairResult]:
    """Read the images of these names that belong to no XML; an image whose stem belongs to one does not count."""
    claimed = {image for pair in pairs for image in pair.images} | {result.image for result in results}
    rest = [Pair(None, (name,)) for name in names if name not in claimed]
    return reader._replace(progress=None).read(rest)


def _identical_images(results: list[PairResult], folders: Folders) -> Iterator[Finding]:
    names = [result.image or "" for result in results]
    fingerprints = [result.fingerprint for result in results]
    for position, earlier in repeated_files(fingerprints, lambda at: folders.images / names[at]):
        yield Finding(folders.image_prefix + names[position], "image-identical", after=names[earlier])


def _class_findings(results: Sequence[PairResult], rules: VocRules) -> Iterator[Finding]:
    found = {name for result in results for name in result.names}
    left_out = {str(each.before) for result in results for each in result.findings if each.kind == "class-not-listed"}
    yield from unused_classes((name for name in rules.classes or () if name not in found), sorted(left_out))
    yield from alike_classes(sorted(found))
