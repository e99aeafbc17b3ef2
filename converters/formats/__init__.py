"""The formats that `detaug convert` reads: a table of them, and a module for each."""
