"""What the official client gets: the text, numbers and reasons of `generate`, whole and in pieces."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain

import openai
import pytest
from conftest import RecordingEngine, client_of
from tiny_lm import scrambled_lm

from course_lib import DecodeStream, SamplingParams, generate
from course_lib.server import serve_in_background

QUESTION = [{"role": "user", "content": "What is gravity?"}]
STORY = "Once upon a time"
# One row of a batch against a pass of its own: sums in another order, in float32.
TOLERANCE = 1e-4


def text_of(stream):
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def test_models(client):
    [model] = client.models.list().data
    assert (model.id, model.object, model.max_model_len) == ("pocket-draft", "model", 1024)
    assert client.models.retrieve("pocket-draft") == model


def test_a_conversation(client, draft):
    answer = client.chat.completions.create(model="pocket-draft", messages=QUESTION, temperature=0, max_tokens=40)
    expected = generate(draft, QUESTION, SamplingParams(temperature=0, max_tokens=40))
    [choice] = answer.choices
    assert (choice.message.role, choice.message.content) == ("assistant", expected.text)
    assert choice.finish_reason == expected.finish_reason == "stop"
    prompt = len(draft.tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True))
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (prompt, len(expected.token_ids))
    assert usage.total_tokens == prompt + len(expected.token_ids)
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")


def test_a_text(client, draft):
    answer = client.completions.create(model="pocket-draft", prompt=STORY, temperature=0)
    expected = generate(draft, STORY, SamplingParams(temperature=0, max_tokens=16))  # OpenAI's default here
    assert answer.choices[0].text == expected.text and answer.choices[0].finish_reason == "length"
    assert answer.object == "text_completion"


def test_a_conversation_may_be_as_long_as_the_context(draft):
    lm = scrambled_lm()  # which does not find its end tokens
    with serve_in_background(lm, model="tiny") as server, client_of(server) as client:
        answer = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "cat"}],
                                                temperature=0, extra_body={"ignore_eos": True})
    assert answer.usage.total_tokens == 64 and answer.choices[0].finish_reason == "length"


def test_four_kinds_of_prompt(client, draft):
    ids = draft.tokenizer.encode_prompt(STORY)
    ask = partial(client.completions.create, model="pocket-draft", temperature=0, max_tokens=5)
    one = ask(prompt=STORY).choices[0].text
    assert ask(prompt=ids).choices[0].text == one
    other = ask(prompt="The").choices[0].text
    for several in ([STORY, "The"], [ids, draft.tokenizer.encode_prompt("The")]):
        answer = ask(prompt=several, n=2)
        assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
        assert [choice.text for choice in answer.choices] == [one, one, other, other]
        assert answer.usage.prompt_tokens == len(ids) + 1 and answer.usage.completion_tokens == 20


def test_choice_j_has_the_seed_plus_j(client):
    ask = partial(client.completions.create, model="pocket-draft", prompt=STORY, max_tokens=12)
    three = [choice.text for choice in ask(seed=7, n=3).choices]
    assert [ask(seed=7 + j).choices[0].text for j in range(3)] == three and len(set(three)) == 3


def test_every_setting_reaches_the_engine(draft):
    engines = []

    def engine():
        engines.append(RecordingEngine(draft))
        return engines[-1]

    settings = dict(temperature=0.5, top_p=0.9, presence_penalty=0.1, frequency_penalty=0.2, seed=3, max_tokens=2,
                    stop=["x", "yz"])
    extras = dict(top_k=5, min_p=0.05, repetition_penalty=1.1, stop_token_ids=[7], ignore_eos=True)
    with serve_in_background(draft, engine=engine) as server, client_of(server) as client:
        client.completions.create(model="pocket-draft", prompt="a", logprobs=2, **settings, extra_body=extras)
        client.chat.completions.create(model="pocket-draft", messages=QUESTION, logprobs=True, top_logprobs=2,
                                       **settings, extra_body=extras)
        client.chat.completions.create(model="pocket-draft", messages=QUESTION, max_completion_tokens=2, temperature=0,
                                       extra_body={"top_k": -1})
        client.chat.completions.create(model="pocket-draft", messages=QUESTION, max_tokens=1, temperature=None)
    given = [params for _, params in engines[0].asked]
    assert given[:2] == [SamplingParams(**settings, **extras, logprobs=2)] * 2
    assert given[2] == SamplingParams(temperature=0, max_tokens=2) and given[3] == SamplingParams(max_tokens=1)


def test_a_stream_joined_is_the_whole(client):
    chat = partial(client.chat.completions.create, model="pocket-draft", messages=QUESTION, seed=5, max_tokens=30)
    text = partial(client.completions.create, model="pocket-draft", prompt=STORY, seed=5, max_tokens=30)
    assert text_of(chat(stream=True)) == chat().choices[0].message.content
    assert "".join(chunk.choices[0].text for chunk in text(stream=True)) == text().choices[0].text


def test_the_asynchronous_client_gets_the_same(server, client):
    async def streams():
        asking = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        async with asking:
            stream = await asking.chat.completions.create(model="pocket-draft", messages=QUESTION, stream=True, seed=5,
                                                          max_tokens=30)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    whole = client.chat.completions.create(model="pocket-draft", messages=QUESTION, seed=5, max_tokens=30)
    assert asyncio.run(streams()) == whole.choices[0].message.content


def test_the_order_of_a_stream(client):
    chunks = list(client.chat.completions.create(model="pocket-draft", messages=QUESTION, temperature=0, max_tokens=5,
                                                 stream=True, stream_options={"include_usage": True}))
    first, *middle, last, usage = chunks
    assert (first.choices[0].delta.role, first.choices[0].delta.content) == ("assistant", "")
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 2) + ["length"]
    assert all(chunk.choices[0].delta.role is None and chunk.choices[0].delta.content for chunk in (*middle, last))
    assert usage.choices == [] and usage.usage.completion_tokens == 5 == len(middle) + 1
    assert all(chunk.usage is None for chunk in chunks[:-1]) and len({chunk.id for chunk in chunks}) == 1


def test_the_choices_of_a_stream_are_those_of_the_whole(client):
    ask = partial(client.completions.create, model="pocket-draft", prompt=[STORY, "The"], n=2, seed=1, max_tokens=10)
    texts = dict.fromkeys(range(4), "")
    for chunk in ask(stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert list(texts.values()) == [choice.text for choice in ask().choices]


def test_log_probabilities_are_those_of_generate(client, draft):
    expected = generate(draft, QUESTION, SamplingParams(temperature=0, max_tokens=12, logprobs=3))
    answer = client.chat.completions.create(model="pocket-draft", messages=QUESTION, temperature=0, max_tokens=12,
                                            logprobs=True, top_logprobs=3)
    entries = answer.choices[0].logprobs.content
    assert [bytes(entry.bytes) for entry in entries] == [draft.tokenizer.decode_bytes([i]) for i in expected.token_ids]
    for entry, top in zip(entries, expected.logprobs, strict=True):
        assert [draft.tokenizer.decode([i]) for i, _ in top] == [one.token for one in entry.top_logprobs]
        assert [logprob for _, logprob in top] == pytest.approx([one.logprob for one in entry.top_logprobs],
                                                                abs=TOLERANCE)
    total = sum(entry.logprob for entry in entries)
    assert total == pytest.approx(expected.cumulative_logprob, abs=12 * TOLERANCE)


def test_log_probabilities_of_a_text_stand_beside_its_tokens(client):
    ask = partial(client.completions.create, model="pocket-draft", prompt=STORY, temperature=0, max_tokens=8,
                  logprobs=2)
    whole = ask().choices[0]
    lists = whole.logprobs
    assert "".join(lists.tokens) == whole.text
    assert [whole.text[start:].startswith(token) for token, start in zip(lists.tokens, lists.text_offset)] == [True] * 8
    for logprob, top in zip(lists.token_logprobs, lists.top_logprobs, strict=True):
        assert max(top.values()) == logprob and len(top) == 2  # greedy: the likeliest
    parts = [chunk.choices[0].logprobs for chunk in ask(stream=True)]
    for name in ("tokens", "text_offset"):
        assert list(chain(*(getattr(part, name) for part in parts))) == getattr(lists, name)
    streamed = list(chain(*(part.token_logprobs for part in parts)))
    assert streamed == pytest.approx(lists.token_logprobs, abs=TOLERANCE)


def test_the_chosen_token_is_among_the_top_of_a_text(client):
    """As OpenAI has it: up to one more than were asked for, and with 0 the chosen one alone."""
    ask = partial(client.completions.create, model="pocket-draft", prompt=STORY, temperature=1.8, seed=1, max_tokens=40)
    for asked in (0, 1, 3):
        lists = ask(logprobs=asked).choices[0].logprobs
        sizes = {len(top) for top in lists.top_logprobs}
        assert sizes <= {asked, asked + 1} - {0}
        assert [top[token] for token, top in zip(lists.tokens, lists.top_logprobs, strict=True)] == lists.token_logprobs
    assert sizes == {3, 4}, "at this temperature many tokens are not among the three likeliest"


def test_which_stop_has_ended_a_choice(client, draft):
    expected = generate(draft, QUESTION, SamplingParams(temperature=0, max_tokens=12))
    ask = partial(client.chat.completions.create, model="pocket-draft", messages=QUESTION, temperature=0, max_tokens=12)
    stop, token = expected.text[9:12], expected.token_ids[5]
    for reason, options in ((stop, {"stop": stop}), (token, {"extra_body": {"stop_token_ids": [token]}}), (None, {})):
        whole = ask(**options).choices[0]
        *_, last = ask(stream=True, **options)
        assert whole.stop_reason == last.choices[0].stop_reason == reason
        assert whole.finish_reason == ("length" if reason is None else "stop")


def test_without_top_log_probabilities(client):
    answer = client.chat.completions.create(model="pocket-draft", messages=QUESTION, max_tokens=2, temperature=0,
                                            logprobs=True)
    assert [entry.top_logprobs for entry in answer.choices[0].logprobs.content] == [[], []]


def test_ids_and_seconds_only_where_they_are_asked_for(client, draft):
    expected = generate(draft, QUESTION, SamplingParams(temperature=0))
    ask = partial(client.chat.completions.create, model="pocket-draft", messages=QUESTION, temperature=0, max_tokens=64)
    extras = {"return_token_ids": True, "return_step_seconds": True}
    choices = [chunk.choices[0] for chunk in ask(stream=True, extra_body=extras)]
    whole = ask(extra_body=extras).choices[0]
    ids = list(chain(*(choice.token_ids for choice in choices[1:])))
    assert ids == whole.token_ids == list(expected.token_ids), "with the end token"
    assert all(choice.delta.content == draft.tokenizer.decode(choice.token_ids) for choice in choices[1:-1])
    for choice in (*choices[1:], whole):
        assert len(choice.step_seconds) == len(choice.token_ids) and all(0 < s < 10 for s in choice.step_seconds)
    prompt = draft.tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True)
    assert ask(extra_body=extras).prompt_token_ids == prompt
    plain = ask()
    assert not {"token_ids", "step_seconds"} & set(plain.choices[0].model_dump())
    assert "prompt_token_ids" not in plain.model_dump()
    texts = client.completions.create(model="pocket-draft", prompt=["The", STORY], n=2, max_tokens=1,
                                      extra_body={"return_token_ids": True})
    prompts = [draft.tokenizer.encode_prompt(text) for text in ("The", "The", STORY, STORY)]
    assert [choice.prompt_token_ids for choice in texts.choices] == prompts


def test_stop_strings_end_the_text_wherever_tokens_end(client, draft):
    """Cut out of the answer at every place, of every length up to six: most begin in one token and end in another."""
    text = generate(draft, QUESTION, SamplingParams(temperature=0, max_tokens=12)).text
    stops = sorted({text[i : i + n] for i in range(0, len(text) - 6, 3) for n in (1, 2, 4, 6)})

    def answer(stop):
        stream = client.chat.completions.create(model="pocket-draft", messages=QUESTION, temperature=0, max_tokens=12,
                                                stop=stop, stream=True)
        choices = [chunk.choices[0] for chunk in stream]
        return "".join(choice.delta.content or "" for choice in choices), choices[-1].finish_reason

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(answer, stops)) == [(text[: text.index(stop)], "stop") for stop in stops]


def test_of_two_stop_strings_the_first_that_is_complete_counts(client, draft):
    text = generate(draft, QUESTION, SamplingParams(temperature=0, max_tokens=12)).text
    ask = partial(client.chat.completions.create, model="pocket-draft", messages=QUESTION, temperature=0, max_tokens=12)
    assert ask(stop=[text[20:24], text[5:9]]).choices[0].message.content == text[: text.index(text[5:9])]


def test_characters_are_whole_in_every_piece():
    lm = scrambled_lm()  # writes bytes at random: characters that are cut, and bytes that are none
    with serve_in_background(lm, model="tiny") as server, client_of(server) as client:
        for seed in range(6):
            chunks = [chunk.choices[0] for chunk in client.completions.create(
                model="tiny", prompt="cat", seed=seed, max_tokens=40, stream=True,
                extra_body={"return_token_ids": True, "ignore_eos": True})]
            decoder = DecodeStream(lm.tokenizer)
            pieces = [decoder.push(i) for chunk in chunks for i in chunk.token_ids] + [decoder.flush()]
            assert "".join(chunk.text for chunk in chunks) == "".join(pieces)
            assert sum(len(chunk.token_ids) for chunk in chunks) == 40


def test_many_clients_at_once_do_not_mix(client):
    """Each gets what it gets alone. Twelve prompts of different lengths, all in the batch together."""
    prompts = [f"{start} {word}" for start in ("The", "Once upon a time a") for word in
               ("cat", "dragon", "boy", "ship", "king", "small house")]

    def ask(prompt):
        stream = client.completions.create(model="pocket-draft", prompt=prompt, temperature=0, max_tokens=24,
                                           stream=True)
        return "".join(chunk.choices[0].text for chunk in stream)

    alone = [ask(prompt) for prompt in prompts]
    with ThreadPoolExecutor(len(prompts)) as pool:
        together = list(pool.map(ask, prompts))
    assert together == alone and len(set(alone)) > 6
