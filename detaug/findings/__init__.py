"""Findings of converters and checks: kinds, records, errors."""
