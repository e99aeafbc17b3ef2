"""Give the classes of shards their category ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from detaug.converters.findings.text import shown
from detaug.converters.shards.samples import Label, Row
from detaug.errors import ConversionError


class Categories:
    """The categories of a json, and the category id of each label."""

    def __init__(self, labels: Iterable[Label], classes: Sequence[str] | None, packed: Sequence[Row]) -> None:
        """Collect the classes that records name by id, by name or by both; raises ConversionError for contradictions.

        classes: the names of the ids 1, 2, ... packed: the categories of the json that was packed, with all their keys.
        """
        labels = list(dict.fromkeys(labels))
        self.rows: dict[int, Row] = {int(row["id"]): row for row in packed}
        for number, name in enumerate(classes or (), 1):
            self._name(number, name)
        for label in labels:
            if label.id is not None and label.name is not None:
                self._check_listed(label.id, classes)
                self._name(label.id, label.name)
        for label in sorted((each for each in labels if each.name is None), key=lambda each: each.id or 0):
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
                "classes on their own and merge the json files"
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

    def id_of(self, label: Label) -> int:
        """Return the category id of a label."""
        return self.ids[str(label.name)] if label.id is None else label.id

    def in_order(self, packed: bool) -> list[Row]:
        """Return the json's categories: in the order of the json that was packed, else by id."""
        return [*self.rows.values()] if packed else [self.rows[number] for number in sorted(self.rows)]


def packed_categories(datasets: Iterable[Row]) -> list[Row]:
    """Return the categories of json files that were packed. Raises ConversionError where two contradict each other."""
    rows: dict[int, Row] = {}
    for dataset in datasets:
        for row in _entries(dataset.get("categories")):
            earlier = rows.setdefault(row["id"], row)
            if earlier != row:
                raise ConversionError(
                    f"category id {row['id']} is both {shown(earlier['name'])} and {shown(row['name'])}; "
                    "convert shards of different packs on their own and merge the json files"
                )
    return list(rows.values())


def _entries(categories: Any) -> Iterable[Row]:
    for row in categories if isinstance(categories, list) else ():
        if isinstance(row, dict) and type(row.get("id")) is int and isinstance(row.get("name"), str):
            yield row
