"""Steps that all conversions share: options, output files, summary."""
