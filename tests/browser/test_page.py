"""The page of the server in a real browser: tokens as they arrive, the knobs, stopping, errors, keys, by keyboard."""

import io
import json
import re
import time
import urllib.error
import urllib.request

import pytest
from PIL import Image

from course_lib import load
from course_lib.engine import Engine
from course_lib.server import serve_in_background

STATUS = "document.querySelector('#status').textContent"
TOKENS = "document.querySelectorAll('#text .token').length"
OVER = f"() => /^(Finished|Cut at max tokens|Stopped|Broken off)/.test({STATUS})"
GROWTH = """() => {
    window.growth = [];
    const line = document.querySelector('#timeline');
    const note = () => window.growth.push([document.querySelectorAll('#text .token').length,
                                           line.viewBox.baseVal.width]);
    new MutationObserver(note).observe(line, {attributes: true});
}"""


class Paced(Engine):
    """An engine whose steps take at least `pause` seconds, so that a test can act between two tokens."""

    pause = 0.0

    def step(self):
        time.sleep(self.pause)
        return super().step()


@pytest.fixture(scope="module")
def lm():
    return load("pocket", device="cpu")


@pytest.fixture(scope="module")
def running(lm):
    with serve_in_background(lm, engine=lambda: Paced(lm)) as server:
        yield server


@pytest.fixture
def slowly(monkeypatch):
    monkeypatch.setattr(Paced, "pause", 0.05)


class Page:
    """The page in a browser, with what it asked for and what went wrong."""

    def __init__(self, page, url):
        self.page, self.url, self.errors, self.strangers = page, url, [], []
        page.on("pageerror", lambda error: self.errors.append(error.stack or str(error)))
        page.on("console", self.hear)
        page.on("request", lambda request: request.url.startswith(url) or self.strangers.append(request.url))
        page.goto(url)

    def hear(self, message):
        """Chromium reports a status of 400 and above as an error, and asks for an icon."""
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.errors.append(message.text)

    def set(self, **knobs):
        for name, value in knobs.items():
            self.page.fill(f"[name={name}]", str(value))

    def until(self, condition, timeout_s=30):
        self.page.wait_for_function(condition, timeout=1000 * timeout_s)

    def send(self, prompt=None):
        """Ask, wait for the end, and return the text."""
        if prompt is not None:
            self.page.fill("#prompt", prompt)
        self.page.evaluate("() => { document.querySelector('#status').textContent = ''; }")
        self.page.click("#send")
        self.until(OVER)
        return self.page.text_content("#text")


@pytest.fixture
def opened(browser, request):
    """`opened(url, **settings of the browser)`; afterwards the page has had no error and asked nobody else."""
    pages = []

    def open_page(url, **settings):
        pages.append(Page(browser.new_page(**{"viewport": {"width": 900, "height": 900}, **settings}), url))
        return pages[-1]

    yield open_page
    for page in pages:
        assert page.errors == [] and page.strangers == []
        page.page.close()


def api(url, path, body):
    """Status and answer of a request of our own."""
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_tokens_arrive_one_after_another_and_the_time_line_grows(opened, running, slowly, picture):
    one = opened(running.url)
    page = one.page
    one.until("() => document.querySelector('#model').textContent === 'pocket'")
    assert not page.is_visible("#result") and page.is_disabled("#stop") and not page.is_visible("#key-row")
    page.evaluate(GROWTH)
    one.set(temperature=0)
    text = one.send("What is gravity?")
    asked = {"model": "pocket", "messages": [{"role": "user", "content": "What is gravity?"}], "temperature": 0,
             "max_tokens": 128, "logprobs": True}
    _, whole = api(running.url, "/v1/chat/completions", asked)
    choice = whole["choices"][0]
    assert text == choice["message"]["content"] and len(text) > 40
    growth = page.evaluate("window.growth")
    assert growth == sorted(growth) and len({n for n, _ in growth}) >= 5, "not all at once"
    n = len(choice["logprobs"]["content"])  # the end token is the last of them
    assert growth[-1][0] == n - 1 and growth[-1][1] > 1000 * 0.05 * n
    ticks = [float(x) for x in re.findall(r"M([\d.]+) ", page.get_attribute("#ticks", "d"))]
    assert len(ticks) == n and ticks == sorted(ticks)
    assert float(page.get_attribute("#wait", "width")) == pytest.approx(ticks[0], abs=0.01)
    begins, ends = map(float, re.fullmatch(r"M([\d.]+) 1H([\d.]+)", page.get_attribute("#longest", "d")).groups())
    assert ends - begins == pytest.approx(max(b - a for a, b in zip(ticks, ticks[1:])), abs=0.02)
    shown = dict(zip(page.locator("#numbers dt").all_text_contents(), page.locator("#numbers dd").all_text_contents()))
    assert shown["tokens"] == str(n) and shown["tokens of the prompt"] == str(whole["usage"]["prompt_tokens"])
    gaps = sorted(b - a for a, b in zip(ticks, ticks[1:]))
    assert milliseconds(shown["first token"]) == pytest.approx(ticks[0], rel=0.02)
    assert milliseconds(shown["longest gap"]) == pytest.approx(gaps[-1], rel=0.02, abs=0.6)
    middle = (gaps[(len(gaps) - 1) // 2] + gaps[len(gaps) // 2]) / 2
    assert milliseconds(shown["median gap"]) == pytest.approx(middle, rel=0.02, abs=0.6)
    assert page.text_content("#status").startswith(f"Finished: {n} tokens in ")
    assert page.text_content("#status") == page.get_attribute("#timeline", "aria-label")
    picture(page.locator("main"), "page-light")


def milliseconds(text):
    """A time as the page writes it."""
    value, unit = text.split()
    return float(value) * {"ms": 1, "s": 1000}[unit]


def test_every_token_has_its_border_its_shade_and_its_row(opened, running):
    one = opened(running.url)
    one.set(temperature=0.8, seed=4)
    text = one.send("Tell me about the sea.")
    _, whole = api(running.url, "/v1/chat/completions",
                   {"model": "pocket", "messages": [{"role": "user", "content": "Tell me about the sea."}],
                    "max_tokens": 128, "temperature": 0.8, "seed": 4, "logprobs": True})
    entries = whole["choices"][0]["logprobs"]["content"]
    spans = one.page.locator("#text .token")
    assert "".join(spans.all_text_contents()) == text == whole["choices"][0]["message"]["content"]
    assert spans.all_text_contents() == [entry["token"] for entry in entries[: spans.count()]]
    rare = [int(span.get_attribute("data-rare")) for span in spans.all()]
    shares = [2.718281828459045 ** entry["logprob"] for entry in entries]
    assert rare == [sum(share < bound for bound in (0.9, 0.5, 0.1, 0.01)) for share in shares[: len(rare)]]
    assert len(set(rare)) >= 3
    one.page.click("#result summary")
    rows = [row.locator("td").all_text_contents() for row in one.page.locator("#rows tr").all()]
    assert [row[0] for row in rows] == [str(i + 1) for i in range(len(entries))] and rows[-1][1] == "(end)"
    assert [float(row[2].removesuffix(" %")) for row in rows] == pytest.approx([100 * s for s in shares], rel=0.01)


def test_knobs_change_the_text_and_settings_repeat_it(opened, running):
    one = opened(running.url)
    one.set(temperature=0)
    greedy = one.send("What is rain?")
    assert one.send() == greedy
    one.set(temperature=1.5, seed=1)
    first = one.send()
    assert first != greedy and one.send() == first
    one.set(seed=2)
    assert one.send() != first
    one.set(top_k=1)
    assert one.send() == greedy, "one candidate is left: the likeliest"
    one.set(top_k=0, min_p=1)
    assert one.send() == greedy
    one.set(min_p=0, top_p=0.0001)
    assert one.send() == greedy
    one.set(max_tokens=3)
    assert greedy.startswith(one.send()) and one.page.text_content("#status").startswith("Cut at max tokens: 3 tokens ")


PENALTIES = {"repetition_penalty": "1.5", "presence_penalty": "-0.5", "frequency_penalty": "2"}


@pytest.mark.parametrize("how", ["light", "dark", "narrow"])
def test_penalties_by_keyboard_and_sent_only_where_changed(opened, running, picture, how):
    one = opened(running.url, viewport={"width": 390 if how == "narrow" else 900, "height": 844},
                 color_scheme="light" if how == "narrow" else how)
    page, keys, asked = one.page, one.page.keyboard, []
    page.on("request", lambda request: request.post_data and asked.append(request.post_data_json))
    one.set(temperature=0)
    plain = one.send("Tell me about the sea.")
    assert not set(PENALTIES) & set(asked[-1]) and not page.is_visible("[name=presence_penalty]")
    page.focus("[name=seed]")
    keys.press("Tab")
    keys.press("Enter")
    for name, value in PENALTIES.items():
        keys.press("Tab")
        assert page.evaluate("document.activeElement.name") == name
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        keys.type(value)  # the whole field is selected
    assert page.text_content("#penalties") == "repetition 1.5, presence -0.5, frequency 2"
    assert page.evaluate("document.scrollingElement.scrollWidth") <= page.viewport_size["width"]
    picture(page.locator("form"), f"page-penalties-{how}")
    changed = one.send()
    settings = {name: float(value) for name, value in PENALTIES.items()}
    assert {name: asked[-1][name] for name in PENALTIES} == settings
    _, whole = api(running.url, "/v1/chat/completions", {
        "model": "pocket", "messages": [{"role": "user", "content": "Tell me about the sea."}], "temperature": 0,
        "max_tokens": 128, **settings})
    assert changed == whole["choices"][0]["message"]["content"] != plain
    one.set(repetition_penalty="1.0", presence_penalty="", frequency_penalty="-0")
    assert page.text_content("#penalties") == "none" and one.send() == plain
    assert not set(PENALTIES) & set(asked[-1])
    one.set(presence_penalty=3)
    page.focus("summary")
    keys.press("Space")
    assert not page.is_visible("[name=presence_penalty]") and page.text_content("#penalties") == "presence 3"
    page.click("#send")
    page.wait_for_selector("#error", state="visible")
    assert page.text_content("#error") == "presence_penalty = 3.0 is not allowed: must be in [-2, 2]"


def test_raw_text_is_continued(opened, running):
    one = opened(running.url)
    one.page.get_by_label("raw text, which it continues").check()
    one.set(temperature=0, max_tokens=12)
    text = one.send("The capital of France is")
    _, whole = api(running.url, "/v1/completions", {"model": "pocket", "prompt": "The capital of France is",
                                                    "temperature": 0, "max_tokens": 12})
    assert text == whole["choices"][0]["text"] and "Paris" in text


def in_flight(url):
    """Requests that the engine works on, by its metrics."""
    with urllib.request.urlopen(url + "/metrics") as response:
        text = response.read().decode()
    return sum(map(float, re.findall(r"^vllm:num_requests_(?:running|waiting)\{.*\} (.*)$", text, re.M)))


@pytest.mark.parametrize("how", ["button", "Escape"])
def test_stopping_stops_the_server_too(opened, running, slowly, how):
    one = opened(running.url)
    one.page.get_by_label("raw text, which it continues").check()
    one.set(seed=0, max_tokens=400)
    one.page.fill("#prompt", "Once upon a time")
    one.page.keyboard.press("Enter")
    one.until(f"() => {TOKENS} >= 3")
    assert in_flight(running.url) == 1
    if how == "button":
        one.page.click("#stop")
    else:
        one.page.keyboard.press("Escape")
    one.until(f"() => /^Stopped: [0-9]+ tokens in/.test({STATUS})")
    seen = one.page.evaluate(TOKENS)
    assert 3 <= seen < 100 and one.page.is_disabled("#stop") and not one.page.is_visible("#error")
    deadline = time.monotonic() + 10
    while in_flight(running.url) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert in_flight(running.url) == 0
    assert one.page.evaluate(TOKENS) == seen, "nothing comes after it"


def test_a_new_request_takes_the_place_of_the_old_one(opened, running, slowly):
    one = opened(running.url)
    one.set(temperature=0)
    one.page.fill("#prompt", "Tell me a story about a dragon.")
    one.page.keyboard.press("Enter")
    one.until(f"() => {TOKENS} >= 2")
    text = one.send("What is rain?")
    _, whole = api(running.url, "/v1/chat/completions", {
        "model": "pocket", "messages": [{"role": "user", "content": "What is rain?"}], "temperature": 0})
    assert text == whole["choices"][0]["message"]["content"]


@pytest.mark.parametrize("knobs, prompt", [({"temperature": -1}, "Hi"), ({"top_p": 7}, "Hi"), ({"max_tokens": 0}, "Hi"),
                                           ({"min_p": 2}, "Hi"), ({}, "word " * 2000)])
def test_errors_are_shown_in_the_words_of_the_server(opened, running, knobs, prompt):
    one = opened(running.url)
    one.set(**knobs)
    one.page.fill("#prompt", prompt)
    one.page.click("#send")
    one.page.wait_for_selector("#error", state="visible")
    settings = {"temperature": 0.8, "top_k": 0, "top_p": 1, "min_p": 0, "max_tokens": 128, **knobs}
    status, answer = api(running.url, "/v1/chat/completions", {
        "model": "pocket", "messages": [{"role": "user", "content": prompt}], **settings})
    assert status >= 400 and one.page.text_content("#error") == answer["error"]["message"]
    assert one.page.get_attribute("#error", "role") == "alert" and not one.page.is_visible("#result")
    one.set(temperature=0, top_p=1, min_p=0, max_tokens=20, seed="")
    assert one.send("What is rain?") and not one.page.is_visible("#error")


def sent(one):
    """The body of the next request, as text; the server does not get it."""
    bodies = []
    one.page.route("**/v1/chat/completions", lambda route: (bodies.append(route.request.post_data), route.fulfill(
        content_type="text/event-stream", body=sse(chunk("Hi", [-1], "stop")) + "data: [DONE]\n\n")))
    one.send("Hi")
    one.page.unroute("**/v1/chat/completions")
    return bodies[0]


@pytest.mark.parametrize("typed, seed", [("9007199254740993", 2**53 + 1), ("18446744073709551615", 2**64 - 1),
                                         (" 007 ", 7), ("0", 0), ("", None)])
def test_a_seed_is_sent_digit_by_digit(opened, running, typed, seed):
    one = opened(running.url)
    one.set(seed=typed)
    assert json.loads(sent(one)).get("seed") == seed


@pytest.mark.parametrize("name, typed, said", [
    ("temperature", "-", "a number is missing"), ("temperature", "1e999", "a number is missing"),
    ("top_p", "", "a number is missing"), ("presence_penalty", "-", "a number is missing"),
    ("seed", "12a", "a whole number, or nothing"), ("seed", "1.5", "a whole number, or nothing"),
    ("seed", "-1", "a whole number, or nothing")])
def test_a_number_that_is_only_half_typed_is_not_sent(opened, running, name, typed, said):
    one = opened(running.url)
    page, asked = one.page, []
    one.until("() => document.querySelector('#model').textContent === 'pocket'")
    page.on("request", lambda request: asked.append(request.url))
    if name.endswith("penalty"):
        page.click("fieldset summary")
    page.fill(f"[name={name}]", "")
    page.type(f"[name={name}]", typed)
    if name.endswith("penalty"):
        page.click("fieldset summary")
        assert not page.is_visible(f"[name={name}]")
    page.click("#send")
    field = page.locator(f"label:has([name={name}])")
    assert field.locator("small").inner_text() == said and field.locator("small").is_visible()
    assert page.evaluate("document.activeElement.name") == name and asked == []
    assert page.get_attribute(f"[name={name}]", "aria-invalid") == "true" and page.locator(".knobs small").count() == 1
    page.fill(f"[name={name}]", "1")
    assert page.locator(".knobs small").count() == 0 and page.get_attribute(f"[name={name}]", "aria-invalid") is None
    assert json.loads(sent(one)).get(name, 1) == 1


def test_a_half_typed_number_leaves_the_answer_that_is_under_way(opened, running, slowly):
    one = opened(running.url)
    one.page.click("#send")
    one.until(f"() => {TOKENS} >= 1")
    one.page.fill("[name=seed]", "x")
    one.page.keyboard.press("Enter")
    assert one.page.locator(".knobs small").inner_text() == "a whole number, or nothing"
    one.until(f"() => {STATUS}.startsWith('Finished')")


@pytest.mark.parametrize("width", [390, 1000])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_longest_gap_is_seen(opened, running, picture, width, scheme):
    """A bar of at least 8 pixels a side over the gap, in the colour of the text, with the background around it."""
    one = opened(running.url, viewport={"width": width, "height": 900}, color_scheme=scheme)
    one.set(temperature=0, max_tokens=80)
    one.send("Tell me a story about a dragon.")
    picture(one.page.locator("#result"), f"timeline-{width}-{scheme}")
    line = one.page.locator("#timeline")
    image = Image.open(io.BytesIO(line.screenshot())).convert("RGB")
    ink = tuple(map(int, re.findall(r"\d+", one.page.evaluate("getComputedStyle(document.body).color"))[:3]))
    begins, ends = map(float, re.findall(r"[\d.]+", one.page.get_attribute("#longest", "d"))[::2])
    scale = image.width / float(one.page.get_attribute("#timeline", "viewBox").split()[2])
    found = [(x, y) for x in range(image.width) for y in range(image.height) if image.getpixel((x, y)) == ink]
    columns, rows = sorted({x for x, _ in found}), sorted({y for _, y in found})
    assert len(rows) >= 6 and rows[-1] < 16, "above the lines of the tokens"
    assert len(found) >= 0.9 * len(columns) * len(rows), "one bar, without gaps"
    assert [columns[0], columns[-1]] == pytest.approx([begins * scale - 4, ends * scale + 4], abs=3)


def test_a_key_is_asked_for_only_where_it_is_needed(opened, lm):
    with serve_in_background(lm, api_key="open-sesame") as server:
        one = opened(server.url)
        one.page.wait_for_selector("#key-row", state="visible")
        assert "key" in one.page.text_content("#error") and one.page.text_content("#model") == "not known yet"
        assert one.page.evaluate("document.activeElement.id") == "key"
        one.page.keyboard.type("wrong")
        one.page.keyboard.press("Enter")
        one.until("() => !document.querySelector('#error').hidden")
        one.page.fill("#key", "open-sesame")
        assert one.send("What is rain?") and one.page.text_content("#model") == "pocket"
        assert one.page.evaluate("localStorage.length + sessionStorage.length + document.cookie.length") == 0


def sse(*events):
    """A whole stream."""
    return "".join(f"data: {json.dumps(event)}\r\n\r\n" for event in events)


def chunk(text, logprobs, finish=None):
    content = [{"token": "?", "logprob": one, "bytes": [], "top_logprobs": []} for one in logprobs]
    return {"choices": [{"index": 0, "delta": {"content": text}, "logprobs": {"content": content},
                         "finish_reason": finish}]}


def test_what_a_model_writes_stays_text(opened, running):
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>\n&amp; \u202e\u0000"
    one = opened(running.url)
    one.page.route("**/v1/chat/completions", lambda route: route.fulfill(
        content_type="text/event-stream", body=sse(chunk(evil, [-0.1]), chunk("\U0001F642", [-1, -1, -1], "stop"))
        + "data: [DONE]\n\n"))
    assert one.send() == evil + "\U0001F642"
    assert one.page.locator("#text img, #text script, #rows img, #rows script").count() == 0
    numbers = one.page.inner_text("#numbers")
    assert "4" in numbers.split(), "an emoji of three tokens is one piece and three tokens"
    one.page.click("#result summary")
    assert one.page.locator("#rows tr").count() == 2 and "4.98 %" in one.page.text_content("#rows")


@pytest.mark.parametrize("stream, said", [
    (sse(chunk("Hi", [-1]), {"error": {"message": "the engine has stopped", "code": "x"}}), "the engine has stopped"),
    (sse(chunk("Hi", [-1])), "the connection ended before the answer did")])
def test_an_answer_that_breaks_off_says_so_and_stays(opened, running, stream, said):
    one = opened(running.url)
    one.page.route("**/v1/chat/completions", lambda route: route.fulfill(content_type="text/event-stream", body=stream))
    assert one.send() == "Hi"
    assert one.page.text_content("#error") == said
    assert one.page.text_content("#status").startswith("Broken off: 1 token in ")


def test_everything_can_be_done_with_the_keyboard(opened, running, slowly):
    one = opened(running.url)
    page = one.page
    keys = page.keyboard
    reached = []
    for _ in range(10):
        keys.press("Tab")
        reached.append(page.evaluate("(({name, id, localName}) => name || id || localName)(document.activeElement)"))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", "the focus is seen"
    assert reached == ["mode", "prompt", "temperature", "top_k", "top_p", "min_p", "max_tokens", "seed",
                       "summary", "send"]
    keys.press("Space")
    one.until(f"() => {TOKENS} >= 1")
    keys.press("Tab")
    assert page.evaluate("document.activeElement.id") == "stop"
    keys.press("Space")
    one.until(f"() => {STATUS}.startsWith('Stopped')")
    assert page.evaluate("document.activeElement.id") == "send", "the focus is not lost with the button"
    for _ in range(10 - 1):
        keys.press("Shift+Tab")
    keys.press("ArrowRight")
    assert page.get_by_label("raw text, which it continues").is_checked()
    keys.press("Tab")
    keys.press("Shift+Enter")
    keys.type("end")
    assert page.input_value("#prompt").endswith("\nend") or "\nend" in page.input_value("#prompt")
    assert page.locator("#text").get_attribute("aria-live") == "polite"


def test_every_field_has_a_label(opened, running):
    one = opened(running.url)
    nameless = """() => [...document.querySelectorAll('input, textarea')]
        .filter(field => !field.labels.length || !field.labels[0].textContent.trim()).map(field => field.outerHTML)"""
    assert one.page.evaluate(nameless) == []
    assert one.page.evaluate("document.documentElement.lang") == "en"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_page_fits_and_follows_the_scheme(opened, running, picture, scheme):
    one = opened(running.url, viewport={"width": 390, "height": 844}, color_scheme=scheme, device_scale_factor=2)
    one.set(seed=4)
    one.send("Tell me about the sea.")
    one.page.click("#result summary")
    assert one.page.evaluate("document.scrollingElement.scrollWidth") <= 390
    paper, ink = one.page.evaluate("""() => ['backgroundColor', 'color'].map(name =>
        getComputedStyle(document.body)[name].match(/[0-9]+/g).map(Number))""")
    assert (sum(paper) > sum(ink)) == (scheme == "light") and abs(sum(paper) - sum(ink)) > 450
    picture(one.page.locator("body"), f"page-narrow-{scheme}")


def test_the_policy_allows_nothing_from_elsewhere(running):
    with urllib.request.urlopen(running.url) as response:
        assert "default-src 'self'" in response.headers["Content-Security-Policy"]
        markup = response.read().decode()
    assert "http" not in markup and " style=" not in markup and "<style" not in markup
    assert re.findall(r"<script[^>]*>", markup) == ['<script type="module" src="page.js">']
