"""Pack a COCO json and its images into shards, TFRecord or WebDataset."""

# The layout of the shards that `detaug pack` writes. `detaug convert-webdataset` and `detaug convert-tfrecord` turn
# them into the same json again, but for `shard`, `offset` and `length` of the images.
#
# Each image is one sample with one json text:
#
#   {"image": {...},        the image's entry of the json, unchanged: id, file_name, width, height, any further key
#    "annotations": [...],  the image's entries of the json, unchanged, in their order: id, image_id, category_id, bbox,
#                           any further key; and "category", the name of the category, which converting takes out again
#    "dataset": {...}}      only in the first sample of each shard: the json without its images and annotations, so that
#                           info, licenses and all categories with their ids (also those without an object) come back
#
# Without "dataset", such as after shuffling into other shards, the categories are those of the annotations.
#
# WebDataset: KEY.EXT, the image's bytes, and then KEY.json, the text. KEY has no dot, and only the characters
# A-Z a-z 0-9 _ - and / for folders. It is made from file_name, which the text has in full.
# TFRecord: TensorFlow's object-detection features, and the text as the bytes feature image/coco. Labels are category
# ids, image/source_id is the image id in decimal. Features of objects are in the order of the annotations.
#
# offset and length of an image in DIR/NAME.json are those of the image's bytes: of the tar member's data, or of the
# value of image/encoded.
