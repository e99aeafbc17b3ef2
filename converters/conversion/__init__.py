"""What all conversions share: options, output files, summary."""
