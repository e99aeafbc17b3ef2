"""One way to write a format: a reader yields records, one for each image; everything else is done here, once."""
