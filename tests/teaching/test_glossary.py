"""The glossary: what an entry must hold, which words of a text are terms, and that the cells are there."""

import json

import pytest

from course_lib.classroom.course_map import notebooks_folder
from course_lib.classroom.glossary import Term, first_uses, glossary, missing_cells, plural

CACHE = """
[[terms]]
term = "KV cache"
also = ["key/value cache"]
notebook = "08"
cell = "work"
text = "Keys and values of all tokens so far, kept so that they are computed once."
"""
QUERY = """
[[terms]]
term = "query"
notebook = "03"
cell = "hand"
text = "What a token looks for in others."
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "nb08.toml").write_text(CACHE)
    (tmp_path / "nb03.toml").write_text(QUERY)
    return tmp_path


def term(name, *also):
    return Term(name, "03", "hand", "A text of some words.", also)


def found(text, *terms, seen=None):
    return [(text[use.start:use.end], use.term.term) for use in first_uses(text, terms, seen=seen)]


def test_entries_come_in_the_order_of_the_alphabet(folder):
    first, second = glossary(folder)
    assert (first.term, first.slug, first.notebook, first.cell) == ("KV cache", "term-kv-cache", "08", "work")
    assert first.forms == ("KV cache", "KV caches", "key/value cache", "key/value caches")
    assert second.forms == ("query", "queries") and second.also == ()


@pytest.mark.parametrize("change, said", [
    (("term =", "name ="), "keys"),
    (('notebook = "08"', 'notebook = "07"'), "notebook = '07'"),
    (('cell = "work"', 'cell = ""'), "cell = ''"),
    (('cell = "work"', "cell = 8"), "cell = 8"),
    (("computed once.", "computed once"), "the end of a sentence"),
    (("all tokens", "all " + "many " * 60 + "tokens"), "3 to 60"),
    (('also = ["key/value cache"]', 'also = "key/value cache"'), "a list"),
    (('also = ["key/value cache"]', 'also = [" cache"]'), "without spaces"),
    (("[[terms]]", "[[words]]"), "[[terms]] alone"),
    (('cell = "work"', 'cell = "work'), "not a TOML file"),
    (('text = "Keys', 'colour = "red"\ntext = "Keys'), "keys"),
], ids=lambda change: change[1] if isinstance(change, tuple) else "")
def test_what_is_wrong_with_an_entry_is_said(folder, change, said):
    text = CACHE.replace(*change)
    assert text != CACHE
    (folder / "nb08.toml").write_text(text)
    with pytest.raises(ValueError, match=r"nb08\.toml") as error:
        glossary(folder)
    assert said in str(error.value)


def test_a_file_is_named_after_a_notebook(folder):
    (folder / "nb18.toml").write_text(CACHE)
    with pytest.raises(ValueError, match=r"nb18.toml.*nb00.toml to nb17.toml"):
        glossary(folder)


@pytest.mark.parametrize("form", ["kv cache", "KV caches", "Key/value cache"])
def test_a_form_belongs_to_one_entry(folder, form):
    (folder / "nb03.toml").write_text(QUERY.replace('"query"', json.dumps(form)))
    with pytest.raises(ValueError, match="in one entry only, not in those of 03 and 08"):
        glossary(folder)


def test_places_have_names_of_their_own(folder):
    (folder / "nb03.toml").write_text(QUERY.replace('"query"', '"KV-cache"'))
    with pytest.raises(ValueError, match="different in their letters and digits"):
        glossary(folder)


def test_a_cell_that_is_not_there_is_named(folder, tmp_path):
    notebooks = tmp_path / "notebooks"
    notebooks.mkdir()
    (notebooks / "08_kv_cache.ipynb").write_text(json.dumps({"cells": [{"id": "work"}, {"id": "hand"}]}))
    assert missing_cells(glossary(folder), notebooks) == ["nb03: hand"]


def test_the_glossary_of_the_course_is_sound():
    terms = glossary()
    assert missing_cells(terms, notebooks_folder()) == []
    assert {term.notebook for term in terms} == {f"{number:02}" for number in range(18)}, "every notebook defines some"


# Terms in a text


@pytest.mark.parametrize("word, several", [("weight", "weights"), ("query", "queries"), ("key", "keys"),
                                           ("batch", "batches"), ("softmax", "softmaxes"), ("bias", "biases")])
def test_plurals(word, several):
    assert plural(word) == several


def test_only_the_first_use_of_each_term_counts():
    text = "A cache and a query. The cache, the queries."
    assert found(text, term("cache"), term("query")) == [("cache", "cache"), ("query", "query")]
    assert found(text, term("cache"), term("query"), seen={"term-cache"}) == [("query", "query")]


def test_of_two_terms_at_a_place_the_longer_is_meant():
    terms = term("cache"), term("KV cache"), term("KV cache hit")
    assert found("No KV cache hit, no KV cache, no cache.", *terms) == [
        ("KV cache hit", "KV cache hit"), ("KV cache", "KV cache"), ("cache", "cache")]


@pytest.mark.parametrize("text", ["cached", "a_cache", "re-cache", "cache-like", "cache/ram", "xcache", "caches2",
                                  "CACHE"])
def test_a_part_of_a_word_is_no_term(text):
    assert found(text, term("cache")) == []


def test_capitals_and_line_breaks():
    assert found("Prompt\nlookup helps.", term("prompt lookup")) == [("Prompt\nlookup", "prompt lookup")]
    assert found("a rope and RoPE", term("RoPE")) == [("RoPE", "RoPE")]
    assert found("top-k, (top-p)", term("top-k"), term("top-p")) == [("top-k", "top-k"), ("top-p", "top-p")]


def test_signs_in_a_term_are_letters_to_it():
    assert found("pox, p(x) or p(y)", term("p(x)")) == [("p(x)", "p(x)")]
    assert found("the key/value cache", term("key/value cache")) == [("key/value cache", "key/value cache")]
    assert found("nothing here", *[]) == []
