"""MOTChallenge's ground truth, to COCO json with videos and tracks."""
