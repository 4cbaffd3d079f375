"""The catalogue: the files in the notebooks' folder are those it draws, and its numbers are those of the model."""

import json
import re
from itertools import chain
from xml.etree import ElementTree

import drawings
import pytest
import torch
from display.diagrams.well_drawn import SVG, check
from drawings import DRAWINGS, markdown, write_drawings

from course_lib import DraftModel, SamplingParams, load, stream
from course_lib.agent import loop, run
from course_lib.analysis.engine_chart import examine
from course_lib.analysis.heads import attention_share, lines_said_twice, previous_token
from course_lib.analysis.injection import NaiveModel
from course_lib.analysis.lever_runs import Bench, prompts
from course_lib.analysis.lever_settings import Setting
from course_lib.analysis.trace import trace
from course_lib.automaton import Automaton
from course_lib.byte_regex import parse_regex
from course_lib.chat_models import LocalModel
from course_lib.classroom import sick_engines
from course_lib.classroom.course_map import CHAPTERS, notebooks_folder
from course_lib.display.diagrams import pocket
from course_lib.display.diagrams.agents import messages_of, turns_of
from course_lib.display.diagrams.levers import LEVERS
from course_lib.engine import Engine
from course_lib.speculative import acceptance_rate, passes
from course_lib.tool_messages import for_template
from course_lib.tools import CALCULATOR, dictionary_tool
from course_lib.training.corpus import END_OF_TEXT, people
from course_lib.training.guidance import COPY, GUIDED_HEADS

IMAGES = notebooks_folder() / "images"
WHOLE = {"pipeline", "dependencies", "architecture"}  # of the course as a whole, not of one notebook
EACH = pytest.mark.parametrize("name", DRAWINGS)


# --- the files ----------------------------------------------------------------------------------

@EACH
def test_the_file_is_what_the_catalogue_draws(name):
    assert (IMAGES / f"{name}.svg").read_text(encoding="utf-8") == DRAWINGS[name]().svg(), "run make drawings"


def test_there_is_no_drawing_that_the_catalogue_does_not_know():
    assert {path.stem for path in IMAGES.glob("*.svg")} == set(DRAWINGS)


@EACH
def test_drawing_is_sound(name):
    check(DRAWINGS[name])


@EACH
def test_the_description_is_an_alt_text(name):
    text = DRAWINGS[name]().description
    assert 100 < len(text) <= 400 and not set(text) & set("[]|\n`<>"), text
    assert markdown(name) == f"![{text}](images/{name}.svg)"


@EACH
def test_a_drawing_asks_for_nothing_from_outside(name):
    root = ElementTree.parse(IMAGES / f"{name}.svg").getroot()
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "title", "desc", "style", "defs", "marker", "pattern", "path", "rect", "circle", "text"}
    assert not [value for element in root.iter() for name, value in element.items()
                if "href" in name or re.search(r"https?:", value)]


def test_names_do_not_repeat():
    titles = [draw().name for draw in DRAWINGS.values()]
    assert len(set(titles)) == len(titles)  # marks in an SVG are named after its title


def test_there_is_a_strip_for_every_notebook_and_every_number_is_one():
    assert {name for name in DRAWINGS if name.endswith("_strip")} == {f"{c.number}_strip" for c in CHAPTERS}
    assert {name[:2] for name in DRAWINGS if name not in WHOLE} == {c.number for c in CHAPTERS}


def test_the_map_in_the_readme_has_its_alt_text():
    readme = (notebooks_folder().parent / "README.md").read_text(encoding="utf-8")
    assert markdown("pipeline").replace("(images/", "(notebooks/images/") in readme


def test_the_command_writes_the_files_and_prints_markdown(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(drawings, "notebooks_folder", lambda: tmp_path)
    assert drawings.main() == 0
    assert capsys.readouterr().out.splitlines() == [markdown(name) for name in DRAWINGS]
    written = {path.name: path.read_bytes() for path in (tmp_path / "images").iterdir()}
    assert set(written) == {f"{name}.svg" for name in DRAWINGS}
    write_drawings(tmp_path / "images")
    assert {path.name: path.read_bytes() for path in (tmp_path / "images").iterdir()} == written


# --- the numbers --------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def lm():
    return load("pocket", device="cpu", dtype=torch.float32)


@pytest.fixture(scope="module")
def seen(lm):
    return trace(lm.model, torch.tensor([[id for _, id in pocket.TOKENS]]))


def close(stored, computed, within=0.0051):
    return stored == pytest.approx(computed, abs=within)


def test_the_shape_is_that_of_pocket(lm):
    for name in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                 "num_key_value_heads", "head_dim"):
        assert getattr(pocket.CONFIG, name) == getattr(lm.config, name)


def test_tokens_are_those_of_the_question(lm):
    assert lm.tokenizer.encode_prompt(pocket.QUESTION) == [id for _, id in pocket.TOKENS]
    assert [lm.tokenizer.decode([id]) for _, id in pocket.TOKENS] == [text for text, _ in pocket.TOKENS]


def test_the_answer_is_the_greedy_one(lm):
    running = stream(lm, pocket.QUESTION, SamplingParams(temperature=0))
    list(running)
    made = [lm.tokenizer.decode([step.token_id]) for step in running.steps]
    assert len(made) == pocket.STEPS and made[:len(pocket.ANSWER)] == pocket.ANSWER
    assert made[-2] == pocket.LAST_WORD and made[-1] == END_OF_TEXT


def test_what_is_drafted_is_what_pocket_draft_proposes(lm):
    running = stream(lm, [{"role": "user", "content": pocket.QUESTION}], SamplingParams(temperature=0),
                     draft=DraftModel(load("pocket-draft", device="cpu", dtype=torch.float32), 4))
    list(running)
    decode = lm.tokenizer.decode
    made = [([decode([x]) for x in one.proposal], one.accepted, decode([one.tokens[-1]]))
            for one in passes(running.steps)]
    assert made[: len(pocket.DRAFTED)] == pocket.DRAFTED


@pytest.mark.parametrize("text, tokens", [(pocket.HEART, pocket.HEART_TOKENS), (pocket.SALT, pocket.SALT_TOKENS)])
def test_what_is_streamed_is_cut_as_the_tokenizer_cuts_it(lm, text, tokens):
    assert [lm.tokenizer.decode_single_token_bytes(id) for id in lm.tokenizer.encode(text)] == tokens


def test_the_conversation_is_the_one_that_pocket_has(lm):
    tokenizer, tools = lm.tokenizer, [CALCULATOR, dictionary_tool({})]
    done = run(lm, [{"role": "user", "content": pocket.TALK[2][1]}], tools)
    ids = [tokenizer.encode(text, allowed_special="all") for _, text, _ in pocket.TALK]
    assert [len(piece) for piece in ids] == [n for *_, n in pocket.TALK]
    said = tokenizer.apply_chat_template(for_template(done.messages), tools=[tool.schema for tool in tools])
    assert list(chain(*ids)) == said and done.finish_reason == "stop"
    turns = [(step.turn.prompt_tokens, step.turn.tokens) for step in done.steps if step.turn]
    assert turns == [turn[1:] for turn in turns_of(messages_of(pocket.TALK))]
    assert pocket.CONTROL.items() <= tokenizer.special_tokens.items()


def test_tokens_that_may_follow_are_all_of_pockets(lm):
    automaton = Automaton(parse_regex(pocket.PATTERN))
    here = automaton.read(automaton.start, pocket.BEGUN.encode())
    tokens = {id: lm.tokenizer.decode_single_token_bytes(id) for id in lm.tokenizer.ids}
    assert {token.decode() for token in tokens.values() if token and automaton.read(here, token)} == set(pocket.MAY)
    assert set(pocket.MAY_NOT) <= {token.decode("utf-8", "replace") for token in tokens.values()}


@pytest.mark.parametrize("model, tokens, answer", [
    (NaiveModel, pocket.PASTED, pocket.OBEYED), (LocalModel, pocket.APART, pocket.UNMOVED)])
def test_the_hostile_result_is_read_and_answered_as_it_is_drawn(lm, model, tokens, answer):
    ids = (lm.tokenizer.encode(pocket.RESULT, allowed_special="all") if model is NaiveModel else
           lm.tokenizer.encode_ordinary(pocket.RESULT))
    assert [(lm.tokenizer.decode([id]), id) for id in ids] == tokens
    tools = [CALCULATOR, dictionary_tool({"flurbin": pocket.RESULT})]
    asked = [{"role": "user", "content": "What does flurbin mean?"}]
    greedy = SamplingParams(temperature=0, max_tokens=128)
    assert loop(model(lm, greedy), asked, tools, max_steps=3).answer == answer
    told = [{"role": "tool", "content": pocket.RESULT}]
    prompt = model(lm, greedy).prompt_ids([*asked, *told], [tool.schema for tool in tools])
    assert any(prompt[i : i + len(ids)] == ids for i in range(len(prompt))), "in the prompt as it is drawn"


def test_vectors_are_those_of_the_run(lm, seen):
    for stored, computed in ((pocket.EMBEDDED, seen.hidden_states[0]), (pocket.LEAVING, seen.hidden_states[-1])):
        for row, vector in zip(stored, computed[0].tolist(), strict=True):
            assert close(row, vector[:8])


def test_logits_and_probabilities_are_those_after_the_question(lm, seen):
    logits = seen.logits[0, -1]
    probs = logits.softmax(-1)
    assert probs.topk(3).indices.tolist() == [id for _, id, *_ in pocket.NEXT]
    for text, id, logit, share in pocket.NEXT:
        assert lm.tokenizer.decode([id]) == text and close(logit, logits[id].item())
        assert close(share, probs[id].item(), within=0.00006)


@pytest.mark.parametrize("text, candidates", [pocket.SURE, pocket.UNSURE], ids=["sure", "unsure"])
def test_candidates_are_the_likeliest(lm, text, candidates):
    with torch.no_grad():
        probs = lm.model(torch.tensor([lm.tokenizer.encode_prompt(text)]))[0, -1].softmax(-1)
    values, ids = probs.topk(len(candidates))
    assert close([share for _, share in candidates], values.tolist(), within=0.00006)
    for (token, share), id in zip(candidates, ids.tolist()):
        assert share < 0.001 or lm.tokenizer.decode([id]) == token


def test_the_heads_of_the_induction_drawing_do_what_it_says(lm):
    n = 12
    names = people()
    rows = lines_said_twice(lm.tokenizer, names["girls"] + names["boys"], n, batch_size=6,
                            generator=torch.Generator().manual_seed(0))
    weights = trace(lm.model, rows).attentions  # (L, B, H, T, T)
    copying = torch.stack([weights[..., i, i - n + 1] for i in range(n, 2 * n - 1)], -1).mean((1, 3))  # (L, H)
    layer, head = pocket.INDUCTION_HEAD
    assert copying[layer, head] == copying.max() > 0.75
    layer, head = pocket.PREVIOUS_TOKEN_HEAD
    assert attention_share(weights, previous_token(2 * n))[layer, head] > 0.95
    assert GUIDED_HEADS[layer][head] == 1 and COPY in GUIDED_HEADS[pocket.INDUCTION_HEAD[0]].values()


def test_at_the_second_mei_the_circuit_looks_as_it_is_drawn(lm):
    ids = lm.tokenizer.encode_prompt("Pablo Mei Stefan Janek\nPablo Mei")
    pieces = [lm.tokenizer.decode([id]) for id in ids]
    first, last = pieces.index(" Mei"), len(pieces) - 1
    assert pieces[last] == " Mei" and first < last and "Stefan".startswith(pieces[first + 1].strip())
    seen = trace(lm.model, torch.tensor([ids]))
    weights = seen.attentions[:, 0]
    layer, head = pocket.PREVIOUS_TOKEN_HEAD
    assert weights[layer, head, first + 1, first] > 0.9
    layer, head = pocket.INDUCTION_HEAD
    assert weights[layer, head, last].argmax() == first + 1
    assert seen.logits[0, -1].argmax() == ids[first + 1]


@pytest.mark.parametrize("path", sorted(notebooks_folder().glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_places_its_drawings_with_their_alt_texts(path):
    text = "\n".join("".join(cell["source"]) for cell in json.loads(path.read_text("utf-8"))["cells"])
    placed = re.findall(r"!\[[^\n]*?\]\(images/\w+\.svg\)", text)
    assert placed and set(placed) <= {markdown(name) for name in DRAWINGS}


# What each lever of the drawing is as a setting, and the setting that it starts from: an engine holds weights twice.
PULLED = {"batch": ({"max_num_seqs": 8}, {"enable_prefix_caching": True}),
          "prefix reuse": ({"max_num_seqs": 8, "enable_prefix_caching": True}, {"max_num_seqs": 8}),
          "draft": ({"draft": "pocket-draft"}, {}), "8, 4 bits": ({"precision": "int4"}, {}),
          "8-bit cache": ({"kv_cache_dtype": "int8"}, {})}


def test_levers_move_memory_and_quality_as_drawn(lm):
    bench, drawn = Bench(lm), {lever.name: lever.moves for lever in LEVERS}
    for name, (pulled, base) in PULLED.items():
        one, other = Setting(**pulled), Setting(**base)
        new, old = (sum(bench.held_bytes(setting)) for setting in (one, other))
        assert drawn[name].get("memory") == {1: "up", -1: "down", 0: None}[(new > old) - (new < old)], name
        assert ("quality" in drawn[name]) == (one.numerics != other.numerics), name
    assert Setting(params=SamplingParams(temperature=0.8)).numerics != Setting().numerics == Setting(
        compiled=True).numerics and drawn["temperature"] == {"quality": "either"} and "quality" not in drawn["compile"]


class Counting(Engine):
    """Counts its passes."""

    num_passes = 0

    def step(self):
        self.num_passes += 1
        return super().step()


ASKED, ABOUT = 15, 4  # questions, and the one of which the answer is drawn


@pytest.fixture(scope="module")
def asked(lm):
    ids = prompts(lm, ASKED)
    assert pocket.SICK_SUBJECT in lm.tokenizer.decode(ids[ABOUT][-20:])
    return ids


def served(lm, asked, slots, **params):
    """Passes and what was seen of fifteen questions."""
    engine = Counting(lm, max_num_seqs=slots, num_blocks=sick_engines.PAGES)
    chart = examine(engine, asked, SamplingParams(temperature=0, max_tokens=32, **params))
    return engine.num_passes, chart.answers


def test_the_two_engines_that_are_not_well_are_as_drawn(lm, asked):
    one_by_one, _, no_end = pocket.SICK
    healthy, right = served(lm, asked, sick_engines.SLOTS)
    slow, same = served(lm, asked, 1)
    assert (healthy, slow) == one_by_one[2:4] and [a.token_ids for a in same] == [a.token_ids for a in right]
    assert right[ABOUT].text.endswith(pocket.RIGHT_ANSWER) and not one_by_one[6]
    _, endless = served(lm, asked, sick_engines.SLOTS, ignore_eos=True)
    cut = [sum(answer.finish_reason == "length" for answer in answers) for answers in (right, endless)]
    assert tuple(cut) == no_end[2:4] and no_end[1].endswith(f"of {ASKED}")
    assert endless[ABOUT].text.replace("\n", "↵").endswith(f"{no_end[5]}{no_end[6]}")


def test_the_draft_that_is_always_accepted_is_as_drawn(lm, asked, monkeypatch):
    def run():
        draft = DraftModel(load("pocket-draft", device="cpu", dtype=torch.float32), 3)
        return [list(draft.decode_steps(lm, ids, SamplingParams(temperature=0, max_tokens=32))) for ids in asked]

    careful = run()
    monkeypatch.setattr("course_lib.speculative.verify",
                        lambda p_rows, q_rows, proposal, uniforms: [*proposal, int(p_rows[-1].argmax())])
    careless = run()
    rates = [100 * acceptance_rate([one for steps in found for one in passes(steps)]) for found in (careful, careless)]
    assert rates == pytest.approx(pocket.SICK[1][2:4], abs=0.5)
    text = lm.tokenizer.decode([step.token_id for step in careless[ABOUT]])
    assert text.removesuffix("<|im_end|>") == " ".join(pocket.SICK[1][5:7])
