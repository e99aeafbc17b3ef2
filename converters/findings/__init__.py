"""What converters and checks find: kinds, records, errors."""
