"""tokenizer.json read and written: the ids are those of the `tokenizers` library, on any text."""

import json
import random
import sys

import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_checkpoints import LLAMA3_PATTERN, QWEN_PATTERN, SPECIALS, TEXT, make_tokenizer, write_tokenizer

from course_lib.detokenize import DecodeStream
from course_lib.hf_pattern import COMMON_SYNTAX
from course_lib.hf_tokenizer import (
    MergeListTokenizer,
    ranks_say_it_all,
    read_tokenizer,
    to_text,
    tokenizer_to_hf,
)
from course_lib.merge_list import byte_alphabet
from course_lib.tokenizer import POCKET_PATTERN, Tokenizer, split_pieces, train_bpe

STYLES = ("gpt2", "llama3", "qwen", "smollm")
NASTY = ["", " ", "  a", "a   b  ", "\t\tx\t", "\n\n", " \n \r\n  y", "it's I'LL 'ſ don’t", "1234567 ½ Ⅷ ٣٤٥",
         "日本語のテキスト", "한국어", "👩‍👩‍👧‍👦 🇧🇷 👍🏽", "e\u0301 a\u0328\u0301 ≯ >\u0338",
         "\u200b\ufeff\x00\x7f\x85\xa0\u2028", "\ufffd\ufdd0", "<|im_start|>user", "<|im_end|>\u0338",
         "<tool_call>{}", "<|endof", "aaaab", "ﬁ İ ß ẞ"]
characters = st.characters(exclude_categories=("Cs", "Cn"))  # what Unicode has assigned
texts = st.lists(st.one_of(st.text(characters), st.sampled_from(NASTY), st.sampled_from(TEXT),
                           st.text("ab '\n\t1é👍"))).map("".join)


@pytest.fixture(scope="module", params=STYLES)
def pair(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    reference = make_tokenizer(request.param)
    write_tokenizer(reference, folder)
    return reference, read_tokenizer(folder)


@pytest.fixture(scope="module")
def plain(pair):
    """The reference without its added tokens: nothing is special to it."""
    data = json.loads(pair[0].to_str())
    return tokenizers.Tokenizer.from_str(json.dumps(data | {"added_tokens": []}))


@pytest.fixture(scope="module")
def written(pair):
    """What was read, written again, by whichever rule it merges."""
    return tokenizers.Tokenizer.from_str(json.dumps(tokenizer_to_hf(pair[1])[0]))


@settings(max_examples=100)
@given(text=texts)
def test_reading_and_writing_give_identical_ids(pair, plain, written, text):
    reference, ours = pair
    expected = reference.encode(text, add_special_tokens=False).ids
    assert ours.encode(text, allowed_special="all") == expected
    assert ours.encode(text) == ours.encode_ordinary(text) == ours.encode_slowly(text)
    assert not set(ours.encode(text)) & set(ours.special_tokens.values())
    assert ours.encode_ordinary(text) == plain.encode(text).ids
    assert written.encode(text).ids == expected
    assert ours.decode(expected) == reference.decode(expected, skip_special_tokens=False)


def test_ids_and_specials_survive(pair):
    reference, ours = pair
    assert ours.special_tokens == {text: reference.token_to_id(text) for text in SPECIALS}
    assert ours.n_vocab == reference.get_vocab_size()
    assert ours.eos_token == "<|endoftext|>" and ours.bos_token is None
    for id in range(ours.n_vocab):
        assert reference.decode([id], skip_special_tokens=False) == ours.decode([id])


def test_which_rule_each_style_needs(pair):
    """A vocabulary without all bytes cannot go to tiktoken; the others run in its Rust code."""
    reference, ours = pair
    assert isinstance(ours, MergeListTokenizer) == (reference.token_to_id(byte_alphabet()[0]) is None)
    assert (ours.normalizer == "NFC") == (reference.normalizer is not None)


@pytest.fixture(scope="module")
def pocket():
    """Trained here, and written: ranks, no merges; ids of the specials with a gap before them."""
    ranks = train_bpe([*TEXT, *NASTY] * 3, 600)
    tokenizer = Tokenizer("pocket", POCKET_PATTERN, ranks, {tag: 700 + i for i, tag in enumerate(SPECIALS)})
    return tokenizer, tokenizers.Tokenizer.from_str(json.dumps(tokenizer_to_hf(tokenizer)[0]))


@settings(max_examples=100)
@given(text=texts)
def test_writing_our_own_gives_identical_ids(pocket, text):
    tokenizer, written = pocket
    assert written.encode(text).ids == tokenizer.encode(text, allowed_special="all")


def test_our_own_comes_back_as_it_was(pocket, tmp_path):
    tokenizer, written = pocket
    written.save(str(tmp_path / "tokenizer.json"))
    again = read_tokenizer(tmp_path)
    assert type(again) is Tokenizer and again.name == tmp_path.name
    for name in ("mergeable_ranks", "special_tokens", "pat_str", "normalizer"):
        assert getattr(again, name) == getattr(tokenizer, name)


def every_split(ranks):
    """All pairs of tokens that make a token, in the order of ranks: how Llama 3 was converted."""
    for token in sorted(ranks, key=ranks.get):
        cuts = [(token[:i], token[i:]) for i in range(1, len(token))]
        yield from sorted((pair for pair in cuts if ranks.keys() >= set(pair)),
                          key=lambda pair: [ranks[part] for part in pair])


def test_a_list_of_every_split_says_what_the_ranks_say(pocket):
    ranks, one_each = pocket[0].mergeable_ranks, tokenizer_to_hf(pocket[0])[0]["model"]["merges"]
    merges = list(every_split(ranks))
    assert len(merges) > len(one_each) == len(ranks) - 256
    assert ranks_say_it_all(ranks, merges, ignore_merges=True)
    assert not ranks_say_it_all(ranks, merges[:-1], ignore_merges=True)


LINES = r"\n|[^\n]+"


def bpe_json(ids, merges, ignore_merges):
    """A tokenizer.json over the bytes, whose pieces are whole lines."""
    vocab = {to_text(token): id for token, id in ids.items()}
    return {"version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None,
            "truncation": None, "padding": None, "decoder": {
                "type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": LINES}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
            "model": {"type": "BPE", "vocab": vocab, "ignore_merges": ignore_merges,
                      "merges": [[to_text(left), to_text(right)] for left, right in merges]}}


def write_json(data, folder):
    (folder / "tokenizer.json").write_text(json.dumps(data))
    return tokenizers.Tokenizer.from_str(json.dumps(data)), read_tokenizer(folder)


def random_bpe(seed):
    """Tokens joined at random out of a, b and c; pairs left out or in another order than the ids."""
    rng = random.Random(seed)
    tokens, merges = [bytes([byte]) for byte in range(256)], []
    short = [b"a", b"b", b"c"]
    for _ in range(rng.randint(1, 12)):
        left, right = rng.choice(short), rng.choice(short)
        if len(left + right) > 6:
            continue
        if left + right not in short:
            short.append(left + right)
            tokens.append(left + right)
        merges.append((left, right))
    if rng.random() < 0.3:
        rng.shuffle(merges)
    ids = list(range(len(tokens)))
    if rng.random() < 0.3:
        rng.shuffle(ids)
    if rng.random() < 0.3:
        merges = [pair for pair in merges if rng.random() < 0.8]
    return dict(zip(tokens, ids)), merges, rng.random() < 0.5


def words(rng, n):
    return ["".join(rng.choices("abc", k=rng.randint(1, 14))) for _ in range(n)]


def test_random_vocabularies_merge_as_their_list_says(tmp_path):
    """By rank or by list: whichever rule `read_tokenizer` chose, the ids are those of `tokenizers`."""
    chosen = {Tokenizer: 0, MergeListTokenizer: 0}
    for seed in range(80):
        reference, ours = write_json(bpe_json(*random_bpe(seed)), tmp_path)
        chosen[type(ours)] += 1
        for word in words(random.Random(seed), 60):
            assert ours.encode_ordinary(word) == reference.encode(word).ids, (seed, word)
    assert min(chosen.values()) > 15, "both rules were tried"


def test_random_ranks_written_as_a_list(tmp_path):
    """Any set of byte strings as tokens, some of which no merge reaches."""
    for seed in range(80):
        rng = random.Random(seed)
        tokens = list(dict.fromkeys(word.encode() for word in words(rng, 8) if 1 < len(word) < 6))
        ranks = {bytes([byte]): byte for byte in range(256)} | {t: 256 + i for i, t in enumerate(tokens)}
        ours = Tokenizer("random", LINES, ranks, {})
        (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer_to_hf(ours)[0]))
        reference, again = (tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")),
                            read_tokenizer(tmp_path))
        for word in [*words(rng, 60), *(token.decode() for token in tokens)]:
            assert reference.encode(word).ids == ours.encode_ordinary(word), (seed, word)
            assert again.encode_ordinary(word) == ours.encode_ordinary(word), (seed, word)


BYTES = {bytes([byte]): byte for byte in range(256)}


@pytest.mark.parametrize("tokens, merges, text, expected", [
    # "abc" can be made of ab + c, which is not in the list: tiktoken would make it
    ([b"ab", b"bc", b"abc"], [(b"a", b"b"), (b"b", b"c"), (b"a", b"bc")], "abc", [256, 99]),
    # the list joins bc before ab although ab has the lower id
    ([b"ab", b"bc"], [(b"b", b"c"), (b"a", b"b")], "abc", [97, 257]),
    # a token that no merge makes: tiktoken would take it whole
    ([b"abc"], [], "abc", [97, 98, 99]),
])
def test_where_ranks_and_list_differ_the_list_is_obeyed(tokens, merges, text, expected, tmp_path):
    ids = BYTES | {token: 256 + i for i, token in enumerate(tokens)}
    reference, ours = write_json(bpe_json(ids, merges, False), tmp_path)
    assert ours.encode(text) == reference.encode(text).ids == expected
    assert Tokenizer("by rank", ours.pat_str, ids, {}).encode(text) != expected


def test_bytes_without_a_token_leave_no_trace(tmp_path):
    ids = {b"a": 0, b"b": 1, b"ab": 2}
    reference, ours = write_json(bpe_json(ids, [(b"a", b"b")], False), tmp_path)
    assert ours.encode("aéb!") == reference.encode("aéb!").ids == [2]


def test_nfc_joins_what_was_written_in_two_characters(tmp_path):
    write_tokenizer(make_tokenizer("qwen"), tmp_path)
    qwen = read_tokenizer(tmp_path)
    assert qwen.encode("e\u0301") == qwen.encode("é") and qwen.decode(qwen.encode("e\u0301")) == "é"
    assert qwen.decode(qwen.encode("<|im_end|>\u0338", allowed_special="all")) == "<|im_end|>\u0338"


def test_chat_template_and_special_tokens_are_found_wherever_they_are(tmp_path):
    tokenizer = make_tokenizer("gpt2", 300)
    write_tokenizer(tokenizer, tmp_path, chat_template="one", bos_token={"content": "<|im_start|>"})
    assert read_tokenizer(tmp_path).chat_template == "one"
    assert read_tokenizer(tmp_path).bos_token == "<|im_start|>"
    write_tokenizer(tokenizer, tmp_path, chat_template=[{"name": "tool_use", "template": "no"},
                                                        {"name": "default", "template": "two"}])
    assert read_tokenizer(tmp_path).chat_template == "two"
    (tmp_path / "chat_template.jinja").write_text("three")
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": "<|im_end|>"}')
    assert read_tokenizer(tmp_path).chat_template == "three"
    assert read_tokenizer(tmp_path).bos_token == "<|im_end|>"


def with_prefix(style, *, byte_level):
    """A tokenizer that puts two special tokens before a text, as Llama 3's puts one."""
    tokenizer, (first, second) = make_tokenizer(style), list(SPECIALS)[:2]
    template = tokenizers.processors.TemplateProcessing(
        single=f"{first} {second} $A", pair=f"{first} $A {second} $B",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (first, second)])
    steps = [tokenizers.processors.ByteLevel(trim_offsets=True), template]
    tokenizer.post_processor = tokenizers.processors.Sequence(steps) if byte_level else template
    return tokenizer


@pytest.mark.parametrize("byte_level", [False, True])
def test_raw_text_gets_the_prefix_that_the_file_asks_for(byte_level, tmp_path):
    reference = with_prefix("llama3", byte_level=byte_level)
    write_tokenizer(reference, tmp_path)
    ours = read_tokenizer(tmp_path)
    assert ours.prefix == tuple(list(SPECIALS)[:2])
    for text in ("", "hello you", "two  lines\n"):
        assert ours.encode_prompt(text) == reference.encode(text).ids
        assert ours.encode(text) == reference.encode(text, add_special_tokens=False).ids
    written = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_to_hf(ours)[0]))
    assert written.encode("hello you").ids == reference.encode("hello you").ids
    written.save(str(tmp_path / "tokenizer.json"))
    assert read_tokenizer(tmp_path).prefix == ours.prefix


def test_a_special_token_in_raw_text_is_data_behind_the_prefix_too(tmp_path):
    write_tokenizer(with_prefix("llama3", byte_level=False), tmp_path)
    ours = read_tokenizer(tmp_path)
    assert set(ours.encode_prompt("<|im_end|>")[2:]).isdisjoint(ours.special_tokens.values())


def test_a_text_between_special_tokens_is_refused(tmp_path):
    tokenizer, token = make_tokenizer("gpt2", 300), next(iter(SPECIALS))
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{token} $A {token}", special_tokens=[(token, tokenizer.token_to_id(token))])
    write_tokenizer(tokenizer, tmp_path)
    with pytest.raises(ValueError, match="known special tokens, then the text"):
        read_tokenizer(tmp_path)


ADDED = {
    "qwen3": ("qwen", [("<think>", {}), ("</think>", {}), ("<tool_call>", {}), ("</tool_call>", {})], False),
    "neox": ("gpt2", [(" " * n, {}) for n in range(2, 25)] + [("|||EMAIL|||", {})], True),
    "no normalizer": ("llama3", [(" " * n, {}) for n in range(2, 9)] + [("x  ", {})], True),
    "flags": ("qwen", [("<l>", {"lstrip": True}), ("<r>", {"rstrip": True}), ("dog", {"single_word": True}),
                       ("日!", {}), ("日é?", {"normalized": True}), ("<l><r>", {"lstrip": True, "rstrip": True}),
                       ("the", {"single_word": True, "lstrip": True, "normalized": True}), ("\n", {})], False),
    "inside": ("llama3", [("im_end", {}), ("|>", {}), ("<|im_end|> and", {})], False),
}


@pytest.fixture(scope="module", params=ADDED)
def with_words(request, tmp_path_factory):
    """A tokenizer with added tokens that are text, as it is and as one for which control tokens are data."""
    style, words, normalized = ADDED[request.param]
    folder, reference = tmp_path_factory.mktemp("tokenizer"), make_tokenizer(style, 380)
    data = json.loads(reference.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] != "<tool_call>"]
    data["normalizer"] = {"type": "NFC"} if request.param in ("neox", "qwen3", "flags") else None
    data["model"]["vocab"].pop("<tool_call>", None)
    reference = tokenizers.Tokenizer.from_str(json.dumps(data))
    reference.add_tokens([tokenizers.AddedToken(text, **{"normalized": normalized} | flags) for text, flags in words])
    write_tokenizer(reference, folder)
    strict = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    strict.encode_special_tokens = True
    return reference, strict, read_tokenizer(folder), [text for text, _ in words]


def word_texts(words):
    edges = [" ", "  ", "\n", "\u0301", "a", "_", "dogs", "-", "日e\u0301?"]
    parts = st.one_of(texts, st.sampled_from([*words, *SPECIALS, *edges]))
    return st.lists(parts, max_size=12).map("".join)


@settings(max_examples=60)
@given(data=st.data())
def test_added_tokens_that_are_text_are_found_as_tokenizers_finds_them(with_words, data):
    reference, strict, ours, words = with_words
    text = data.draw(word_texts(words))
    expected = reference.encode(text, add_special_tokens=False).ids
    assert ours.encode(text, allowed_special="all") == expected
    as_data = strict.encode(text, add_special_tokens=False).ids
    assert ours.encode(text) == ours.encode_ordinary(text) == ours.encode_slowly(text) == as_data
    assert not set(as_data) & set(ours.special_tokens.values())
    assert ours.decode(expected) == reference.decode(expected, skip_special_tokens=False)
    written = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_to_hf(ours)[0]))
    assert written.encode(text).ids == expected


@settings(max_examples=100)
@given(data=st.data())
def test_added_tokens_that_are_text_are_streamed(with_words, data):
    reference, _, ours, words = with_words
    ids = reference.encode(data.draw(word_texts(words))).ids
    stream = DecodeStream(ours)
    pieces = [*map(stream.push, ids), stream.flush()]
    assert "".join(pieces) == reference.decode(ids, skip_special_tokens=True)
    whole = DecodeStream(ours, skip_special_tokens=False)
    assert "".join([*map(whole.push, ids), whole.flush()]) == reference.decode(ids, skip_special_tokens=False)


def test_flags_survive_a_round_trip(with_words, tmp_path):
    reference, _, ours, words = with_words
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer_to_hf(ours)[0]))
    again = read_tokenizer(tmp_path)
    assert again.all_added_tokens() == ours.all_added_tokens() and len(again.all_added_tokens()) == len(words) + 3
    assert set(again.special_tokens) == set(SPECIALS) - {"<tool_call>"}
    assert again.n_vocab == reference.get_vocab_size()


def test_an_id_beyond_the_vocabulary_is_decoded_as_nothing(pair):
    reference, ours = pair
    ids = [*ours.encode("ab"), 10**6, ours.n_vocab, *ours.encode("é")]
    assert ours.decode(ids) == reference.decode(ids) == "abé"
    assert ours.decode(torch.tensor(ids)) == "abé"
    with pytest.raises(OverflowError):
        ours.decode([-1])


def change(path, value):
    """A valid tokenizer.json with one entry replaced."""
    data = bpe_json(BYTES | {b"ab": 256}, [(b"a", b"b")], False)
    *parents, last = path
    place = data
    for key in parents:
        place = place[key]
    place[last] = value
    return data


@pytest.mark.parametrize("path, value, message", [
    (["model"], {"type": "Unigram", "vocab": [["a", 0.0]]}, "model type = 'Unigram'"),
    (["model"], {"type": "WordPiece", "vocab": {}}, "model type = 'WordPiece'"),
    (["model", "byte_fallback"], True, "byte_fallback = True"),
    (["model", "end_of_word_suffix"], "</w>", "end_of_word_suffix = '</w>'"),
    (["model", "dropout"], 0.1, "dropout = 0.1"),
    (["model", "vocab", "日"], 300, "token = '日'"),
    (["pre_tokenizer"], None, "pre_tokenizer"),
    (["pre_tokenizer"], {"type": "Metaspace", "replacement": "▁"}, "Metaspace"),
    (["pre_tokenizer", "pretokenizers", 1, "add_prefix_space"], True, "add_prefix_space = True"),
    (["pre_tokenizer", "pretokenizers", 1, "use_regex"], True, "pre_tokenizer"),
    (["pre_tokenizer", "pretokenizers", 0, "behavior"], "MergedWithNext", "MergedWithNext"),
    (["pre_tokenizer", "pretokenizers", 0, "pattern"], {"String": " "}, "String"),
    (["pre_tokenizer", "pretokenizers", 0, "pattern"], {"Regex": r"\p{L}+"}, "covers all text"),
    (["normalizer"], {"type": "Lowercase"}, "Lowercase"),
    (["normalizer"], 1, "int"), (["normalizer"], {"normalizers": 1}, "int"), (["model"], 1, "int"),
    (["model"], [], "BPE"),
    (["decoder"], None, "decoder = None"), (["decoder"], {"type": "Metaspace"}, "decoder = 'Metaspace'"),
    (["model", "vocab"], None, "vocab = None"), (["model", "vocab"], {}, "vocab = {}"),
    (["model", "vocab"], [], "vocab"),
    (["model", "vocab", "ab"], -1, "id of token 'ab' = -1"), (["model", "vocab", "ab"], 1.5, "id of token 'ab' = 1.5"),
    (["model", "vocab", "ab"], "7", "id of token 'ab' = '7'"), (["model", "vocab", "ab"], 2**40, "id of token 'ab'"),
    (["model", "vocab", "ab"], 97, "id 97 belongs to two tokens, 'a' and 'ab'"),
    (["model", "vocab", "ab"], True, "True"),
    (["model", "merges"], None, "merges = None"), (["model", "merges"], ["a b c"], "merge = "),
    (["model", "merges"], [["a", "x"]], r"merge = \('a', 'x'\)"), (["model", "merges"], [["é", "b"]], "merge = "),
    (["model", "merges"], [1], "int"), (["model", "merges"], [["a"]], "merge = "),
    (["model", "ignore_merges"], 1, "= 1"),
    (["added_tokens"], [{"id": 257, "content": ""}], "added token ''"), (["added_tokens"], [{"id": 257}], "content"),
    (["added_tokens"], [{"id": 258, "content": "<m>"}], "id of added token '<m>' = 258 .* must be 257"),
    (["added_tokens"], [{"id": -1, "content": "<m>"}], "= -1"),
    (["added_tokens"], [{"id": 1.0, "content": "<m>"}], "1.0"),
    (["added_tokens"], [{"id": 257, "content": "<m>", "special": 1}], "flags"), (["added_tokens"], 5, "int"),
    (["added_tokens"], [{"id": 257, "content": "<m>"}] * 2, "listed once"), (["added_tokens"], ["<m>"], "str"),
    (["added_tokens"], [{"id": 257, "content": "é<"}], "decoded to its own text"),
    (["pre_tokenizer"], [], "pre_tokenizer"), (["pre_tokenizer"], 7, "int"),
    *((["pre_tokenizer", "pretokenizers", 0, "pattern", "Regex"], pattern, "Split pattern") for pattern in (
        r"\w+|\W", r"\b|.+", r"[[:alpha:]]+|.", r"(a|.)++\1", r"(?<x>a)|.", r"^.|.", r"a$|.", r"[\p{L}&&[^a]]|.",
        r"(?i:straße)|.", r"(?i)a|.", r"(a+)+|.", r"a{2}+|.", r"\h|.", r"\p{Punct}|.", r"(?<=a)b|.", "(", "[", "a{",
        r".*", "", 5, None, "(" * 5000, r"\x41|.", r"a{2}?|.", r"\R|.", r"(?>a)|.", r"[a--b]|.")),
])
def test_what_is_not_supported_is_refused_by_name(path, value, message, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(change(path, value)))
    with pytest.raises(ValueError, match=message) as caught:
        read_tokenizer(tmp_path)
    assert str(tmp_path / "tokenizer.json") in str(caught.value)


O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)"
          r"|\s+")
DEEPSEEK = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+|\p{N}|[^\s\p{L}\p{M}\p{N}\p{P}\p{S}]+")


@pytest.fixture(scope="module", params=[LLAMA3_PATTERN, QWEN_PATTERN, O200K, CL100K, DEEPSEEK, POCKET_PATTERN],
                ids=["llama 3", "qwen", "o200k", "cl100k", "deepseek", "pocket"])
def patterned(request, tmp_path_factory):
    data = bpe_json(BYTES, [], False)
    data["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = request.param
    assert COMMON_SYNTAX.fullmatch(request.param)
    reference, ours = write_json(data, tmp_path_factory.mktemp("pattern"))
    return reference.pre_tokenizer, ours.pat_str


@settings(max_examples=60)
@given(text=texts)
def test_published_patterns_are_accepted_and_cut_alike(patterned, text):
    reference, pattern = patterned
    pieces = [piece for piece in split_pieces(text, pattern) if piece]
    expected = [text[start:end].encode() for _, (start, end) in reference.pre_tokenize_str(text)]
    assert pieces == expected


def test_a_panic_of_tiktoken_becomes_a_value_error(tmp_path, monkeypatch):
    """Whatever it refuses, and at load."""
    panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})

    def fail(self, ids):
        raise panic("Encoder and decoder must be of equal length")

    monkeypatch.setattr(Tokenizer, "decode", fail)
    with pytest.raises(ValueError, match=r"tokenizer\.json: tiktoken .* refuses it: Encoder and decoder"):
        write_json(bpe_json(BYTES, [], False), tmp_path)
    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: sys.exit(3))
    with pytest.raises(SystemExit):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize("name, content", [
    ("tokenizer_config.json", {"chat_template": 5}), ("tokenizer_config.json", {"chat_template": ["x"]}),
    ("tokenizer_config.json", {"chat_template": [{"name": "default", "template": 1}]}),
    ("tokenizer_config.json", {"eos_token": 1}), ("tokenizer_config.json", {"pad_token": {"content": 1}}),
    ("special_tokens_map.json", {"bos_token": []}),
])
def test_options_of_another_kind_are_refused(name, content, tmp_path):
    write_tokenizer(make_tokenizer("gpt2", 300), tmp_path)
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"tokenizer_config\.json: (chat_template|\w+_token)"):
        read_tokenizer(tmp_path)


def test_a_folder_without_tokenizer_json_is_refused(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(b"\x0a")
    with pytest.raises(ValueError, match=r"no tokenizer\.json"):
        read_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match=r"tokenizer\.json is not valid JSON"):
        read_tokenizer(tmp_path)


def test_the_alphabet_is_that_of_tokenizers():
    assert set(byte_alphabet().values()) == set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    assert len(set(byte_alphabet().values())) == 256
