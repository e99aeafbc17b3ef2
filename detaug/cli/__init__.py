"""The detaug command."""
