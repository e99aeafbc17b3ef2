"""What the html pages of all commands share: the frame, the style, charts of lines."""
