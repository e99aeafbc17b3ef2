"""Resume the trainers of other libraries exactly: their checkpoints, and the state of a `Loader`."""
