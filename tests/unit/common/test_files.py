"""Whatever a user names as a file is read or refused at once, in one line that begins with its name."""

import os

import pytest

from specloss.common.files import FileError, check_file, file_hash, read_bytes, read_json, read_text

READERS = (check_file, file_hash, read_bytes, read_text, read_json)


def refusal(reader, path, **arguments):
    with pytest.raises(FileError) as caught:
        reader(path, **arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_what_is_no_regular_file_is_refused_at_once(reader, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for path, reason in (
        (tmp_path, "a folder"),
        (tmp_path / "pipe", "no regular file"),
        ("/dev/zero", "no regular file"),
        (tmp_path / "none", "no such file or directory"),
        (tmp_path / "loop", "too many levels of symbolic links"),
        (tmp_path / ("x" * 300), "file name too long"),
    ):
        assert refusal(reader, path) == f"{path}: {reason}"
    assert refusal(reader, "a\0b") == "'a\\x00b': embedded null byte"
    assert refusal(reader, "a\nb") == "'a\\nb': no such file or directory"


def test_a_file_larger_than_its_limit_is_not_read(tmp_path):
    path = tmp_path / "file"
    path.write_text("12345")
    assert read_bytes(path, 5) == b"12345"
    assert refusal(read_text, path, limit=4) == f"{path}: too large, more than 4 bytes"


def test_a_text_is_utf_8_with_or_without_a_mark(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbf" + "ä".encode())
    assert read_text(path) == "ä"
    path.write_text("ä", encoding="utf-16")
    assert refusal(read_text, path) == f"{path}: not UTF-8 text (byte 0)"


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "1" * 5000, "{'a': 1}"])
def test_what_is_not_json_is_one_line(tmp_path, text):
    path = tmp_path / "file"
    path.write_text(text)
    assert refusal(read_json, path).startswith(f"{path}: not JSON: ")
