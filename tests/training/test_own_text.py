"""A reader's own text: what is refused and why, what is held back, and that no character is lost."""

import random
import string

import numpy as np
import pytest
import regex

from course_lib.command_line import UsageError
from course_lib.training import own_text
from course_lib.training.corpus import END_OF_TEXT
from course_lib.training.own_text import (
    MIN_CHARACTERS,
    Windows,
    encode_texts,
    hold_back,
    learn_tokenizer,
    read_texts,
    usual_vocab_size,
)

LETTERS = random.Random(0)
TEXT = " ".join("".join(LETTERS.choices(string.ascii_lowercase, k=LETTERS.randint(1, 6))) for _ in range(4_000))


@pytest.mark.parametrize("content, words", [
    (b"", "is empty"), (b" \n\t\n", "is empty"), (b"\xef\xbb\xbf", "is empty"),
    (b"so few words", "12 characters, which is too few: must be at least 10,000"),
    (b"\x89PNG\0\0" * 9999, "holds zero bytes, so it is a binary file"),
    (("wide" * 9999).encode("utf-16"), "or UTF-16"),
    (b"a" * 10_000 + "é".encode("latin-1") + b"b" * 10_000, "is not UTF-8: byte 10,000 is 0xe9"),
])
def test_what_is_no_text_is_refused(tmp_path, content, words):
    path = tmp_path / "my text.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError) as refusal:
        read_texts([path])
    assert words in str(refusal.value) and "\n" not in str(refusal.value)
    assert "my text.txt" in str(refusal.value) or "too few" in words


def test_files_that_are_not_there_are_named(tmp_path):
    for path, words in ((tmp_path / "nowhere.txt", "nowhere.txt does not exist"), (tmp_path, "is a folder")):
        with pytest.raises(UsageError, match=words):
            read_texts([path])


def test_several_files_are_long_enough_together_and_their_newlines_are_plain(tmp_path):
    half = "ä line\r\nand\ranother\n" * (MIN_CHARACTERS // 30)
    for name in "ab":
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + half.encode())
    expected = half.replace("\r\n", "\n").replace("\r", "\n")
    assert len(expected) < MIN_CHARACTERS
    assert read_texts([tmp_path / "a", tmp_path / "b"]) == [expected, expected]


def test_the_last_tenth_of_each_text_is_held_back():
    training, held_back = hold_back([TEXT, "short" * 20])
    assert [a + b for a, b in zip(training, held_back)] == [TEXT, "short" * 20]
    assert [len(part) for part in held_back] == [len(TEXT) // 10, 10]


def test_every_character_is_encoded_and_control_tokens_in_the_text_are_words(monkeypatch):
    texts = [f"{TEXT} {END_OF_TEXT} 🙂 end", "日本語のテキスト\n" * 40]
    tokenizer = learn_tokenizer("t", texts, 400)
    monkeypatch.setattr(own_text, "CHUNK", 1_003)
    ids = encode_texts(tokenizer, texts)
    end = tokenizer.special_tokens[END_OF_TEXT]
    assert ids.dtype == np.uint16 and np.flatnonzero(ids == end).tolist()[-1] == len(ids) - 1
    assert (ids == end).sum() == 2 and end == tokenizer.n_vocab - 1 == 399
    assert tokenizer.decode(ids.tolist()) == END_OF_TEXT.join([*texts, ""])


def test_the_vocabulary_has_the_size_asked_for_or_one_that_suits_the_text():
    assert learn_tokenizer("t", [TEXT], 321).n_vocab == 321
    assert learn_tokenizer("t", [TEXT]).n_vocab == usual_vocab_size(len(TEXT)) < 600
    assert learn_tokenizer("t", ["ab" * 9]).n_vocab < 300, "no pair occurs twice any more"
    for size in (299, 32_769):
        with pytest.raises(ValueError, match=f"vocab_size = {size} is not allowed: must be from 300 to 32,768"):
            learn_tokenizer("t", [TEXT], size)


def test_words_without_end_do_not_make_the_vocabulary_slow(monkeypatch):
    seen = []
    monkeypatch.setattr(own_text, "train_bpe", lambda sample, size: seen.extend(sample) or {b"a": 0})
    monkeypatch.setattr(own_text, "SAMPLE", 6_000)
    learn_tokenizer("t", ["acgt" * 5_000, "word " * 5_000], 400)
    assert max(map(len, regex.findall(r"\S+", " ".join(seen)))) <= 32
    assert seen[0].replace(" ", "") == "acgt" * 750 and seen[1] == "word " * 600


def test_windows_start_anywhere_and_belong_to_the_step():
    tokens = np.arange(1_000, dtype=np.uint16)
    windows = Windows(tokens, 9)
    ids = windows(3, 200, 9)
    assert ids.shape == (200, 10) and (ids.diff() == 1).all()
    assert ids.equal(windows(3, 200, 9)) and not ids.equal(windows(4, 200, 9))
    starts = {int(i) for step in range(60) for i in windows(step, 200, 9)[:, 0]}
    assert starts == set(range(991)), "12,000 draws from 991 leave one out in 1 of 180 seeds; not with this one"
    assert Windows(tokens[:10], 9)(0, 1, 9).tolist() == [list(range(10))]
    with pytest.raises(UsageError, match="9 tokens: must be more than 9"):
        Windows(tokens[:9], 9)
