"""The agent drawn: tokens are counted, paths are those of the automaton, and only control tokens are blocks."""

import re

import pytest
from well_drawn import check, paths, rects, words

from course_lib.automaton import Automaton
from course_lib.byte_regex import parse_regex
from course_lib.display.diagrams import pocket
from course_lib.display.diagrams.agents import agent_loop, messages_of, raw_text, turns_of, written_lines
from course_lib.display.diagrams.hostile import END, lines_of, parts_of, two_encodings
from course_lib.display.diagrams.rereading import HEIGHT, reading_again
from course_lib.display.diagrams.token_paths import START, STEP, arrows_of, automaton_paths, columns_of

# By hand: 6 + 7 are asked for, with other numbers of tokens.
SMALL_TALK = [("template", "<|im_start|>system\nTools: sum(a)<|im_end|>\n", 8), ("template", "<|im_start|>user\n", 3),
              ("user", "6 + 7?", 5), ("template", "<|im_end|>\n", 2), ("template", "<|im_start|>assistant\n", 3),
              ("model", '<tool_call>\n{"name": "sum", "arguments": {"a": [6, 7]}}\n</tool_call><|im_end|>', 12),
              ("template", "\n", 1), ("template", "<|im_start|>tool\n<tool_response>", 4), ("tool", "13", 1),
              ("template", "</tool_response><|im_end|>\n", 3), ("template", "<|im_start|>assistant\n", 3),
              ("model", "13.<|im_end|>", 3), ("template", "\n", 1)]
TALKS = pytest.mark.parametrize("talk", [pocket.TALK, SMALL_TALK])


# --- the loop -----------------------------------------------------------------------------------

def test_a_turn_reads_everything_before_it():
    assert [tuple(turn) for turn in turns_of(messages_of(SMALL_TALK))] == [
        (2, 8 + 10 + 3, 12), (4, 8 + 10 + 16 + 8 + 3, 3)]
    assert [message.text for message in messages_of(SMALL_TALK)] == [
        "Tools: sum(a)", "6 + 7?", "calls sum: [6, 7]", "13", "13."]


@TALKS
def test_the_loop_has_a_square_for_each_token(talk):
    drawing = check(lambda: agent_loop(talk))
    for fill, author in (("mark", "model"), ("latency", "user"), ("quality", "tool"), ("paper", "template")):
        squares = [rect for rect in rects(drawing, fill) if rect[3] == 12]
        assert len(squares) == sum(n for who, _, n in talk if who == author), author
    messages = messages_of(talk)
    assert [text for text in words(drawing) if re.fullmatch(r"\d+ tokens", text)] == [
        f"{len(message.tokens)} tokens" for message in messages]
    for turn in turns_of(messages):
        assert f"writes {turn.written}" in words(drawing) and str(turn.read) in words(drawing)
    assert "no call: the end" in words(drawing) and "the loop runs" in " ".join(words(drawing))


def test_the_second_turn_reads_longer_than_the_first():
    drawing = agent_loop(pocket.TALK)
    first, second = sorted((rect for rect in rects(drawing, "plain") if rect[2] == 108), key=lambda rect: rect[0])
    assert first[1] == second[1] and second[3] > 2 * first[3] and second[0] > first[0] + first[2]
    back = [points for points in paths(drawing, 2.2) if len(points) == 4]
    assert len(back) == 1 and back[0][0][1] > back[0][-1][1], "from the result back to the top"


# --- the raw text -------------------------------------------------------------------------------

@TALKS
def test_the_raw_text_is_the_text(talk):
    drawing = check(lambda: raw_text(talk, pocket.CONTROL))
    whole = "".join(text for _, text, _ in talk)
    assert "\n".join("".join(text for _, text in line) for line in written_lines(talk)) == whole.rstrip("\n")
    blocks = [text for text in words(drawing) if text in pocket.CONTROL]
    assert blocks == re.findall(r"<\|im_start\|>|<\|im_end\|>|</?tool_\w+>", whole)
    assert [int(text) for text in words(drawing) if re.fullmatch(r"409\d", text)] == [
        pocket.CONTROL[block] for block in blocks]
    assert f"{len(blocks)} of them" in drawing.description
    model = [text for line in written_lines(talk) for author, text in line if author == "model"]
    assert len(rects(drawing, "mark")) == len(model) + 1, "and one in the legend"


# --- the automaton ------------------------------------------------------------------------------

def test_the_automaton_is_the_smallest_one():
    columns = columns_of(Automaton(parse_regex("(cat|car|dog)s?")))
    assert [len(column) for column in columns] == [1, 2, 2, 1, 1]
    automaton = Automaton(parse_regex("(cat|car|dog)s?"))
    [ca] = [automaton.read(automaton.start, b"ca")]
    assert list(arrows_of(automaton, ca).values()) == ["r, t"]


@pytest.mark.parametrize("call", [(pocket.PATTERN, "c", pocket.MAY, pocket.MAY_NOT),
                                  (pocket.PATTERN, "do", ["g", "gs"], ["o"]), ("ab?c", "a", ["b", "bc", "c"], ["ca"])])
def test_a_token_runs_as_far_as_there_are_arrows(call):
    _, begun, may, may_not = call
    drawing = check(lambda: automaton_paths(*call))
    here = START + STEP * len(begun)
    lines = [points for points in paths(drawing, 2.2) if points[0][1] == points[1][1] > 300]
    arrows = [points for points in lines if points[1][0] - points[0][0] > 120]
    assert len(arrows) == sum(map(len, may)) + sum(len(token) - 1 for token in may_not)
    assert min(points[0][0] for points in arrows or [[(here + 6, 0)]]) == here + 6
    assert words(drawing).count("yes") == len(may) and words(drawing).count("no") == len(may_not)
    assert len(paths(drawing, 3.4)) == 2 * len(may_not), "a cross for each that may not"
    assert all(f"{token}" in drawing.description for token in (*may, *may_not))


@pytest.mark.parametrize("call", [
    (pocket.PATTERN, "c", ["an"], []), (pocket.PATTERN, "c", ["a"], ["at"]), (pocket.PATTERN, "x", ["a"], []),
    (pocket.PATTERN, "", ["c"], []), ("a*", "a", ["a"], []), ("abcdefgh", "a", ["b"], [])])
def test_a_path_that_is_wrong_is_refused(call):
    with pytest.raises(ValueError, match="is not allowed"):
        automaton_paths(*call)


# --- a hostile result ---------------------------------------------------------------------------

def encodings(**changes):
    return two_encodings(**{"result": pocket.RESULT, "pasted": pocket.PASTED, "apart": pocket.APART,
                            "obeyed": pocket.OBEYED, "unmoved": pocket.UNMOVED} | changes)


def test_every_token_of_the_result_is_drawn_or_counted():
    drawing = check(encodings)
    for tokens, control in ((pocket.PASTED, 5), (pocket.APART, 0)):
        parts = parts_of(tokens)
        assert "".join(part.text for part in parts).replace("↵", "\n") == pocket.RESULT
        counted = [int(part.under.removesuffix(" tokens")) if "tokens" in part.under else 1 for part in parts]
        assert sum(counted) == len(tokens) and sum(part.control for part in parts) == control
    assert f"{len(pocket.APART) - len(pocket.PASTED)} tokens more" in drawing.description
    thick = re.findall(r'stroke-width="3"', drawing.svg())
    boxes = [rect for rect in rects(drawing, "paper") if rect[2] < 710]
    assert len(thick) == 5 and all(left + width <= END + 0.2 for left, _, width, _ in boxes)


def test_no_line_begins_within_a_tag():
    rows = lines_of(parts_of(pocket.APART))
    assert not any(row[0][1].inside for row in rows) and len(rows) == 5
    assert [row[0][1].tag for row in lines_of(parts_of(pocket.PASTED))[1:]] == ["<|im_start|>"] * 2


@pytest.mark.parametrize("changes", [{"result": "another"}, {"apart": pocket.PASTED}, {"pasted": pocket.APART}])
def test_encodings_that_are_wrong_are_refused(changes):
    with pytest.raises(ValueError, match="is not allowed"):
        encodings(**changes)


def test_a_line_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="is not allowed"):
        raw_text([("template", "<|im_start|>user\n", 3), ("user", "a " * 50, 50)], pocket.CONTROL)


@pytest.mark.parametrize("talk", [SMALL_TALK[:-3], [*SMALL_TALK[:5], ("model", "13.<|im_end|>", 12), *SMALL_TALK[6:]]])
def test_another_conversation_is_refused(talk):
    with pytest.raises(ValueError, match="is not allowed"):
        agent_loop(talk)


# --- what is read again -------------------------------------------------------------------------

@pytest.mark.parametrize("turns, prompt, written, result", [(6, 3000, 500, 2000), (3, 7, 2, 11), (9, 100, 30, 1)])
def test_a_column_is_as_high_as_what_is_read_and_only_its_end_is_new(turns, prompt, written, result):
    drawing = check(lambda: reading_again(turns, prompt=prompt, written=written, result=result))
    boxes = [rect for fill in ("latency", "mark", "quality", "plain") for rect in rects(drawing, fill) if rect[2] > 16]
    columns = [sum(high for left, _, _, high in boxes if left == x) for x in sorted({left for left, *_ in boxes})]
    read = [prompt + (written + result) * turn for turn in range(turns)]
    assert columns == pytest.approx([HEIGHT * n / read[-1] for n in read], rel=0.004)
    assert [text for text in words(drawing) if text.replace(",", "").isdigit() and len(text) > 1] == [
        f"{n:,}" for n in read if n > 9]
    new = prompt + (written + result) * (turns - 1)
    assert f"read again: {sum(read) - new:,} of {sum(read):,} tokens in all {turns} turns" in words(drawing)
    for fill, n in (("latency", 1), ("mark", turns - 1), ("quality", turns - 1)):
        assert len([rect for rect in rects(drawing, fill) if rect[2] > 16]) == n, fill


@pytest.mark.parametrize("turns, tokens", [(2, 1), (10, 1), (3, 0)])
def test_too_few_turns_or_tokens_are_refused(turns, tokens):
    with pytest.raises(ValueError, match="is not allowed"):
        reading_again(turns, prompt=5, written=tokens, result=5)
