"""The catalogue: the files in the notebooks' folder are those it draws, and its numbers are those of the model."""

import json
import re
from xml.etree import ElementTree

import drawings
import pytest
import torch
from display.diagrams.well_drawn import SVG, check
from drawings import DRAWINGS, markdown, write_drawings

from course_lib import DraftModel, SamplingParams, load, stream
from course_lib.analysis.heads import attention_share, lines_said_twice, previous_token
from course_lib.analysis.trace import trace
from course_lib.classroom.course_map import CHAPTERS, notebooks_folder
from course_lib.display.diagrams import pocket
from course_lib.speculative import passes
from course_lib.training.corpus import END_OF_TEXT, people
from course_lib.training.guidance import COPY, GUIDED_HEADS

IMAGES = notebooks_folder() / "images"
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
    assert {name[:2] for name in DRAWINGS if name != "pipeline"} == {c.number for c in CHAPTERS}


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
