"""`detaug check`: find what is wrong with a dataset."""
