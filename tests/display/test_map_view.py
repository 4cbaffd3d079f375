"""The map of words and its widget: where the words lie, what is drawn, and what a reader's knobs do."""

import html
import re
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import torch
from saved_form import picture_of, still_of
from test_plots import texts

from course_lib.analysis.geometry import nearest, principal_axes
from course_lib.display import map_view, plots
from course_lib.display.map_view import map_figure
from course_lib.display.map_widget import map_widget

WORDS = ["cat", "dog", "cow", "hen", "red", "blue", "<b>", "one", "two", "three", "four"]
GROUPS = {"animals": dict(zip(WORDS[:4], range(4))), "colours": dict(zip(WORDS[4:7], range(4, 7))),
          "numbers": dict(zip(WORDS[7:], range(7, 11)))}
WEIGHT = torch.randn(13, 6, generator=torch.Generator().manual_seed(0))
BYTES = [f" {word}".encode() for word in WORDS] + [b"\xff", b"dog"]


class Words:
    """A tokenizer whose tokens are a few words; what it does not know is two tokens."""

    def encode_ordinary(self, text):
        return [BYTES.index(text.encode())] if text.encode() in BYTES else [11, 12]

    def decode_single_token_bytes(self, id):
        return BYTES[id]


LM = SimpleNamespace(model=SimpleNamespace(embed_tokens=torch.nn.Embedding.from_pretrained(WEIGHT)), tokenizer=Words())


def markup_of(word="cat", chosen=None, k=4):
    view = map_view.word_map(WEIGHT, GROUPS, chosen)
    id = WORDS.index(word)
    found = map_view.neighbours_of(WEIGHT, LM.tokenizer, GROUPS, nearest(WEIGHT, id, k))
    return view, found, map_view.map_html(view, word, WEIGHT[id], found)


def test_words_lie_where_the_projection_of_the_chosen_ones_puts_them():
    view = map_view.word_map(WEIGHT, GROUPS, ["animals", "numbers"])
    projection = principal_axes(WEIGHT[[0, 1, 2, 3, 7, 8, 9, 10]])
    assert list(view.points) == ["animals", "numbers"] and view.kinds == tuple(GROUPS)
    for kind in view.points:
        for word, place in view.points[kind].items():
            assert place == pytest.approx(projection(WEIGHT[GROUPS[kind][word]]).tolist())
            assert view.place(WEIGHT[GROUPS[kind][word]]) == pytest.approx(place)
    assert view.share == pytest.approx(projection.shares.sum().item())


@pytest.mark.parametrize("chosen, words", [([], "at least 3"), (["none"], "at least 3")])
def test_a_map_of_nothing_is_refused(chosen, words):
    with pytest.raises(ValueError, match=words):
        map_view.word_map(WEIGHT, GROUPS, chosen)
    with pytest.raises(ValueError, match="at most 8 kinds"):
        map_view.word_map(WEIGHT, {str(i): {"a": 0} for i in range(9)})


def test_markup_holds_every_word_and_the_neighbours():
    _, found, markup = markup_of()
    root = ElementTree.fromstring(markup.replace('xmlns="http://www.w3.org/2000/svg" ', ""))
    titles = [element.text for element in root.iter("title")]
    assert sorted(titles) == sorted(WORDS)
    assert len(list(root.iter("circle"))) == 5, "the word and four neighbours"
    assert [item.find("bdi").text for item in root.iter("li")] == [n.text for n in found]
    assert root.get("data-word") == "cat" and root.get("data-kinds") == "3"
    written = [element.text for element in root.iter("text")]
    assert written[0] == "cat" and len(set(written)) == len(written), "each name once, the word first"
    assert html.unescape(root.get("data-neighbours")).split() == [n.text for n in found]
    for n, item in zip(found, root.iter("li")):
        said = "".join(item.itertext())
        assert f"{n.cosine:.2f}" in said and ((n.kind or "no kind") in said) == (n.kind is not None)
    assert "<b>" not in re.sub("<b>Nearest", "", markup), "a word is text, whatever it is made of"
    assert {n.kind for n in found} <= {*GROUPS, None}


def test_colours_and_shapes_stay_with_their_kind():
    whole, part = markup_of()[2], markup_of(chosen=["numbers"])[2]
    assert whole.count(map_view.SHAPES[2]) == 5 and part.count(map_view.SHAPES[2]) == 5  # four words and the key
    assert map_view.SHAPES[0] not in part


def test_nothing_leaves_the_page_and_no_name_lies_on_another():
    places = [(f"word {i}", (float(i % 7), float(i // 7))) for i in range(40)]
    on_page = map_view.page_scale([at for _, at in places])
    on = [(name, on_page(at)) for name, at in places]
    assert all(0 < x < map_view.WIDTH and 0 < y < map_view.HEIGHT for _, (x, y) in on)
    written = map_view.labels([*on, *on])
    boxes = [(x, y, x + map_view.CHARACTER * len(name), y + map_view.LINE) for name, (x, y) in written]
    assert len(written) > 20 and written[0][0] == "word 0"
    for i, a in enumerate(boxes):
        assert a[0] > 0 and a[2] < map_view.WIDTH
        assert all(a[0] >= b[2] or b[0] >= a[2] or a[1] >= b[3] or b[1] >= a[3] for b in boxes[:i])
    assert map_view.page_scale([(1.0, 1.0)])((1.0, 1.0)) == (map_view.WIDTH / 2, map_view.HEIGHT / 2)


def test_widget_follows_boxes_and_word():
    panel = map_widget(LM, GROUPS, "cat", chosen=["animals"], k=3)
    assert 'data-kinds="1"' in panel.picture.value and 'data-word="cat"' in panel.picture.value
    panel.boxes["numbers"].value = True
    assert panel.picture.value == map_html_of(["animals", "numbers"], "cat")
    panel.word.value = "two "
    assert panel.picture.value == map_html_of(["animals", "numbers"], "two")
    assert not panel.word.continuous_update and all(box.description for box in panel.boxes.values())
    assert "course-mapper" in panel._dom_classes


def map_html_of(chosen, word):
    id = WORDS.index(word)
    found = map_view.neighbours_of(WEIGHT, LM.tokenizer, GROUPS, nearest(WEIGHT, id, 3))
    return map_view.map_html(map_view.word_map(WEIGHT, GROUPS, chosen), word, WEIGHT[id], found)


def test_widget_says_what_is_wrong_and_goes_on():
    panel = map_widget(LM, GROUPS, "cat", k=3)
    before = panel.picture.value
    panel.word.value = "unicorn"
    assert "must be one token; this is 2: ⟨FF⟩ dog" in panel.message.value and panel.picture.value == before
    panel.word.value = "dog"
    assert panel.message.value == "" and 'data-word="dog"' in panel.picture.value
    for box in panel.boxes.values():
        box.value = False
    assert "choose a kind of words" in panel.message.value
    panel.boxes["colours"].value = True
    assert panel.message.value == ""
    with pytest.raises(ValueError, match="unicorn"):
        map_widget(LM, GROUPS, "unicorn")
    with pytest.raises(ValueError, match="among animals, colours, numbers"):
        map_widget(LM, GROUPS, "cat", chosen=["plants"])


def test_widget_runs_on_the_readers_function():
    panel = map_widget(LM, GROUPS, "cat", nearest=lambda weight, id, k: [(id + 1, 0.25)] * k, k=2)
    assert panel.picture.value.count("<bdi>␣dog</bdi> 0.25, animals") == 2


def test_saved_form_is_a_picture_of_the_first_setting():
    panel = map_widget(LM, GROUPS, "cat", chosen=["animals", "colours"], k=3)
    first = picture_of(panel)
    assert still_of(panel).startswith("Map of words of the kinds animals, colours; nearest to 'cat': ")
    panel.word.value = "two"
    panel.boxes["animals"].value = False
    assert picture_of(panel) == first


def test_figure_names_kinds_and_words_and_no_two_lie_on_each_other():
    view = map_view.word_map(WEIGHT, GROUPS)
    figure = map_figure(view)
    written = texts(figure)
    assert {"animals", "colours", "numbers"} <= set(written)
    assert f"first direction ({view.projection.shares[0]:.0%} of the variance)" in written
    assert len(set(WORDS) & set(written)) >= 8
    drawn = [a for a in figure.axes[0].texts if a.get_text()]
    boxes = [a.get_window_extent() for a in drawn]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    offsets = [tuple(p) for c in figure.axes[0].collections for p in c.get_offsets().tolist()]
    expected = [place for named in view.points.values() for place in named.values()]
    assert [x for place in offsets for x in place] == pytest.approx([x for place in expected for x in place])
    ringed = {word: view.points[kind][word] for kind, word in (("animals", "cat"), ("colours", "red"))}
    others = {"unicorn": (0.3, 0.4), "griffin": (0.5, -0.4)}
    for more in ({}, others):
        *points, rings = map_figure(view, ringed | more).axes[0].collections
        assert rings.get_offsets().tolist() == [pytest.approx(list(at)) for at in (ringed | more).values()]
        assert len(points) == len(view.points) + bool(more)  # a neighbour that is no word of the map joins it
    assert {"other neighbours", "griffin"} <= set(texts(map_figure(view, ringed | others)))
    with pytest.raises(ValueError, match=r"len\(points\)"):
        plots.scatter({}, xlabel="x", ylabel="y")


def test_a_kind_is_named_beneath_its_points_where_others_lie_above():
    high = {name: (0.5, y) for name, y in zip("cde", (0.3, 2.0, 5.0))}
    figure = plots.scatter({"low": {"a": (0.0, 0.0), "b": (1.0, 0.0)}, "high": high}, xlabel="x", ylabel="y")
    axes = figure.axes[0]
    low, above = (next(a for a in axes.texts if a.get_text() == kind).get_window_extent() for kind in ("low", "high"))
    bottom, top = (axes.transData.transform((0.5, y))[1] for y in (0.0, 5.0))
    assert low.y1 < bottom and above.y0 > top
