"""tf.train.Example by protobuf's own package, from TensorFlow's feature.proto and example.proto."""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_BYTES, _FLOAT, _INT64, _STRING, _MESSAGE = 12, 2, 3, 9, 11
_ONE, _REPEATED = 1, 3


@cache
def example_class() -> Any:
    """Return the class of the message."""
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tensorflow", syntax="proto3")
    for name, kind in (("BytesList", _BYTES), ("FloatList", _FLOAT), ("Int64List", _INT64)):
        file.message_type.add(name=name).field.add(name="value", number=1, type=kind, label=_REPEATED)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(("bytes_list", "float_list", "int64_list"), 1):
        type_name = ".tensorflow." + name.title().replace("_", "")
        feature.field.add(name=name, number=number, type=_MESSAGE, label=_ONE, type_name=type_name, oneof_index=0)
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_STRING, label=_ONE)
    entry.field.add(name="value", number=2, type=_MESSAGE, label=_ONE, type_name=".tensorflow.Feature")
    type_name = ".tensorflow.Features.FeatureEntry"
    features.field.add(name="feature", number=1, type=_MESSAGE, label=_REPEATED, type_name=type_name)
    example = file.message_type.add(name="Example")
    example.field.add(name="features", number=1, type=_MESSAGE, label=_ONE, type_name=".tensorflow.Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))
