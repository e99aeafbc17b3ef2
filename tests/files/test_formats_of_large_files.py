"""`names_segments`: a key is found wherever it lies in a file that is read in parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from detaug.files import formats


@pytest.mark.parametrize("before", range(40))
def test_a_key_between_two_parts_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    monkeypatch.setattr(formats, "_PART", 7)  # the key is longer than two of them
    file = tmp_path / "panoptic.json"
    file.write_text(" " * before + '{"annotations": [{"segments_info": []}]}')
    assert formats.names_segments(file)
    file.write_text(" " * before + '{"annotations": [{"segments": [], "info": []}]}')
    assert not formats.names_segments(file)
