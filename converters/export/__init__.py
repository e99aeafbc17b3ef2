"""From COCO JSON to the files of any format: which images and objects are written, their shapes, and the folder."""
