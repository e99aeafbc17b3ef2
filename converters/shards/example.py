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
from typing import Any, Literal, TypeAlias

FeatureKind = Literal["bytes", "float", "int"]
Span: TypeAlias = tuple[int, int]
"""(start, end) of bytes in the record's data."""
Values: TypeAlias = Sequence[Any]
"""Floats or integers; of bytes, a Span of each value."""

_KINDS: tuple[FeatureKind, ...] = ("bytes", "float", "int")
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MOST_VARINT_BYTES = 10
_FIRST, _SECOND, _THIRD = 0x0A, 0x12, 0x1A  # the tags of fields 1, 2 and 3 with a length


class WireError(ValueError):
    """Bytes that are not the message they should be."""


def parse_example(data: bytes) -> dict[str, Span]:
    """Return the positions of the features in a serialized tf.train.Example by name. Raises WireError.

    A name that occurs twice has its last value, as in protobuf. Unknown fields are ignored.
    """
    features: dict[str, Span] = {}
    for number, wire, start, end in _fields(data, 0, len(data)):
        if number == 1 and wire == _LENGTH:
            usual = _usual_features(data, start, end)
            features.update(_features(data, start, end) if usual is None else usual)
    return features


def _usual_features(data: bytes, position: int, end: int) -> dict[str, Span] | None:
    """Return what `_features` does, in less time; None unless each entry is a short name and then its feature.

    Every writer writes them so: 0x0A, length of the entry; 0x0A, length of the name, name; 0x12, length, feature.
    """
    features: dict[str, Span] = {}
    try:
        while position < end:
            length, entry = data[position + 1], position + 2
            # most lengths are one byte: no call for these
            if length > 127:
                length, entry = _varint(data, position + 1, end)
            last, name = entry + length, entry + 2
            value = name + data[entry + 1]
            length, start = data[value + 1], value + 2
            if length > 127:
                length, start = _varint(data, value + 1, end)
            if not data[position] == data[entry] == _FIRST or data[value] != _SECOND or value - name > 127:
                return None
            if start + length != last or last > end:
                return None
            features[data[name:value].decode()] = (start, last)
            position = last
    except (IndexError, ValueError):
        return None
    return features


def _features(data: bytes, start: int, end: int) -> dict[str, Span]:
    features: dict[str, Span] = {}
    for number, wire, first, last in _fields(data, start, end):
        if number == 1 and wire == _LENGTH:
            name, feature = _map_entry(data, first, last)
            try:
                features[name.decode()] = feature
            except UnicodeDecodeError:
                raise WireError(f"a feature's name at byte {first:,} is not UTF-8") from None
    return features


def _map_entry(data: bytes, start: int, end: int) -> tuple[bytes, Span]:
    name, feature = b"", (start, start)
    for number, wire, first, last in _fields(data, start, end):
        if wire == _LENGTH and number == 1:
            name = data[first:last]
        elif wire == _LENGTH and number == 2:
            feature = first, last
    return name, feature


def parse_feature(data: bytes, span: Span) -> tuple[FeatureKind, Values]:
    """Return the kind and the values of a feature at its position in the record's data. Raises WireError."""
    start, end = span
    usual = _usual_feature(data, start, end)
    if usual is not None:
        return usual
    kind: FeatureKind = "bytes"
    values: list[Any] = []
    for number, wire, first, last in _fields(data, start, end):
        if wire == _LENGTH and 1 <= number <= 3:
            if kind != _KINDS[number - 1]:  # of a oneof, the last counts
                kind, values = _KINDS[number - 1], []
            values += _values(data, first, last, kind)  # a message that occurs twice is merged
    return kind, values


def _usual_feature(data: bytes, start: int, end: int) -> tuple[FeatureKind, Values] | None:
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
        return "bytes", ((first, end),)
    if kind == _SECOND and length % 4 == 0:
        return "float", _floats(data, first, end)
    return ("int", _varints(data, first, end)) if kind == _THIRD else None


def _values(data: bytes, start: int, end: int, kind: FeatureKind) -> Iterator[Any]:
    """Yield the values of a list."""
    for number, wire, first, last in _fields(data, start, end):
        if number != 1:
            continue
        if kind == "bytes" and wire == _LENGTH:
            yield first, last
        elif kind == "float" and wire in (_LENGTH, _FIXED32):
            if (last - first) % 4:
                raise WireError(f"a list of floats at byte {first:,} has {last - first:,} bytes")
            yield from _floats(data, first, last)
        elif kind == "int" and wire in (_LENGTH, _VARINT):
            yield from _varints(data, first, last)
        else:
            raise WireError(f"a list of {kind} at byte {first:,} has wire type {wire}")


def _floats(data: bytes, start: int, end: int) -> tuple[float, ...]:
    return struct.unpack_from(f"<{end - start >> 2}f", data, start)


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
    for index in range(position, end):
        byte = data[index]
        if byte < 128:
            return value | byte << shift, index + 1
        value |= (byte & 127) << shift
        shift += 7
        if shift >= 7 * _MOST_VARINT_BYTES:
            break
    raise WireError(f"the number at byte {position:,} has no end")


def _varints(data: bytes, start: int, end: int) -> list[int]:
    """Return signed 64-bit integers."""
    packed = data[start:end]
    if packed.isascii():  # each below 128, in a byte of its own, as most labels are
        return list(packed)
    values, position = [], start
    while position < end:
        value, position = _varint(data, position, end)
        value &= (1 << 64) - 1
        # two's complement of 64 bits, as protobuf writes negative numbers
        values.append(value - (1 << 64) if value >> 63 else value)
    return values
