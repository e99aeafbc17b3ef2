"""MOTChallenge's ground truth, to COCO JSON with videos and tracks."""
