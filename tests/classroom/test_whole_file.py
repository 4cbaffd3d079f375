"""A file is replaced in one step, or not at all."""

import os

import pytest

from course_lib.classroom.whole_file import write_whole


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(step, error, tmp_path, monkeypatch):
    def stop(*_):
        raise error

    path = tmp_path / "a.txt"
    write_whole(path, "old")
    monkeypatch.setattr(os, step, stop)
    with pytest.raises(type(error)):
        write_whole(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_text_is_utf_8_and_bytes_are_as_they_are(tmp_path):
    write_whole(tmp_path / "a", "gr\u00fcn\n")
    write_whole(tmp_path / "b", b"\xff\r\n")
    assert (tmp_path / "a").read_bytes() == "gr\u00fcn\n".encode() and (tmp_path / "b").read_bytes() == b"\xff\r\n"


@pytest.mark.parametrize("mask, rights", [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_rights_are_those_of_a_new_file_or_of_the_one_that_was_there(mask, rights, tmp_path):
    path, before = tmp_path / "a", os.umask(mask)
    try:
        write_whole(path, "one")
        assert path.stat().st_mode & 0o777 == rights
        path.chmod(0o640)
        write_whole(path, "two")
        assert path.stat().st_mode & 0o777 == 0o640
        write_whole(path, "three", private=True)
        assert path.stat().st_mode & 0o777 == 0o600
        assert os.umask(mask) == mask  # it is as it was
    finally:
        os.umask(before)


def test_a_new_file_takes_no_name_that_is_taken(tmp_path):
    path = tmp_path / "a"
    write_whole(path, "one", new=True)
    with pytest.raises(FileExistsError):
        write_whole(path, "two", new=True)
    assert path.read_text() == "one" and list(tmp_path.iterdir()) == [path]
