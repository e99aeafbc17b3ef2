"""Join the contents of shards into one COCO JSON file: classes, ids, file names, rows."""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from detaug.coco.boxes import joined_numbers
from detaug.coco.classes_and_images import alike_classes
from detaug.coco.writer import document_text
from detaug.converters.shards.extract import Extract, extracted
from detaug.converters.shards.samples import ClassLabel, EncodedSample, Row, ShardContent
from detaug.errors import ConversionError
from detaug.findings.finding import Finding, shown
from detaug.named_options import option

_REFERENCE = re.compile(r'"(tile_of|video_id|\w*(?:image|annotation)_ids?)":')
_text = json.JSONEncoder(ensure_ascii=False).encode


class JoinedShards:
    """The samples of all shards, with the ids and names that they have in the JSON file."""

    def __init__(self, contents: Sequence[ShardContent], classes: Sequence[str] | None, extract: Path | None) -> None:
        """Number the classes, images and annotations. Raises ConversionError where classes contradict each other."""
        self.contents, self.extract = contents, extract
        self.findings = [finding for content in contents for finding in content.findings]
        self.numbers = joined_numbers(content.numbers for content in contents)
        datasets = [content.dataset for content in contents if content.dataset is not None]
        self.dataset: Row = datasets[0] if datasets else {}
        if any(dataset.get("videos") != self.dataset.get("videos") for dataset in datasets):
            raise ConversionError(
                "the shards are of packs with different videos; convert those of each pack on their own and merge the "
                "JSON files"
            )
        labels = (label for content in contents for label in content.labels)
        self.categories = Categories(labels, classes, packed_categories(datasets))
        self.images = sum(len(content.samples) for content in contents)
        self.names = [*self._unique_names()]
        self.image_ids = self._ids("image", [sample.image_id for _, sample in self.samples()])
        ids = [number for _, sample in self.samples() for number in sample.annotation_ids]
        self.annotation_ids = self._ids("annotation", ids)
        self.findings += alike_classes(row["name"] for row in self.categories.rows.values())
        self._note_unused(classes)
        if classes is None:
            self._note_numbered()

    def samples(self) -> Iterator[tuple[ShardContent, EncodedSample]]:
        """Yield each sample with the shard that it is in."""
        for content in self.contents:
            for sample in content.samples:
                yield content, sample

    def _ids(self, kind: str, ids: list[int | None]) -> Sequence[int]:
        """Return the ids of the shards if none is missing or repeated, else 1, 2, ..."""
        numbers = [number for number in ids if number is not None]
        if len(numbers) == len(ids) == len(set(numbers)):
            return numbers
        if numbers:
            self._refuse_references()
            missing, repeated = len(ids) - len(numbers), len(numbers) - len(set(numbers))
            note = f"all {kind} ids are new: {missing:,} are missing, {repeated:,} repeated"
            self.findings.append(Finding("", "ids-changed", note=note))
        return range(1, len(ids) + 1)

    def _refuse_references(self) -> None:
        """Raise ConversionError for rows of several packs that refer to others by ids: all get new ones."""
        for content, sample in self.samples():
            if content.dataset is not None and (match := _REFERENCE.search(sample.more)):
                raise ConversionError(
                    f"{content.shard.name}: images have {match[1]}, an id of their own pack, and the shards are of "
                    "several packs; convert those of each pack on their own and merge the JSON files"
                )

    def _unique_names(self) -> Iterator[str]:
        """Yield the file name of each sample. One that repeats an earlier one gets a number."""
        last: dict[str, int] = dict.fromkeys((sample.name for _, sample in self.samples()), 0)
        for content, sample in self.samples():
            last[sample.name] += 1
            name = sample.name
            # `last` has all names of the shards, so a new name is none of them either
            while last[sample.name] > 1 and name in last:
                stem, extension = posixpath.splitext(sample.name)
                name = f"{stem}-{last[sample.name]}{extension}"
                last[sample.name] += name in last
            if name != sample.name:
                last[name] = 1
                self.findings.append(Finding(content.shard.name, "file-name-changed", before=sample.name, after=name))
            yield name

    def _note_unused(self, classes: Sequence[str] | None) -> None:
        counts = {**self.box_counts()}
        for name, count in self.image_counts().items():
            counts[name] += count
        for name in classes or ():
            if not counts[name]:
                self.findings.append(Finding("", "class-unused", before=name))

    def _note_numbered(self) -> None:
        """Append a finding about classes that have no names in the shards, if there is a label map beside these."""
        named = {label.id for content in self.contents for label in content.labels if label.name}
        rows = {} if self.dataset else self.categories.rows
        numbers = [number for number, row in rows.items() if row["name"] == f"class {number}" and number not in named]
        folders = dict.fromkeys(Path(content.shard.path).parent for content in self.contents) if numbers else {}
        for path in [path for folder in folders for path in sorted(folder.glob("*.pbtxt"))][:1]:
            remedy = f"give them: {option('classes', str(path), python=f'read_class_names({str(path)!r})')}"
            note = f"classes {', '.join(map(str, numbers[:8]))} have no names in the shards; {remedy}"
            self.findings.append(Finding("", "class-numbered", note=note, count=len(numbers)))

    def box_counts(self) -> dict[str, int]:
        """Count the boxes of each class, in the order of the categories."""
        return self._counts((content, label) for content, sample in self.samples() for label in sample.labels)

    def image_counts(self) -> dict[str, int]:
        """Count the images of each class; empty where no image has one."""
        labeled = ((content, sample.label) for content, sample in self.samples() if sample.label is not None)
        counts = self._counts(labeled)
        return counts if any(counts.values()) else {}

    def _counts(self, labels: Iterable[tuple[ShardContent, int]]) -> dict[str, int]:
        by_label = Counter((id(content), label) for content, label in labels)
        counts = Counter[str]()
        for content in self.contents:
            for label, position in content.labels.items():
                row = self.categories.rows[self.categories.id_of(label)]
                counts[row["name"]] += by_label[id(content), position]
        return {row["name"]: counts[row["name"]] for row in self._category_rows()}

    def _category_rows(self) -> list[Row]:
        return self.categories.in_order(packed=bool(self.dataset))

    def extracting(self) -> AbstractContextManager[None]:
        """Return a context that writes the images as plain files, if that is wanted."""
        if self.extract is None:
            return nullcontext()
        places = zip(self.names, self.samples(), strict=True)
        images = (Extract(name, content.shard.path, sample.offset, sample.length) for name, (content, sample) in places)
        return extracted(images, self.extract)

    def text(self, description: str) -> Iterator[str]:
        """Yield the JSON file. description: of where it is from, unless the shards have an info."""
        document: Row = {"info": {"description": description}} | self.dataset
        document |= {"images": [], "annotations": [], "categories": self._category_rows()}
        return document_text(document, {"images": self._image_rows(), "annotations": self._annotation_rows()})

    def _image_rows(self) -> Iterator[str]:
        ids, names = iter(self.image_ids), iter(self.names)
        for content in self.contents:
            category_ids, shard = self._category_ids(content), _text(content.shard.name)
            for sample in content.samples:
                width, height = sample.size
                row = f'{{"id":{next(ids)},"file_name":{_text(next(names))},"width":{width},"height":{height}'
                if self.extract is None:
                    row += f',"shard":{shard},"offset":{sample.offset},"length":{sample.length}'
                    row += f',"crc32c":{sample.crc32c}'
                if sample.label is not None:
                    row += f',"category_id":{category_ids[sample.label]}'
                yield f"{row},{sample.more}}}" if sample.more else row + "}"

    def _category_ids(self, content: ShardContent) -> list[int]:
        return [self.categories.id_of(label) for label in content.labels]

    def _annotation_rows(self) -> Iterator[str]:
        image_ids, annotation_ids = iter(self.image_ids), iter(self.annotation_ids)
        for content in self.contents:
            category_ids = self._category_ids(content)
            for sample in content.samples:
                image_id = next(image_ids)
                for label, rest in zip(sample.labels, sample.rows, strict=True):
                    ids = f'{{"id":{next(annotation_ids)},"image_id":{image_id},"category_id":{category_ids[label]}'
                    yield f"{ids},{rest}"


class Categories:
    """The categories of a JSON file, and the category id of each label."""

    def __init__(self, labels: Iterable[ClassLabel], classes: Sequence[str] | None, packed: Sequence[Row]) -> None:
        """Collect the classes that records name by id, by name or by both; raises ConversionError for contradictions.

        classes: the names of the ids 1, 2, ... packed: the categories of the JSON file that was packed, with all their
        keys.
        """
        labels = list(dict.fromkeys(labels))
        self.rows: dict[int, Row] = {int(row["id"]): row for row in packed}
        for number, name in enumerate(classes or (), 1):
            self._name(number, name)
        for label in labels:
            if label.id is not None and label.name is not None:
                self._check_listed(label.id, classes)
                self._name(label.id, label.name)
        for label in sorted((label for label in labels if label.name is None), key=lambda label: label.id or 0):
            assert label.id is not None
            self._check_listed(label.id, classes)
            self.rows.setdefault(label.id, {"id": label.id, "name": f"class {label.id}"})
        self._add_names(sorted(label.name for label in labels if label.id is None and label.name is not None), classes)

    def _check_listed(self, number: int, classes: Sequence[str] | None) -> None:
        if classes and not 1 <= number <= len(classes):
            raise ConversionError(
                f"classes must name every class: the shards have category id {number}, classes has {len(classes)} names"
            )

    def _name(self, number: int, name: str) -> None:
        row = self.rows.setdefault(number, {"id": number, "name": name})
        if row["name"] != name:
            raise ConversionError(
                f"category id {number} is both {shown(row['name'])} and {shown(name)}; convert shards with other "
                "classes on their own and merge the JSON files"
            )

    def _add_names(self, names: Iterable[str], classes: Sequence[str] | None) -> None:
        """Number the names that have no id: alphabetically, after the largest id."""
        self.ids: dict[str, int] = {}
        for number, row in self.rows.items():
            self.ids.setdefault(row["name"], number)
        for name in names:
            if name not in self.ids and classes:
                raise ConversionError(
                    f"classes must name every class: the shards have {shown(name)}, which is not listed"
                )
            if name not in self.ids:
                number = max(self.rows, default=0) + 1
                self.ids[name], self.rows[number] = number, {"id": number, "name": name}

    def id_of(self, label: ClassLabel) -> int:
        """Return the category id of a label."""
        return self.ids[str(label.name)] if label.id is None else label.id

    def in_order(self, packed: bool) -> list[Row]:
        """Return the JSON file's categories: in the order of the JSON file that was packed, else by id."""
        return [*self.rows.values()] if packed else [self.rows[number] for number in sorted(self.rows)]


def packed_categories(datasets: Iterable[Row]) -> list[Row]:
    """Return the categories of JSON files that were packed. Raises ConversionError where two contradict each other."""
    rows: dict[int, Row] = {}
    for dataset in datasets:
        categories: Any = dataset.get("categories")
        for row in categories if isinstance(categories, list) else ():
            if not (isinstance(row, dict) and type(row.get("id")) is int and isinstance(row.get("name"), str)):
                continue
            earlier = rows.setdefault(row["id"], row)
            if earlier != row:
                raise ConversionError(
                    f"category id {row['id']} is both {shown(earlier['name'])} and {shown(row['name'])}; "
                    "convert shards of different packs on their own and merge the JSON files"
                )
    return list(rows.values())
