"""detaug's ops inside your own DALI pipeline: `da.fn` and `da.DaliIterator`."""
