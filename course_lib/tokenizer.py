"""Byte-level BPE: train a vocabulary, encode by rank, decode; tiktoken does the fast encoding.

A token is a string of bytes and its id is its rank, the moment in training when it was born. So the
vocabulary and the order of merges are one and the same table, `mergeable_ranks`, and encoding is:
join the neighbouring pair whose union has the lowest rank until no union is in the table.
"""

from __future__ import annotations

import heapq
import operator
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Literal
from unittest.mock import patch

import regex
import tiktoken
import tiktoken.load

from course_lib.added_tokens import AddedToken, AddedVocabulary
from course_lib.chat_template import Message, Shield, any_of, render_chat

Pair = tuple[int, int]

# Contractions, words with one leading space, single digits, punctuation, spaces (the last space of
# a run stays with the word that follows). Every character of the text is in exactly one piece.
POCKET_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def count_pairs(ids: Sequence[int], counts: Counter[Pair] | None = None, times: int = 1) -> Counter[Pair]:
    """How often each pair of neighbours occurs in `ids`, added to `counts` if given, `times`-fold.

    >>> count_pairs([1, 2, 3, 1, 2]) == {(1, 2): 2, (2, 3): 1, (3, 1): 1}
    True
    """
    counts = Counter() if counts is None else counts
    for pair in zip(ids, ids[1:]):
        counts[pair] += times
    return counts


def merge(ids: Sequence[int], pair: Pair, new_id: int) -> list[int]:
    """Replace each `pair` in `ids`, from left to right and without overlap, by `new_id`.

    >>> merge([1, 1, 1, 2], (1, 1), 9)
    [9, 1, 2]
    """
    merged, i = [], 0
    while i < len(ids):
        if tuple(ids[i : i + 2]) == pair:
            merged.append(new_id)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


def train_bpe(texts: Iterable[str], vocab_size: int, pat_str: str = POCKET_PATTERN) -> dict[bytes, int]:
    """Learn a byte-level BPE vocabulary: 256 bytes, then the most frequent pair, again and again.

    Pairs never cross the pieces that `pat_str` cuts. Among equally frequent pairs the one whose
    bytes come first in dictionary order wins (left token first, then right token), so the result
    depends on how often each piece occurs and not on the order of the texts.

    Args:
        texts: any number of strings.
        vocab_size: tokens to end with, >= 256; fewer when no pair occurs twice any more.

    Returns:
        `mergeable_ranks`: the bytes of each token and its id.

    Raises:
        ValueError: `vocab_size` is too small, or `texts` is one string and not several.

    Source: Sennrich et al. 2016 (BPE), Radford et al. 2019 (on bytes, within pieces).

    >>> [token for token, rank in train_bpe(["aaabdaaabac"], 259).items() if rank >= 256]
    [b'aa', b'ab', b'aaab']
    """
    if vocab_size < 256:
        raise ValueError(f"vocab_size = {vocab_size} is not allowed: must be >= 256, one for each byte")
    if isinstance(texts, str):
        raise ValueError(f"texts = {texts[:20]!r} is not allowed: must be several strings, [text] for one")
    pieces = Counter(piece for text in texts for piece in split_pieces(text, pat_str))
    words = [(list(piece), times) for piece, times in pieces.items()]
    tokens = [bytes([i]) for i in range(256)]
    ranks = {token: rank for rank, token in enumerate(tokens)}
    counts: Counter[Pair] = Counter()
    where: defaultdict[Pair, set[int]] = defaultdict(set)  # pair -> the words it was seen in
    for index, (ids, times) in enumerate(words):
        count_pairs(ids, counts, times)
        for pair in zip(ids, ids[1:]):
            where[pair].add(index)

    def entry(pair: Pair) -> tuple[int, bytes, bytes, Pair]:
        return -counts[pair], tokens[pair[0]], tokens[pair[1]], pair

    heap = [entry(pair) for pair in counts]
    heapq.heapify(heap)
    while len(tokens) < vocab_size and heap:
        count, _, _, pair = heapq.heappop(heap)
        if -count != counts[pair] or count == 0:
            continue  # an old entry: the count has changed since, and a newer entry says so
        if -count < 2:
            break
        union = tokens[pair[0]] + tokens[pair[1]]
        if union not in ranks:  # otherwise a second way to an old token, which spends no new id
            ranks[union] = len(tokens)
            tokens.append(union)
        changed = set()
        for index in where.pop(pair):
            ids, times = words[index]
            merged = merge(ids, pair, ranks[union])
            words[index] = merged, times
            count_pairs(ids, counts, -times)
            count_pairs(merged, counts, times)
            new_pairs = set(zip(merged, merged[1:]))
            changed |= new_pairs | set(zip(ids, ids[1:]))
            for new_pair in new_pairs:
                where[new_pair].add(index)
        for pair in changed:
            heapq.heappush(heap, entry(pair))
    return ranks


def split_pieces(text: str, pat_str: str) -> list[bytes]:
    """Cut `text` into the UTF-8 pieces that merges may not cross; lone surrogates become U+FFFD.

    >>> split_pieces("It's 42", POCKET_PATTERN)
    [b'It', b"'s", b' ', b'4', b'2']
    """
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return [match.group().encode() for match in regex.finditer(pat_str, text)]


def encode_piece(piece: bytes, mergeable_ranks: Mapping[bytes, int]) -> list[int]:
    """Encode one piece by rank: join the neighbours with the lowest-ranked union until none is known.

    >>> ranks = train_bpe(["aaabdaaabac"], 259)
    >>> [list(ranks)[i] for i in encode_piece(b"aaaab", ranks)]
    [b'aa', b'aa', b'b']
    """
    parts = [piece[i : i + 1] for i in range(len(piece))]
    while len(parts) > 1:
        unions = [left + right for left, right in zip(parts, parts[1:])]
        best = min(range(len(unions)), key=lambda i: mergeable_ranks.get(unions[i], float("inf")))
        if unions[best] not in mergeable_ranks:
            break
        parts[best : best + 2] = [unions[best]]
    return [mergeable_ranks[part] for part in parts]


class Tokenizer:
    """A vocabulary with its encoder and decoder, in tiktoken's names.

    Args:
        name: of the encoding, as in `tiktoken.get_encoding(name)`.
        pat_str: the pattern that cuts text into pieces.
        mergeable_ranks: the bytes of each ordinary token and its id.
        special_tokens: the text of each control token and its id.
        added_tokens: those of them that are not looked for as they are written, and added tokens that are text.
        normalizer: None, or the Unicode form ("NFC") that text is brought to before it is cut.
        chat_template: jinja source that `apply_chat_template` renders.
        bos_token, eos_token: texts of the special tokens that the template may name.
        template_tokens: more of these by name, such as "pad_token".
        prefix: texts of the special tokens that a model of this tokenizer expects before raw text.

    `encode` runs in tiktoken's Rust code; `encode_slowly` is the same function in Python.
    """

    def __init__(self, name: str, pat_str: str, mergeable_ranks: Mapping[bytes, int],
                 special_tokens: Mapping[str, int], *, added_tokens: Sequence[AddedToken] = (),
                 normalizer: str | None = None, chat_template: str | None = None, bos_token: str | None = None,
                 eos_token: str | None = None, template_tokens: Mapping[str, str] | None = None,
                 prefix: Sequence[str] = ()) -> None:
        self.name = name
        self.pat_str = pat_str
        self.mergeable_ranks = dict(mergeable_ranks)
        self.special_tokens = dict(special_tokens)
        self.added_tokens = tuple(added_tokens)
        self.normalizer = normalizer
        self.chat_template = chat_template
        self.bos_token, self.eos_token = bos_token, eos_token
        self.template_tokens = dict(template_tokens or {})
        self.prefix = tuple(prefix)

    @cached_property
    def encoding(self) -> tiktoken.Encoding:
        """The same tokenizer as a `tiktoken.Encoding`."""
        return tiktoken.Encoding(self.name, pat_str=self.pat_str, mergeable_ranks=self.mergeable_ranks,
                                 special_tokens={token.content: token.id for token in self.all_added_tokens()})

    @cached_property
    def added_vocabulary(self) -> AddedVocabulary:
        """What finds the added tokens in a text."""
        return AddedVocabulary(self.all_added_tokens(), self.normalize)

    @cached_property
    def ids(self) -> frozenset[int]:
        """Every id that has a token."""
        return frozenset(self.mergeable_ranks.values()) | {token.id for token in self.all_added_tokens()}

    def all_added_tokens(self) -> list[AddedToken]:
        """The control tokens and the tokens that are text, each with its flags, in the order of their ids."""
        plain = {text: AddedToken(text, id) for text, id in self.special_tokens.items()}
        return sorted({**plain, **{token.content: token for token in self.added_tokens}}.values(), key=lambda t: t.id)

    @property
    def n_vocab(self) -> int:
        """One more than the highest id."""
        return self.encoding.n_vocab

    def encode(self, text: str, *, allowed_special: Literal["all"] | Collection[str] = (),
               disallowed_special: Literal["all"] | Collection[str] = ()) -> list[int]:
        """Text to ids. The text of a special token is data, unless `allowed_special` names it.

        Raises:
            ValueError: the text holds a token of `disallowed_special` (by default there is none).
        """
        allowed = self.special_tokens if allowed_special == "all" else allowed_special
        disallowed = (self.special_tokens.keys() - allowed if disallowed_special == "all"
                      else disallowed_special)
        if match := regex.search(any_of(disallowed), text):
            raise ValueError(f"the text holds {match[0]!r}, a special token that is not allowed here")
        return self.encode_parts(text, self.special_tokens.keys() & allowed)

    def encode_prompt(self, text: str) -> list[int]:
        """Raw text as a model should get it: the ids of `prefix`, then those of the text, all of it data."""
        return [*(self.special_tokens[token] for token in self.prefix), *self.encode(text)]

    def encode_ordinary(self, text: str) -> list[int]:
        """Text to ids, with no special tokens whatever the text says."""
        return self.encode_parts(text, ())

    def encode_parts(self, text: str, allowed: Collection[str], show: Callable[[str], str] = str, *,
                     slowly: bool = False) -> list[int]:
        """Text to ids: the added tokens by their text, what lies between them by its bytes.

        Args:
            allowed, show: as for `AddedVocabulary.cut`.
        """
        encode = self.encode_text_slowly if slowly else self.encode_text
        return [id for part in self.added_vocabulary.cut(text, allowed, show)
                for id in (encode(part) if isinstance(part, str) else [part.id])]

    def encode_text(self, text: str) -> list[int]:
        """Normalized text without added tokens to ids."""
        return self.encoding.encode_ordinary(text)

    def encode_text_slowly(self, text: str) -> list[int]:
        """`encode_text`, written out in Python."""
        pieces = split_pieces(text, self.pat_str)
        return [rank for piece in pieces for rank in encode_piece(piece, self.mergeable_ranks)]

    def encode_slowly(self, text: str) -> list[int]:
        """`encode_ordinary`, written out in Python."""
        return self.encode_parts(text, (), slowly=True)

    def normalize(self, text: str) -> str:
        """The text in the tokenizer's Unicode form; without one, the text itself."""
        return unicodedata.normalize(self.normalizer, text) if self.normalizer else text

    def apply_chat_template(self, messages: Sequence[Message], *, tools: Sequence[Mapping] | None = None,
                            add_generation_prompt: bool = False, tokenize: bool = True) -> list[int] | str:
        """A conversation as ids, or with `tokenize=False` as text, control tokens included.

        In the ids only the template's own control tokens are control tokens: the text of one inside
        a message (content, role, tool arguments) or a tool's description is data. No token is added
        to what the template writes, so there is one beginning-of-sequence token or none, as it says.

        Args:
            messages, tools, add_generation_prompt: as for `course_lib.chat_template.render_chat`.

        Raises:
            ValueError: there is no chat template, or it refuses these messages.
        """
        if self.chat_template is None:
            raise ValueError(f"tokenizer {self.name!r} has no chat template")
        named = {**self.template_tokens, "bos_token": self.bos_token, "eos_token": self.eos_token}
        variables = {name: token for name, token in named.items() if token is not None}
        if not tokenize:
            return render_chat(self.chat_template, messages, tools=tools,
                               add_generation_prompt=add_generation_prompt, **variables)
        words = [token.content for token in self.all_added_tokens() if not token.special]
        shield = Shield(self.special_tokens, (messages, tools), words=words)
        text = render_chat(self.chat_template, shield.hide(messages), tools=shield.hide(tools),
                           add_generation_prompt=add_generation_prompt, **variables)
        return self.encode_parts(text, self.special_tokens.keys(), shield.show)

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """The bytes of the ids; a border may fall inside a character."""
        return b"".join(self.decode_single_token_bytes(operator.index(id)) for id in ids)

    def decode(self, ids: Sequence[int], errors: str = "replace") -> str:
        """Ids to text; bytes that are no UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors)

    def decode_single_token_bytes(self, token: int) -> bytes:
        """The bytes of one id; none where the tokenizer has no such id.

        A model's vocabulary is often padded beyond its tokenizer's, and can choose an id from the rest.

        Raises:
            OverflowError: it is negative.
        """
        return self.encoding.decode_single_token_bytes(token) if token in self.ids or token < 0 else b""


def installed_encodings() -> dict[str, tiktoken.Encoding]:
    """Every encoding, by name, that tiktoken can build without the network: of plugins, and from its cache."""
    read_file, found = tiktoken.load.read_file, {}

    def read_local(path: str) -> bytes:
        if "://" in path:
            raise OSError(f"{path} is not on this machine")
        return read_file(path)

    with patch("tiktoken.load.read_file", read_local):  # called for what is not in its cache
        for name in tiktoken.list_encoding_names():
            with suppress(OSError):
                found[name] = tiktoken.get_encoding(name)
    return found
