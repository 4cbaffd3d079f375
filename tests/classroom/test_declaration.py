"""The texts in eight languages that notebook 01 counts tokens of, and GPT-2's ids of one question."""

import unicodedata

from course_lib.classroom.declaration import FIRST, SECOND
from course_lib.classroom.gpt2_excerpt import GPT2_EXCERPT
from course_lib.tokenizer import encode_piece

SCRIPTS = {"English": "LATIN", "German": "LATIN", "Russian": "CYRILLIC", "Greek": "GREEK", "Arabic": "ARABIC",
           "Hindi": "DEVANAGARI", "Chinese": "CJK", "Japanese": "HIRAGANA"}


def test_every_language_is_written_in_its_script():
    assert list(FIRST) == list(SCRIPTS)
    assert list(SECOND) == list(SCRIPTS)[1:]
    for texts in (FIRST, SECOND):
        for language, text in texts.items():
            letters = [unicodedata.name(c) for c in text if unicodedata.category(c)[0] in "LM"]
            assert sum(name.startswith(SCRIPTS[language]) for name in letters) > 0.5 * len(letters)
            assert text == text.strip() and text[-1] in ".。।"


def test_the_sentence_that_is_measured_is_not_in_the_other():
    for language, text in SECOND.items():
        assert text not in FIRST[language] and FIRST[language] not in text


def test_gpt2_ids_of_the_question():
    """The ids that `tiktoken.get_encoding("gpt2")` gives."""
    pieces = (b"What", b" is", b" gravity", b"?")
    assert [i for piece in pieces for i in encode_piece(piece, GPT2_EXCERPT)] == [2061, 318, 13522, 30]
    halves = {token: i for token, i in GPT2_EXCERPT.items() if token != b" gravity"}
    assert encode_piece(b" gravity", halves) == [9067, 414]


def test_the_excerpt_is_one_vocabulary():
    assert len(set(GPT2_EXCERPT.values())) == len(GPT2_EXCERPT)
    assert all(bytes([b]) in GPT2_EXCERPT for token in GPT2_EXCERPT for b in token)
