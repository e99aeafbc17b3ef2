"""The formats that `detaug convert` reads, a module for each; `detaug.files.formats` has the table of them."""
