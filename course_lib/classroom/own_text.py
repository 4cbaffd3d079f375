"""Text to ids and ids to text with the reader's functions: a tokenizer and a stream of characters."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from course_lib.chat_template import POCKET_CHAT_TEMPLATE
from course_lib.classroom.engine_slots import Parts
from course_lib.detokenize import DecodeStream
from course_lib.tokenizer import Tokenizer, split_pieces


class OwnTokenizer(Tokenizer):
    """A tokenizer whose pieces and chat turns are encoded by the reader."""

    parts: Parts

    @classmethod
    def around(cls, tokenizer: Tokenizer, parts: Parts) -> OwnTokenizer:
        """The same vocabulary."""
        own = copy.copy(tokenizer)
        own.__class__, own.parts = cls, parts
        return own

    def encode_text(self, text: str) -> list[int]:
        """As `Tokenizer.encode_text`; with exercise 01.3."""
        if not self.parts.own("encode_piece"):
            return super().encode_text(text)
        pieces = split_pieces(text, self.pat_str)
        return [token_id for piece in pieces for token_id in self.parts.encode_piece(piece, self.mergeable_ranks)]

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping] | None = None,
                            add_generation_prompt: bool = False, tokenize: bool = True) -> list[int] | str:
        """As `Tokenizer.apply_chat_template`; with exercise 01.4 where a conversation is turns and nothing else."""
        if not (self.parts.own("encode_chat_turn") and tokenize and not tools and self.is_turns(messages)):
            return super().apply_chat_template(messages, tools=tools, add_generation_prompt=add_generation_prompt,
                                               tokenize=tokenize)
        ids = [token_id for message in messages
               for token_id in self.parts.encode_chat_turn(self, message["role"], message["content"])]
        opening = [self.special_tokens["<|im_start|>"], *self.encode_ordinary("assistant\n")]
        return [*ids, *opening] if add_generation_prompt else ids

    def is_turns(self, messages: Sequence[Mapping[str, Any]]) -> bool:
        """Whether the template writes these messages as a turn each, and a system message at most in front."""
        return (self.chat_template == POCKET_CHAT_TEMPLATE and len(messages) > 0
                and all(isinstance(m, Mapping) and m.keys() == {"role", "content"} and isinstance(m["content"], str)
                        and (m["role"] in ("user", "assistant") or (m["role"] == "system" and i == 0))
                        for i, m in enumerate(messages)))

    def decode_stream(self, stop: str | Sequence[str] | None = ()) -> OwnDecodeStream:
        """The stream of characters that `course_lib.detokenize.decode_stream` asks for."""
        return OwnDecodeStream(self, stop, parts=self.parts)


class OwnDecodeStream(DecodeStream):
    """A `DecodeStream` whose bytes wait as exercise 13.1 says, and whose characters wait as 13.2 says."""

    def __init__(self, tokenizer: Tokenizer, stop: str | Sequence[str] | None = (), *, parts: Parts) -> None:
        super().__init__(tokenizer, stop)
        self.parts = parts
        if parts.own("decode_increment"):
            self.decoder = Increments(parts)

    def release(self, new: str, final: bool = False) -> str:
        """As `DecodeStream.release`."""
        if not self.parts.own("release") or self.stopped is not None:
            return super().release(new, final)
        shown, self.held, self.stopped = self.parts.release(self.held, new, self.stop)
        if final and self.stopped is None:  # nothing will complete a stop string
            shown, self.held = shown + self.held, ""
        self.text += shown
        return shown


class Increments:
    """The reader's incremental decoder with the bytes that it holds, in the form of Python's."""

    def __init__(self, parts: Parts) -> None:
        self.parts, self.held = parts, b""

    def decode(self, new: bytes, final: bool = False) -> str:
        """The text that is complete; at the end all of it, a broken character as U+FFFD."""
        text, self.held = self.parts.decode_increment(self.held, new)
        if final:
            text, self.held = text + self.held.decode(errors="replace"), b""
        return text


def own_tokenizer(tokenizer: Any, parts: Parts) -> Any:
    """A tokenizer with the reader's functions; the same one where it is of another kind, or none of them is there."""
    names = ("encode_piece", "encode_chat_turn", "decode_increment", "release")
    return OwnTokenizer.around(tokenizer, parts) if type(tokenizer) is Tokenizer and parts.own(*names) else tokenizer
