"""The shipped folders are ordinary checkpoints: `transformers` loads them as they are and agrees."""

import pytest
import torch
import transformers

from course_lib import SamplingParams, generate, load
from course_lib.checkpoint import MODELS
from course_lib.training.corpus import TOOLS, Writer

NAMES = ("pocket", "pocket-draft")
TEXTS = ("What is gravity?", "  two  spaces\n\n\tand 1234 digits", "naïve 重力 🙂 don't", "<|im_end|> is text")


@pytest.fixture(scope="module", params=NAMES)
def ours(request):
    return load(request.param, device="cpu", dtype=torch.float32)


@pytest.fixture(scope="module")
def theirs(ours):
    folder = MODELS / ours.name
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def test_the_same_ids(ours, theirs):
    for text in TEXTS[:3]:
        assert theirs[1].encode(text) == ours.tokenizer.encode(text)
        assert theirs[1].decode(ours.tokenizer.encode(text)) == text


def test_the_same_chat(ours, theirs):
    writer = Writer(3)
    for kind in ("calculator", "dictionary", "encyclopedia"):
        messages = getattr(writer, f"{kind}_exchange")(tuple(TOOLS))
        for tools in (None, list(TOOLS.values())):
            for tokenize in (True, False):
                expected = theirs[1].apply_chat_template(messages, tools=tools, add_generation_prompt=True,
                                                         tokenize=tokenize)
                expected = expected["input_ids"] if tokenize else expected
                assert ours.tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True,
                                                          tokenize=tokenize) == expected


@torch.inference_mode()
def test_the_same_logits(ours, theirs):
    for text in TEXTS:
        ids = torch.tensor([ours.tokenizer.encode(text)])
        torch.testing.assert_close(ours.model(ids), theirs[0](ids).logits, rtol=0, atol=2e-4)


def test_the_same_greedy_text_and_the_same_end(ours, theirs):
    params = SamplingParams(temperature=0, max_tokens=40)
    for text in ("What is gravity?", "The capital of India is"):
        ids = torch.tensor([ours.tokenizer.encode(text)])
        expected = theirs[0].generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=40,
                                      pad_token_id=0)[0, ids.shape[1]:].tolist()
        assert list(generate(ours, text, params).token_ids) == expected


def test_both_have_one_vocabulary():
    pocket, draft = (load(name).tokenizer for name in NAMES)
    assert pocket.mergeable_ranks == draft.mergeable_ranks and pocket.special_tokens == draft.special_tokens


def test_sizes():
    pocket, draft = (load(name) for name in NAMES)
    assert sum(p.numel() for p in pocket.model.parameters()) <= 10_000_000
    assert sum(p.numel() for p in draft.model.parameters()) <= 1_000_000
    assert (MODELS / "pocket" / "model.safetensors").stat().st_size <= 20_000_000
    assert pocket.config.max_position_embeddings == 1024 and pocket.config.tie_word_embeddings
    assert pocket.config.num_key_value_heads < pocket.config.num_attention_heads
