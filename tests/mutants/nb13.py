"""Wrong and right answers to the exercises of notebook 13; each name says what the function does wrong."""

import codecs
import re
import unicodedata

from mutants import mutant, variant

# 13.1 decode_increment


@mutant("13.1", "hold it, and show nothing")
def decode_increment_each_token_alone(held, new):
    return (held + new).decode(errors="replace"), b""


@mutant("13.1", "hold it, and show nothing")
def decode_increment_ignoring_what_is_cut(held, new):
    return (held + new).decode(errors="ignore"), b""


@mutant("13.1", "look at the bytes")
def decode_increment_that_waits_while_the_text_ends_in_the_sign(held, new):
    text = (held + new).decode(errors="replace")
    return ("", held + new) if text.endswith("\ufffd") else (text, b"")


@mutant("13.1", "hold the unfinished character only")
def decode_increment_that_holds_everything(held, new):
    try:
        return (held + new).decode(), b""
    except UnicodeDecodeError:
        return "", held + new


@mutant("13.1", "the bytes that were held come first")
def decode_increment_that_forgets_what_it_held(held, new):
    return codecs.utf_8_decode(new, "replace", False)[0], new[codecs.utf_8_decode(new, "replace", False)[1]:]


@mutant("13.1", "the bytes that were held come first")
def decode_increment_in_the_wrong_order(held, new):
    data = new + held
    text, used = codecs.utf_8_decode(data, "replace", False)
    return text, data[used:]


@mutant("13.1", "two bytes of three")
def decode_increment_that_holds_one_byte_at_most(held, new):
    data = held + new
    if data and data[-1] >= 0xC0:
        return data[:-1].decode(errors="replace"), data[-1:]
    return data.decode(errors="replace"), b""


@mutant("13.1", "waiting does not help")
def decode_increment_that_waits_after_any_high_byte(held, new):
    data = held + new
    n = 0
    while n < min(3, len(data)) and data[len(data) - n - 1] >= 0x80:
        n += 1
    try:
        return data.decode(), b""
    except UnicodeDecodeError:
        keep = len(data) - n
        return data[:keep].decode(errors="replace"), data[keep:]


@mutant("13.1", "a broken byte earlier on")
def decode_increment_that_looks_at_the_first_error_only(held, new):
    data = held + new
    try:
        return data.decode(), b""
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            return data[: error.start].decode(), data[error.start :]
        return data.decode(errors="replace"), b""


def lead(data, lengths):
    """The unfinished end by the first byte's length alone."""
    for n in (1, 2, 3):
        if n <= len(data) and data[-n] >= 0xC0:
            wants = next((size for low, size in lengths if data[-n] >= low), 1)
            follow = all(0x80 <= byte < 0xC0 for byte in data[len(data) - n + 1 :])
            return len(data) - n if wants > n and follow else len(data)
    return len(data)


@mutant("13.1", "not every beginning can become a character")
def decode_increment_by_the_length_of_the_first_byte(held, new):
    data = held + new
    cut = lead(data, ((0xF8, 1), (0xF0, 4), (0xE0, 3), (0xC0, 2)))
    return data[:cut].decode(errors="replace"), data[cut:]


@mutant("13.1", "up to three wait")
def decode_increment_with_characters_of_three_bytes_at_most(held, new):
    data = held + new
    for n in (2, 1):
        try:
            data[-n:].decode()
        except UnicodeDecodeError as error:
            if error.start == 0 and error.reason == "unexpected end of data":
                return data[:-n].decode(errors="replace"), data[-n:]
    return data.decode(errors="replace"), b""


def decode_unless(lowest, highest):
    """A right answer, except that it never waits for a character whose first byte is in a range."""
    def decode_increment(held, new):
        data = held + new
        text, used = codecs.utf_8_decode(data, "replace", False)
        if used < len(data) and lowest <= data[used] <= highest:
            return data.decode(errors="replace"), b""
        return text, data[used:]
    return decode_increment


@mutant("13.1", "F1 begins a character of 4 bytes: hold it until all of them are there (Hypothesis tried random inputs")
def decode_increment_that_waits_for_f0_and_f4_only(held, new):
    return decode_unless(0xF1, 0xF3)(held, new)


@mutant("13.1", "C4 begins a character of 2 bytes: hold it until all of them are there (Hypothesis tried random inputs")
def decode_increment_that_waits_for_latin_only(held, new):
    return decode_unless(0xC4, 0xDE)(held, new)


@mutant("13.1", "E3 begins a character of 3 bytes: hold it until all of them are there (Hypothesis tried random inputs")
def decode_increment_that_does_not_wait_for_japanese(held, new):
    return decode_unless(0xE3, 0xE5)(held, new)


def decode_otherwise(held, new, encoding="utf-8", change=str):
    """A right answer, but for the encoding or a change to the text."""
    data = held + new
    used = codecs.utf_8_decode(data, "replace", False)[1]
    return change(data[:used].decode(encoding, errors="replace")), data[used:]


@mutant("13.1", "no character is changed, added or left out (Hypothesis tried random inputs")
def decode_increment_that_drops_a_byte_order_mark(held, new):
    return decode_otherwise(held, new, "utf-8-sig")


@mutant("13.1", "no character is changed, added or left out (Hypothesis tried random inputs")
def decode_increment_with_the_line_ends_of_unix(held, new):
    return decode_otherwise(held, new, change=lambda text: text.replace("\r\n", "\n"))


@mutant("13.1", "no character is changed, added or left out (Hypothesis tried random inputs")
def decode_increment_that_joins_accents(held, new):
    return decode_otherwise(held, new, change=lambda text: unicodedata.normalize("NFC", text))


@mutant("13.1", "U+FFFD may also be a character")
def decode_increment_with_question_marks(held, new):
    return decode_otherwise(held, new, change=lambda text: text.replace("\ufffd", "?"))


@mutant("13.1", "ValueError: no zeros")
def decode_increment_that_raises_on_a_zero(held, new):
    if 0 in new:
        raise ValueError("no zeros")
    return decode_otherwise(held, new)


@mutant("13.1", "remembers something from call to call")
def decode_increment_that_is_right_the_second_time(held, new, seen=set()):  # noqa: B006
    first = b"\xf1" in new and new not in seen
    seen.add(new)
    return ("", b"") if first else decode_otherwise(held, new)


@mutant("13.1", "return a str, not bytes")
def decode_increment_without_decoding(held, new):
    return held + new, b""


@variant("13.1")
def decode_increment_with_the_library(held, new):
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    text = decoder.decode(held + new)
    return text, decoder.getstate()[0]


@variant("13.1")
def decode_increment_by_trying_to_complete(held, new):
    data = held + new
    for n in range(min(3, len(data)), 0, -1):
        tail = data[-n:]
        for fill in (b"\x80", b"\xbf"):
            for more in (1, 2, 3):
                whole = (tail + fill * more).decode(errors="ignore")
                if len(whole) == 1 and whole.encode() == tail + fill * more:
                    return data[:-n].decode(errors="replace"), tail
    return data.decode(errors="replace"), b""


# 13.2 release


def held_end(text, stops):
    """The longest end of a text that one of the stop strings begins with."""
    return next((text[i:] for i in range(len(text)) if any(s.startswith(text[i:]) for s in stops)), "")


def split_end(text, stops):
    """What is safe, and what is held."""
    held = held_end(text, stops)
    return text[: len(text) - len(held)], held, None


@mutant("13.2", "may become the stop string")
def release_that_shows_all_until_the_stop_is_there(held, new, stops):
    text = held + new
    for s in stops:
        if s in text:
            return text[: text.find(s)], "", s
    return text, "", None


@mutant("13.2", "a stop string that spans two tokens counts")
def release_that_looks_in_the_new_token_only(held, new, stops):
    for s in stops:
        if s in new:
            return held + new[: new.find(s)], "", s
    return split_end(held + new, stops)


@mutant("13.2", "what was held comes first")
def release_that_forgets_what_it_held(held, new, stops):
    for s in stops:
        if s in new:
            return new[: new.find(s)], "", s
    return split_end(new, stops)


@mutant("13.2", "thrown away")
def release_that_keeps_the_stop_string(held, new, stops):
    text = held + new
    for s in stops:
        if s in text:
            return text[: text.find(s) + len(s)], "", s
    return split_end(text, stops)


@mutant("13.2", "thrown away")
def release_that_holds_what_follows(held, new, stops):
    text = held + new
    for s in stops:
        if s in text:
            return text[: text.find(s)], text[text.find(s) :], s
    return split_end(text, stops)


@mutant("13.2", "may overlap the old one")
def release_of_all_when_the_promise_breaks(held, new, stops):
    text = held + new
    for s in stops:
        if s in text:
            return text[: text.find(s)], "", s
    if held and not any(s.startswith(text) for s in stops):
        return text, "", None
    return split_end(text, stops)


@mutant("13.2", "hold the longest")
def release_of_the_shortest_end(held, new, stops):
    text = held + new
    for s in stops:
        if s in text:
            return text[: text.find(s)], "", s
    for n in range(1, len(text) + 1):
        if any(s.startswith(text[-n:]) for s in stops):
            return text[:-n], text[-n:], None
    return text, "", None


@mutant("13.2", "complete first")
def release_of_the_stop_that_begins_first(held, new, stops):
    text = held + new
    found = [(text.find(s), s) for s in stops if s in text]
    if found:
        start, s = min(found)
        return text[:start], "", s
    return split_end(text, stops)


@mutant("13.2", "complete first")
def release_of_the_first_stop_in_the_list(held, new, stops):
    text = held + new
    for s in stops:
        if s in text:
            return text[: text.find(s)], "", s
    return split_end(text, stops)


@mutant("13.2", "the longest is the one")
def release_of_the_shortest_of_equals(held, new, stops):
    text = held + new
    found = [(text.find(s) + len(s), len(s), s) for s in stops if s in text]
    if found:
        end, n, s = min(found)
        return text[: end - n], "", s
    return split_end(text, stops)


@mutant("13.2", "the first place counts")
def release_of_the_last_place(held, new, stops):
    text = held + new
    found = [(text.find(s) + len(s), text.find(s), s) for s in stops if s in text]
    if found:
        s = min(found)[2]
        return text[: text.rfind(s)], "", s
    return split_end(text, stops)


@mutant("13.2", "no end of this text")
def release_that_holds_as_much_as_the_longest_stop(held, new, stops):
    text = held + new
    for s in stops:
        if s in text:
            return text[: text.find(s)], "", s
    n = max(map(len, stops), default=1) - 1
    return text[: max(0, len(text) - n)], text[max(0, len(text) - n) :], None


@mutant("13.2", "all that was held is shown")
def release_that_holds_any_letter_of_a_stop(held, new, stops):
    text = held + new
    for s in stops:
        if s in text:
            return text[: text.find(s)], "", s
    n = 0
    while n < len(text) and any(text[len(text) - n - 1 :] in "".join(stops) + s.lower() for s in stops):
        n += 1
    return (text[: len(text) - n], text[len(text) - n :], None)


def release_with(held, new, stops, same=lambda text: text):
    """A right answer for these stop strings, compared after `same`."""
    text = held + new
    found = [(same(text).find(same(s)) + len(s), -len(s), s) for s in stops if same(s) in same(text)]
    if found:
        end, minus, s = min(found)
        return text[: end + minus], "", s
    for start in range(len(text)):
        if any(same(s).startswith(same(text[start:])) for s in stops):
            return text[:start], text[start:], None
    return text, "", None


@mutant("13.2", "have any length and any characters (Hypothesis")
def release_of_the_first_two_stops(held, new, stops):
    return release_with(held, new, stops[:2])


@mutant("13.2", "have any length and any characters (Hypothesis")
def release_of_the_first_four_stops(held, new, stops):
    return release_with(held, new, stops[:4])


@mutant("13.2", "have any length and any characters (Hypothesis")
def release_of_stops_in_english(held, new, stops):
    return release_with(held, new, [s for s in stops if s.isascii()])


@mutant("13.2", "have any length and any characters (Hypothesis")
def release_of_short_stops(held, new, stops):
    return release_with(held, new, [s for s in stops if len(s) <= 9])


@mutant("13.2", "hold it, and show the rest (Hypothesis")
def release_that_holds_nine_characters(held, new, stops):
    shown, left, stop = release_with(held, new, stops)
    return shown + left[:-9], left[-9:], stop


@mutant("13.2", "show all of it, unchanged; a is not A (Hypothesis tried")
def release_in_any_case(held, new, stops):
    return release_with(held, new, stops, same=str.lower)


@mutant("13.2", "show all of it, unchanged; a is not A (Hypothesis tried")
def release_with_question_marks(held, new, stops):
    shown, left, stop = release_with(held, new, stops)
    return shown.replace("\ufffd", "?"), left, stop


@variant("13.2")
def release_character_by_character(held, new, stops):
    text = held + new
    for end in range(1, len(text) + 1):
        ended = sorted((s for s in stops if text[:end].endswith(s)), key=len)
        if ended:
            return text[: end - len(ended[-1])], "", ended[-1]
    return split_end(text, stops)


@variant("13.2")
def release_by_lengths(held, new, stops):
    text = held + new
    found = sorted((text.index(s) + len(s), -len(s), s) for s in stops if s in text)
    if found:
        end, minus, s = found[0]
        return text[: end + minus], "", s
    n = max((k for s in stops for k in range(1, len(s)) if text.endswith(s[:k])), default=0)
    return text[: len(text) - n], text[len(text) - n :], None


# 13.3 read_events


@mutant("13.3", "has not arrived")
def read_events_of_each_packet(held, new):
    lines = (held + new).decode(errors="replace").split("\n")
    return [line[6:] for line in lines if line.startswith("data: ")], b""


@mutant("13.3", "what was held comes first")
def read_events_that_forgets_what_it_held(held, new):
    *events, rest = new.split(b"\n\n")
    lines = [line for event in events for line in event.decode().split("\n")]
    return [line[6:] for line in lines if line.startswith("data: ")], rest


@mutant("13.3", "several events")
def read_events_one_at_a_time(held, new):
    event, mark, rest = (held + new).partition(b"\n\n")
    if not mark:
        return [], held + new
    return [line[6:] for line in event.decode().split("\n") if line.startswith("data: ")], rest


@mutant("13.3", "has not arrived")
def read_events_line_by_line(held, new):
    *lines, rest = (held + new + b"\n").split(b"\n")
    return [line[6:].decode() for line in lines if line.startswith(b"data: ")], rest


@mutant("13.3", "the empty line may be cut")
def read_events_with_the_empty_line_in_one_packet(held, new):
    if b"\n\n" not in new:
        return [], held + new
    *events, rest = (held + new).split(b"\n\n")
    return [line[6:].decode() for e in events for line in e.split(b"\n") if line.startswith(b"data: ")], rest


@mutant("13.3", "cut the bytes into events first")
def read_events_that_decodes_the_packet(held, new):
    *events, rest = (held + new).decode().split("\n\n")
    return [line[6:] for e in events for line in e.split("\n") if line.startswith("data: ")], rest.encode()


@mutant("13.3", "a packet may end inside a character")
def read_events_that_replaces_what_is_cut(held, new):
    *events, rest = (held + new).decode(errors="replace").split("\n\n")
    return [line[6:] for e in events for line in e.split("\n") if line.startswith("data: ")], rest.encode()


@mutant("13.3", "is a comment")
def read_events_with_comments(held, new):
    *events, rest = (held + new).split(b"\n\n")
    return [event.decode().removeprefix("data: ") for event in events], rest


@mutant("13.3", "may have other lines")
def read_events_of_one_line(held, new):
    *events, rest = (held + new).split(b"\n\n")
    return [event.decode()[6:] for event in events if event.startswith(b"data: ")], rest


@mutant("13.3", "in the text it is text")
def read_events_cut_at_every_mark(held, new):
    *events, rest = (held + new).split(b"\n\n")
    return [event.decode().split("data: ")[-1] for event in events if b"data: " in event], rest


@mutant("13.3", "strip nothing")
def read_events_stripped(held, new):
    *events, rest = (held + new).split(b"\n\n")
    lines = [line for event in events for line in event.decode().split("\n")]
    return [line[5:].strip() for line in lines if line.startswith("data:")], rest


@mutant("13.3", "[DONE] is an event")
def read_events_without_done(held, new):
    *events, rest = (held + new).split(b"\n\n")
    lines = [line for event in events for line in event.decode().split("\n")]
    return [line[6:] for line in lines if line.startswith("data: ") and line != "data: [DONE]"], rest


@variant("13.3")
def read_events_with_a_pattern(held, new):
    data = held + new
    end = data.rfind(b"\n\n") + 2 if b"\n\n" in data else 0
    return re.findall(r"^data: (.*)$", data[:end].decode(), flags=re.M), data[end:]


@variant("13.3")
def read_events_in_a_loop(held, new):
    data, found = held + new, []
    while b"\n\n" in data:
        event, data = data.split(b"\n\n", 1)
        found += [line[6:].decode() for line in event.split(b"\n") if line[:6] == b"data: "]
    return found, data


# 13.4 diagnosis


@mutant("13.4", "look at A again")
def diagnosis_that_takes_a_late_sign_for_a_missing_flush(_=None):
    return {"A": "no flush", "B": "shows the start", "C": "animation", "D": "holds the sign"}


@mutant("13.4", "look at B again")
def diagnosis_of_a_stop_string_that_was_kept(_=None):
    return {"A": "holds the sign", "B": "keeps the stop", "C": "animation", "D": "no flush"}


@mutant("13.4", "look at D again")
def diagnosis_of_a_token_alone(_=None):
    return {"A": "holds the sign", "B": "shows the start", "C": "animation", "D": "token alone"}


@mutant("13.4", "look at C again")
def diagnosis_of_a_stuck_streamer(_=None):
    return {"A": "holds the sign", "B": "shows the start", "C": "holds the sign", "D": "no flush"}


@mutant("13.4", "as the list above does")
def diagnosis_in_own_words(_=None):
    return {"A": "waits for U+FFFD", "B": "shows the start", "C": "animation", "D": "no flush"}


@mutant("13.4", "with the letters A, B, C, D as keys")
def diagnosis_of_three(_=None):
    return {"A": "holds the sign", "B": "shows the start", "C": "animation"}


@variant("13.4")
def diagnosis_from_a_list():
    return dict(zip("ABCD", ["holds the sign", "shows the start", "animation", "no flush"]))
