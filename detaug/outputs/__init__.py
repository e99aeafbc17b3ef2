"""What every command that writes does first and last: guards of outputs, folders, parts, the summary."""
