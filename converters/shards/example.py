"""Parse TensorFlow's tf.train.Example: protobuf's wire format, as far as it is needed.

    Example     { Features features = 1; }
    Features    { map<string, Feature> feature = 1; }
    Feature     { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
    BytesList   { repeated bytes value = 1; }       FloatList, Int64List: packed, or a field for each value

https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example/feature.proto and
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

Kind = Literal["bytes", "float", "int"]
Span: TypeAlias = tuple[int, int]
"""(start, end) of bytes in the record's data."""

_KINDS: tuple[Kind, ...] = ("bytes", "float", "int")
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MOST_VARINT_BYTES = 10
_FIRST, _SECOND, _THIRD = 0x0A, 0x12, 0x1A  # the tags of fields 1, 2 and 3 with a length


class WireError(ValueError):
    """Bytes that are not the message they should be."""


class Feature(NamedTuple):
    """The values of a feature."""

    kind: Kind
    spans: Sequence[Span]
    """Of bytes: the positions in the record's data."""
    floats: Sequence[float]
    ints: Sequence[int]

    def __len__(self) -> int:
        return len(self.spans) + len(self.floats) + len(self.ints)


def parse_example(data: bytes) -> dict[str, Span]:
    """Return the positions of the features in a serialised tf.train.Example by name. Raises WireError.

    A name that occurs twice has its last value, as in protobuf. Unknown fields are ignored.
    """
    features: dict[str, Span] = {}
    for number, wire, start, end in _fields(data, 0, len(data)):
        if number == 1 and wire == _LENGTH:
            for entry, entry_wire, first, last in _fields(data, start, end):
                if entry == 1 and entry_wire == _LENGTH:
                    name, feature = _quick_map_entry(data, first, last) or _map_entry(data, first, last)
                    try:
                        features[name.decode()] = feature
                    except UnicodeDecodeError:
                        raise WireError(f"a feature's name at byte {first:,} is not UTF-8") from None
    return features


def _quick_map_entry(data: bytes, start: int, end: int) -> tuple[bytes, Span] | None:
    """Return what `_map_entry` does for a short name and then the feature, as every writer writes them; else None."""
    if end - start < 4 or data[start] != _FIRST or data[start + 1] > 127:
        return None
    position = start + 2 + data[start + 1]
    if position + 2 > end or data[position] != _SECOND:
        return None
    length, first = data[position + 1], position + 2
    if length > 127:
        length, first = _varint(data, position + 1, end)
    return (data[start + 2 : position], (first, end)) if first + length == end else None


def _map_entry(data: bytes, start: int, end: int) -> tuple[bytes, Span]:
    name, feature = b"", (start, start)
    for number, wire, first, last in _fields(data, start, end):
        if wire == _LENGTH and number == 1:
            name = data[first:last]
        elif wire == _LENGTH and number == 2:
            feature = first, last
    return name, feature


def parse_feature(data: bytes, span: Span) -> Feature:
    """Return the values of a feature at its position in the record's data. Raises WireError."""
    start, end = span
    found = _quick_feature(data, start, end)
    if found is not None:
        return found
    feature = Feature("bytes", [], [], [])
    for number, wire, first, last in _fields(data, start, end):
        if wire == _LENGTH and 1 <= number <= 3:
            kind = _KINDS[number - 1]
            if kind != feature.kind:  # of a oneof, the last counts
                feature = Feature(kind, [], [], [])
            feature = _with_values(data, first, last, feature)
    return feature


def _quick_feature(data: bytes, start: int, end: int) -> Feature | None:
    """Return what `parse_feature` does for one value of bytes or one packed list of numbers; else None."""
    if end - start < 4:
        return None
    kind, length, outer = data[start], data[start + 1], start + 2
    if length > 127:
        length, outer = _varint(data, start + 1, end)
    if outer + length != end or length < 2 or data[outer] != _FIRST:
        return None
    length, first = data[outer + 1], outer + 2
    if length > 127:
        length, first = _varint(data, outer + 1, end)
    if first + length != end:
        return None
    if kind == _FIRST:
        return Feature("bytes", ((first, end),), (), ())
    if kind == _SECOND and length % 4 == 0:
        return Feature("float", (), struct.unpack_from(f"<{length >> 2}f", data, first), ())
    return Feature("int", (), (), _varints(data, first, end)) if kind == _THIRD else None


def _with_values(data: bytes, start: int, end: int, feature: Feature) -> Feature:
    """Return a feature with the values of a list after its own: a message that occurs twice is merged."""
    spans, floats, ints = [*feature.spans], [*feature.floats], [*feature.ints]
    for number, wire, first, last in _fields(data, start, end):
        if number != 1:
            continue
        if feature.kind == "bytes" and wire == _LENGTH:
            spans.append((first, last))
        elif feature.kind == "float" and wire in (_LENGTH, _FIXED32):
            if (last - first) % 4:
                raise WireError(f"a list of floats at byte {first:,} has {last - first:,} bytes")
            floats.extend(struct.unpack_from(f"<{(last - first) // 4}f", data, first))
        elif feature.kind == "int" and wire in (_LENGTH, _VARINT):
            ints.extend(_varints(data, first, last))
        else:
            raise WireError(f"a list of {feature.kind} at byte {first:,} has wire type {wire}")
    return Feature(feature.kind, spans, floats, ints)


def _fields(data: bytes, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (field number, wire type, start, end of its value) of each field of a message."""
    while position < end:
        tag = data[position]
        position += 1
        if tag > 127:
            tag, position = _varint(data, position - 1, end)
        wire = tag & 7
        start = position
        if wire == _LENGTH:
            if position >= end:
                raise WireError(f"the field at byte {start - 1:,} has no length")
            length, start = data[position], position + 1
            if length > 127:
                length, start = _varint(data, position, end)
            position = start + length
        elif wire == _VARINT:
            _, position = _varint(data, position, end)
        elif wire in (_FIXED32, _FIXED64):
            position += 4 if wire == _FIXED32 else 8
        else:
            raise WireError(f"byte {start - 1:,} has wire type {wire}, which tf.train.Example does not use")
        if position > end or tag < 8:
            raise WireError(f"the field at byte {start - 1:,} reaches past its message or has the number 0")
        yield tag >> 3, wire, start, position


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Return a number, 7 bits in each byte, the lowest first, and the position after it."""
    value = shift = 0
    for at in range(position, end):
        byte = data[at]
        if byte < 128:
            return value | byte << shift, at + 1
        value |= (byte & 127) << shift
        shift += 7
        if shift >= 7 * _MOST_VARINT_BYTES:
            break
    raise WireError(f"the number at byte {position:,} has no end")


def _varints(data: bytes, start: int, end: int) -> list[int]:
    """Return signed 64-bit integers."""
    packed = data[start:end]
    if not packed or max(packed) < 128:  # most labels are small
        return list(packed)
    values, position = [], start
    while position < end:
        value, position = _varint(data, position, end)
        value &= (1 << 64) - 1
        values.append(value - (1 << 64) if value >> 63 else value)
    return values
