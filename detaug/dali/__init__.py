"""detaug's ops inside your own DALI pipeline: `da.fn` and `da.DaliIterator`."""

from detaug.dali import fn as fn
