"""Folders in and out: nothing is lost, nothing is guessed, and what is wrong is named."""

import errno
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tiny_checkpoints import CONFIGS, LLAMA, SPECIALS, STRETCH, TEXT, make_model, make_tokenizer, write_tokenizer

import course_lib.checkpoint
from course_lib.chat_template import POCKET_CHAT_TEMPLATE
from course_lib.checkpoint import (
    LanguageModel,
    NoInitialWeights,
    beside,
    load,
    save,
)
from course_lib.config import ModelConfig, RopeScaling
from course_lib.device import available_devices, device
from course_lib.fast_layer import speed_up
from course_lib.hf_config import config_from_hf, config_to_hf
from course_lib.layers import rope_tables
from course_lib.model import CausalLM
from course_lib.tokenizer import POCKET_PATTERN, Tokenizer, train_bpe

ROOT = Path(__file__).parents[1]
CHAT = [{"role": "user", "content": "They're there, the dog doesn't mind: 12"}]


def make_lm(**changes):
    ranks = train_bpe(TEXT * 2, 400)
    specials = {tag: len(ranks) + i for i, tag in enumerate(SPECIALS)}
    tokenizer = Tokenizer("mine", POCKET_PATTERN, ranks, specials, eos_token="<|im_end|>",
                          chat_template=POCKET_CHAT_TEMPLATE)
    shape = {"hidden_size": 36, "intermediate_size": 50, "num_hidden_layers": 2, "num_attention_heads": 6,
             "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 64, "rope_theta": 500.0}
    config = ModelConfig(vocab_size=tokenizer.n_vocab + 3, **shape | changes)
    model = CausalLM(config)
    model.init_weights(torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8) if parameter.dim() == 2 else parameter.add_(0.3)
    eos = frozenset(specials[tag] for tag in ("<|im_end|>", "<|endoftext|>"))
    speed_up(model)  # as `load` does
    return LanguageModel(model.eval(), tokenizer, config, eos, "mine")


def same_logits(first, second, atol=0.0):
    ids = torch.arange(40).view(2, 20)
    with torch.no_grad():
        torch.testing.assert_close(first.model(ids), second.model(ids), rtol=0, atol=atol)


SHAPES = {"pocket-like": {}, "untied, stretched, biased": {
    "tie_word_embeddings": False, "attention_bias": True, "attention_out_bias": True, "mlp_bias": True,
    "hidden_act": "gelu_tanh", "rope_scaling": RopeScaling(4.0, 1.0, 4.0, 32)}}


@pytest.fixture(params=SHAPES.values(), ids=SHAPES)
def saved(request, tmp_path):
    lm = make_lm(**request.param)
    save(lm, tmp_path / "saved")
    return lm, tmp_path / "saved"


def test_save_and_load(saved):
    lm, folder = saved
    again = load(folder)
    assert again.config == lm.config and again.eos_token_ids == lm.eos_token_ids
    same_logits(again, lm)
    made_later = {"encoding", "added_vocabulary", "ids"}
    first, second = ({name: value for name, value in vars(one.tokenizer).items() if name not in made_later}
                     for one in (lm, again))
    assert second | {"name": "mine"} == first and len(first) > 10
    assert not again.model.training


def test_transformers_reads_what_we_save(saved):
    """The same ids, logits, chat template and greedy text."""
    lm, folder = saved
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text in [*TEXT, "<|im_start|>user\n  a\n\n b<|im_end|>"]:
        assert tokenizer.encode(text, add_special_tokens=False) == lm.tokenizer.encode(text, allowed_special="all")
        assert tokenizer.decode(lm.tokenizer.encode(text)) == text
    prompt = lm.tokenizer.apply_chat_template(CHAT, add_generation_prompt=True)
    assert prompt == tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, return_dict=False)
    assert tokenizer.eos_token == "<|im_end|>" and model.config.eos_token_id == sorted(lm.eos_token_ids)
    ids = torch.tensor([prompt])
    with torch.no_grad():
        torch.testing.assert_close(lm.model(ids), model(ids).logits, rtol=0, atol=1e-5)
        out = model.generate(ids, max_new_tokens=12, do_sample=False, attention_mask=torch.ones_like(ids),
                             pad_token_id=0)
        for _ in range(out.shape[1] - ids.shape[1]):
            ids = torch.cat((ids, lm.model(ids)[:, -1:].argmax(-1)), dim=1)
    assert lm.tokenizer.decode(ids[0].tolist()) == tokenizer.decode(out[0])
    assert out.shape[1] > len(prompt)


def test_bfloat16_in_the_file(tmp_path):
    lm = make_lm()
    save(lm, tmp_path, dtype=torch.bfloat16)
    tensors = load_file(tmp_path / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert "lm_head.weight" not in tensors and "model.layers.1.self_attn.q_proj.weight" in tensors
    assert transformers.AutoModelForCausalLM.from_pretrained(tmp_path).dtype == torch.bfloat16
    again = load(tmp_path, device="cpu")
    assert again.model.embed_tokens.weight.dtype == torch.float32
    assert again.model.embed_tokens.weight.equal(lm.model.embed_tokens.weight.bfloat16().float())


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("fails", ["write_weights", "config_to_hf", "tokenizer_to_hf"])
def test_a_failed_save_leaves_the_old_files(fails, tmp_path, monkeypatch):
    folder = tmp_path / "saved"
    save(make_lm(), folder)
    before = contents(folder)

    def full_disk(*arguments):
        if fails == "write_weights":
            arguments[1].write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(course_lib.checkpoint, fails, full_disk)
    for target in (folder, tmp_path / "new"):
        with pytest.raises(OSError, match="no space"):
            save(make_lm(num_hidden_layers=1), target)
    assert contents(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["saved"], "and no half-written folder"


def test_saving_over_an_old_folder(tmp_path):
    """Its shards, template file and special tokens are gone, a README stays."""
    make_model("llama", tmp_path, max_shard_size="40KB")
    write_tokenizer(make_tokenizer("gpt2", 300), tmp_path)
    (tmp_path / "chat_template.jinja").write_text("old")
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": "<|endoftext|>"}')
    (tmp_path / "README.md").write_text("mine")
    loaded, lm = load(tmp_path), make_lm()
    save(lm, tmp_path)
    again = load(tmp_path)
    same_logits(again, lm)
    assert again.tokenizer.chat_template == POCKET_CHAT_TEMPLATE and again.tokenizer.bos_token is None
    assert (tmp_path / "README.md").read_text() == "mine"
    assert loaded.model(torch.arange(5)[None]).isfinite().all(), "a model loaded before is unharmed"


KILL_FIFTY_TIMES = """
import os, random, signal, sys, time, torch
from dataclasses import replace
from course_lib import load, save
rng, lm = random.Random(0), load(sys.argv[1])
for i in range(1, 51):
    if (child := os.fork()) == 0:
        for j in range(10**6):  # every number of the model and of its configuration is the same
            number = 100_000 * i + j
            for parameter in lm.model.parameters():
                parameter.data.fill_(number)
            object.__setattr__(lm, "config", replace(lm.config, rope_theta=float(number)))
            save(lm, sys.argv[1])
    time.sleep(rng.uniform(0.05, 0.2))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = load(sys.argv[1])
    weights = torch.cat([parameter.flatten() for parameter in found.model.parameters()])
    assert weights.unique().tolist() == [found.config.rope_theta], "a mixture"
    print(int(found.config.rope_theta))
"""


def test_killed_at_any_moment_a_save_leaves_one_folder_or_the_other(tmp_path):
    """Weights and configuration of one round each, whatever the moment; a README survives; nothing is left over."""
    folder, lm = tmp_path / "saved", make_lm(hidden_size=6, intermediate_size=8, num_hidden_layers=1)
    save(lm, folder)
    (folder / "README.md").write_text("mine")
    done = subprocess.run([sys.executable, "-c", KILL_FIFTY_TIMES, str(folder)], capture_output=True, text=True,
                          env=os.environ | {"OMP_NUM_THREADS": "1"}, cwd=ROOT)
    assert not done.returncode, done.stderr
    assert len(done.stdout.split()) == 50 and len(set(done.stdout.split())) > 20
    assert (folder / "README.md").read_text() == "mine"
    save(lm, folder)
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


END_AT_A_STAGE = """
import os, sys
from pathlib import Path
from course_lib import checkpoint
source, folder, stage = sys.argv[1:]
lm = checkpoint.load(source)
if stage == "half":
    checkpoint.write_weights = lambda *arguments: os._exit(9)
elif stage == "new":
    checkpoint.heal = lambda folder: checkpoint.beside(folder)[2].exists() and os._exit(9)
else:
    checkpoint.shutil.rmtree = lambda path, ignore_errors: path.exists() and os._exit(9)
checkpoint.save(lm, Path(folder))
"""


@pytest.mark.parametrize("stage, expected", [("half", 1), ("new", 2), ("old", 2)])
def test_killed_before_between_and_after_the_two_moves(stage, expected, tmp_path, tmp_path_factory):
    folder, source = tmp_path / "saved", tmp_path_factory.mktemp("source") / "two"
    save(make_lm(num_hidden_layers=1), folder)
    save(make_lm(num_hidden_layers=2), source)
    ended = subprocess.run([sys.executable, "-c", END_AT_A_STAGE, str(source), str(folder), stage], cwd=ROOT,
                           capture_output=True, text=True)
    assert ended.returncode == 9, ended.stderr
    assert beside(folder)[("half", "new", "old").index(stage)].is_dir()
    assert folder.exists() == (stage != "new")
    assert load(folder).config.num_hidden_layers == expected
    save(make_lm(num_hidden_layers=3), folder)
    assert [path.name for path in tmp_path.iterdir()] == ["saved"] and load(folder).config.num_hidden_layers == 3


def test_saving_through_a_link_changes_what_it_points_to(tmp_path):
    save(make_lm(num_hidden_layers=1), tmp_path / "saved")
    (tmp_path / "link").symlink_to("saved")
    save(make_lm(num_hidden_layers=2), tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and load(tmp_path / "saved").config.num_hidden_layers == 2


def test_a_file_is_not_replaced_by_a_folder(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"folder = .*notes.txt.* is not allowed"):
        save(make_lm(num_hidden_layers=1), tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine" and len(list(tmp_path.iterdir())) == 1


def test_a_loaded_model_can_be_trained_and_its_file_stays(tmp_path):
    save(make_lm(), tmp_path)
    before = contents(tmp_path)
    lm = load(tmp_path)
    optimizer = torch.optim.SGD(lm.model.parameters(), lr=1.0)
    lm.model(torch.arange(9)[None]).logsumexp(-1).mean().backward()
    optimizer.step()
    assert contents(tmp_path) == before and not lm.model.embed_tokens.weight.equal(load(tmp_path).model.lm_head.weight)


@pytest.mark.parametrize("name", ["llama tied, biased", "qwen2", "llama 3.1", "gpt2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_heads_stay_tied_and_tables_float32(name, dtype, tmp_path):
    make_model(name, tmp_path)
    write_tokenizer(make_tokenizer("gpt2", 300), tmp_path)
    model = load(tmp_path, dtype=dtype).model
    assert (model.lm_head.weight is model.embed_tokens.weight) == model.config.tie_word_embeddings
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    assert not any(tensor.is_meta for tensor in [*model.parameters(), *model.buffers()])
    for table, expected in zip(model.buffers(), rope_tables(model.config)):
        assert table.equal(expected) and table.dtype == torch.float32


@pytest.mark.parametrize("name", ["gpt2", "qwen3"])
def test_a_model_that_is_no_llama_is_not_saved_as_one(name, tmp_path):
    make_model(name, tmp_path)
    write_tokenizer(make_tokenizer("gpt2", 300), tmp_path)
    with pytest.raises(ValueError, match="norm = 'layernorm'" if name == "gpt2" else "qk_norm = True"):
        save(load(tmp_path), tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.fixture
def folder(tmp_path):
    make_model("llama", tmp_path)
    write_tokenizer(make_tokenizer("gpt2", 300), tmp_path)
    return tmp_path


def rewrite(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def drop(tensors):
    del tensors["model.layers.1.mlp.up_proj.weight"], tensors["lm_head.weight"]


def add(tensors):
    tensors["model.layers.1.mlp.router.weight"] = torch.zeros(2)


def transpose(tensors):
    tensors["model.layers.2.mlp.down_proj.weight"] = tensors["model.layers.2.mlp.down_proj.weight"].T.contiguous()


@pytest.mark.parametrize("change, message", [
    (drop, r"2 missing tensors: layers\.1\.mlp\.up_proj\.weight, lm_head\.weight"),
    (add, r"model\.safetensors: unexpected tensor model\.layers\.1\.mlp\.router\.weight"),
    (transpose, r"model\.layers\.2\.mlp\.down_proj\.weight .*shape \(50, 36\), expected \(36, 50\)"),
])
def test_tensors_that_do_not_match_are_named(folder, change, message):
    rewrite(folder, change)
    with pytest.raises(ValueError, match=message) as caught:
        load(folder)
    assert str(folder) in str(caught.value)


def test_a_tied_head_may_be_in_the_file_too_or_alone_but_not_another(tmp_path):
    make_model("llama tied, biased", tmp_path)
    write_tokenizer(make_tokenizer("gpt2", 300), tmp_path)
    expected, name = load(tmp_path), "model.embed_tokens.weight"
    rewrite(tmp_path, lambda tensors: tensors.update({"lm_head.weight": tensors[name].clone()}))
    same_logits(load(tmp_path), expected)
    rewrite(tmp_path, lambda tensors: tensors.pop(name))
    same_logits(load(tmp_path), expected)
    rewrite(tmp_path, lambda tensors: tensors.update({name: tensors["lm_head.weight"] + 1}))
    with pytest.raises(ValueError, match=r"lm_head\.weight is not embed_tokens\.weight"):
        load(tmp_path)


def test_a_tensor_that_is_there_twice_is_refused(folder, tmp_path):
    """Under two names, or in two files of an index: one of them would win in silence."""
    name = "model.layers.1.mlp.up_proj.weight"
    rewrite(folder, lambda tensors: tensors.update({name.removeprefix("model."): tensors[name] + 1}))
    with pytest.raises(ValueError, match=rf"{name} gives layers.1.mlp.up_proj.weight for the second time"):
        load(folder)
    sharded = tmp_path / "sharded"
    make_model("llama", sharded, max_shard_size="40KB")
    write_tokenizer(make_tokenizer("gpt2", 300), sharded)
    first, *_, last = sorted(sharded.glob("model-*.safetensors"))
    extra = load_file(first)
    save_file(load_file(last) | {next(iter(extra)): next(iter(extra.values())) + 1}, last, {"format": "pt"})
    with pytest.raises(ValueError, match="for the second time"):
        load(sharded)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.bool, torch.float8_e4m3fn])
def test_weights_that_are_no_plain_numbers_are_refused(dtype, folder):
    name = "model.layers.1.mlp.up_proj.weight"
    rewrite(folder, lambda tensors: tensors.update({name: tensors[name].to(dtype)}))
    with pytest.raises(ValueError, match=rf"model\.safetensors: dtype of {name}"):
        load(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer_config.json"])
def test_an_unreadable_file_is_not_called_missing(name, folder, monkeypatch):
    def forbid(path, *arguments, opens=io.open, **options):
        if Path(path).name == name:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opens(path, *arguments, **options)

    monkeypatch.setattr(io, "open", forbid)  # what Path.open and Path.read_text call
    with pytest.raises(ValueError, match=rf"{name} cannot be read: Permission denied"):
        load(folder)


WRONG_JSON = ["[]", "1", "null", '"text"', "{", "\xff", "[" * 100_000]


@pytest.mark.parametrize("content", WRONG_JSON, ids=range(len(WRONG_JSON)))
@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                                  "special_tokens_map.json", "model.safetensors.index.json"])
def test_json_of_another_kind_is_refused_with_the_name_of_the_file(name, content, folder):
    if name == "model.safetensors.index.json":
        (folder / "model.safetensors").unlink()
    (folder / name).write_text(content, encoding="latin-1")
    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        load(folder)


@pytest.mark.parametrize("index", [{}, {"weight_map": None}, {"weight_map": []}, {"weight_map": {}},
                                   {"weight_map": {"a": 1}}, {"weight_map": {"a": ""}}, {"weight_map": {"a": "/"}}])
def test_an_index_without_its_map_is_refused(index, folder):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"index\.json: weight_map"):
        load(folder)


SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
         "num_key_value_heads", "head_dim", "max_position_embeddings")
NO_SIZES = ["12", 12.0, True, 0, -3, [], {}, float("nan"), 2**63, 10**400]


@pytest.mark.parametrize("size", SIZES)
def test_what_is_no_size_is_refused_by_name(size, folder):
    for value in NO_SIZES:
        edit_json(folder / "config.json", **{size: value})
        with pytest.raises(ValueError, match=size):
            load(folder)


@pytest.mark.parametrize("size", ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                                  "num_attention_heads", "head_dim"])
@pytest.mark.parametrize("value", [2**40, 6**20])
def test_a_size_that_the_file_cannot_have_is_refused_before_anything_is_built(size, value, folder):
    changes = {size: value} | ({"num_key_value_heads": value} if size == "num_attention_heads" else {})
    edit_json(folder / "config.json", **{"head_dim": 6} | changes)
    with pytest.raises(ValueError, match=rf"{size} = {value} is not allowed: must be at most \d+"):
        load(folder)


def test_a_context_of_a_billion_costs_nothing(folder):
    expected = load(folder)
    edit_json(folder / "config.json", max_position_embeddings=2**40)
    long = load(folder)
    assert long.config.max_position_embeddings == 2**40
    same_logits(long, expected)


@pytest.mark.parametrize("key, values", [
    ("rms_norm_eps", [None, "1e-6", -1, float("inf"), True, []]),
    ("rope_theta", [None, "1e4", 0, -1, float("nan"), {}]),
    ("initializer_range", ["a", -1]), ("tie_word_embeddings", ["false", 0, None, 1.0]), ("mlp_bias", ["no", 1]),
    ("attention_bias", [0, "x"]), ("hidden_act", [None, 1, [], "swish2"]), ("model_type", [1, [], {}, None]),
    ("rope_scaling", ["llama3", 1, [1], STRETCH | {"factor": "4"}, STRETCH | {"factor": 0}, STRETCH | {"factor": None},
                      STRETCH | {"high_freq_factor": 1.0}, STRETCH | {"mscale": 2.0}]),
    ("eos_token_id", ["2", 1.5, True, -1, {}, [None], ["1"], [[1]]]),
])
def test_a_setting_of_another_kind_is_refused(key, values, folder):
    for value in values:
        config = json.loads((folder / "config.json").read_text())
        config = {name: old for name, old in config.items() if name != "rope_parameters"}
        (folder / "config.json").write_text(json.dumps(config | {key: value}))
        with pytest.raises(ValueError, match=r"config\.json"):
            load(folder)


def test_tensors_that_can_be_computed_are_ignored(folder):
    expected = load(folder)
    rewrite(folder, lambda tensors: tensors.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(3)}))
    same_logits(load(folder), expected)


def test_gpt2_of_the_hub_has_no_prefix_but_buffers(tmp_path):
    make_model("gpt2", tmp_path)
    write_tokenizer(make_tokenizer("gpt2", 300), tmp_path)
    expected = load(tmp_path)
    tensors = {name.removeprefix("transformer."): value
               for name, value in load_file(tmp_path / "model.safetensors").items()}
    tensors |= {"h.0.attn.bias": torch.ones(1, 1, 64, 64), "h.0.attn.masked_bias": torch.tensor(-1e4)}
    save_file(tensors, tmp_path / "model.safetensors")
    same_logits(load(tmp_path), expected)
    tensors["h.1.attn.c_attn.weight"] = tensors["h.1.attn.c_attn.weight"].T.contiguous()
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"h\.1\.attn\.c_attn\.weight"):
        load(tmp_path)


@pytest.mark.parametrize("length", [0, 5, 700, -1])
def test_a_truncated_file_is_named(folder, length):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match=r"model\.safetensors is no complete safetensors file"):
        load(folder)


def test_a_missing_shard_is_named(tmp_path):
    make_model("llama", tmp_path, max_shard_size="40KB")
    write_tokenizer(make_tokenizer("gpt2", 300), tmp_path)
    next(tmp_path.glob("model-00002-of-*.safetensors")).unlink()
    with pytest.raises(ValueError, match=r"model-00002-of-\d+\.safetensors is missing"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(ValueError, match=name):
        load(folder)


def test_pickles_are_refused(folder):
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model\.bin.*only safetensors"):
        load(folder)


def edit_json(path, **entries):
    path.write_text(json.dumps((json.loads(path.read_text()) if path.is_file() else {}) | entries))


@pytest.mark.parametrize("generation, config, expected", [
    ({"eos_token_id": [3, 5]}, {"eos_token_id": 2}, {3, 5}), ({"eos_token_id": 3}, {"eos_token_id": 2}, {3}),
    ({}, {"eos_token_id": [2, 7]}, {2, 7}), ({}, {"eos_token_id": 0}, {0}), ({}, {"eos_token_id": None}, {300}),
    ({"eos_token_id": None}, {"eos_token_id": 2}, {2}),
])
def test_several_ids_can_end_a_text(folder, generation, config, expected):
    (folder / "generation_config.json").write_text(json.dumps(generation))
    edit_json(folder / "config.json", **config)
    assert load(folder).eos_token_ids == expected


def test_names(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(course_lib.checkpoint, "MODELS", tmp_path / "models")
    with pytest.raises(ValueError, match=r"no model in .*pocket"):
        load()
    shutil.copytree(folder, tmp_path / "models" / "pocket")
    assert load().name == load("pocket").name == "pocket" and load().tokenizer.name == "pocket"
    monkeypatch.setenv("COURSE_MODEL", str(folder))
    assert load().name == str(folder) and load("pocket").name == "pocket"
    monkeypatch.chdir(folder.parent)
    assert load(folder.name).name == folder.name
    monkeypatch.chdir(folder)
    assert load(".").config == load("./").config == load(folder).config
    with pytest.raises(ValueError, match=r"no model in .*nowhere.*local alternatives: 'pocket', or a folder"):
        load("./nowhere")


@pytest.mark.parametrize("name", ["~nobody-of-this-name/model", "a" * 5000])
def test_a_name_that_the_system_refuses(name):
    with pytest.raises(ValueError, match=r"^model = '(~nobody|aaa).* is not allowed: "):
        load(name)


def test_the_hub_without_a_network_or_without_its_package(monkeypatch):
    with pytest.raises(ValueError, match=r"'someone/something' .*hub .*local alternatives") as caught:
        load("someone/something")
    assert "\n" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"pip install huggingface_hub.*local alternatives"):
        load("someone/something")


def test_the_hub_gives_a_folder_and_no_pickles(folder, monkeypatch):
    import huggingface_hub

    asked = {}
    monkeypatch.setattr(huggingface_hub, "snapshot_download",
                        lambda name, **options: asked.update(options, name=name) or str(folder))
    lm = load("someone/something")
    assert asked == {"name": "someone/something", "allow_patterns": ["*.safetensors", "*.json", "*.jinja"]}
    assert lm.name == "someone/something" and lm.tokenizer.name == "something"


def test_loading_draws_no_random_numbers_and_imports_no_compiler(folder):
    """Initial weights on the meta device would cost an import of torch._dynamo, seconds of it."""
    code = ("import sys, torch; from course_lib import load; state = torch.get_rng_state(); "
            "load(sys.argv[1]); print(state.equal(torch.get_rng_state()), 'torch._dynamo' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True,
                          cwd=course_lib.checkpoint.MODELS.parent.parent)
    assert done.stdout.split() == ["True", "False"] and not done.stderr


def test_default_precision_and_repr(folder):
    lm = load(folder, device="cpu")
    assert lm.model.embed_tokens.weight.dtype == torch.float32
    assert repr(lm).endswith("35,388 parameters, torch.float32, cpu)")


# Published configurations, shortened to what matters, and how many parameters those models have.
PUBLISHED = {
    "gpt2": (124_439_808, {"model_type": "gpt2", "vocab_size": 50257, "n_ctx": 1024, "n_embd": 768, "n_head": 12,
                           "n_layer": 12, "n_positions": 1024, "layer_norm_epsilon": 1e-05}),
    "SmolLM2-135M": (134_515_008, {
        "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9,
        "num_hidden_layers": 30, "num_key_value_heads": 3, "rope_scaling": None, "rope_theta": 100000,
        "tie_word_embeddings": True, "vocab_size": 49152, "max_position_embeddings": 8192}),
    "Llama-3.1-8B": (8_030_261_248, {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "rope_theta": 500000.0, "vocab_size": 128256,
        "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192, "type": "llama3"}}),
    "Mistral-7B-v0.1": (7_241_732_096, {
        "model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "sliding_window": 4096, "vocab_size": 32000}),
    "Qwen2.5-0.5B": (494_032_768, {
        "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14,
        "num_hidden_layers": 24, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
        "use_sliding_window": False, "sliding_window": 32768, "max_window_layers": 24, "rope_theta": 1e6}),
    "Qwen3-0.6B": (596_049_920, {
        "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16,
        "num_hidden_layers": 28, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
        "tie_word_embeddings": True, "use_sliding_window": False, "sliding_window": None, "rope_theta": 1e6}),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configurations(name):
    count, hf = PUBLISHED[name]
    config = config_from_hf(hf)
    with torch.device("meta"), NoInitialWeights():
        model = CausalLM(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    assert config.sliding_window == (4096 if name.startswith("Mistral") else None)
    assert config.rope_theta == hf.get("rope_theta", 10_000.0)
    assert (config.rope_scaling is not None) == name.startswith("Llama-3.1")


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_what_a_configuration_leaves_out_means_what_its_family_says(family):
    sizes = {"vocab_size": 50, "hidden_size": 128, "intermediate_size": 70, "num_attention_heads": 64}
    theirs = transformers.AutoConfig.for_model(family, **sizes, num_hidden_layers=5)
    ours = config_from_hf({"model_type": family, **sizes, "num_hidden_layers": 5})
    for name in ("num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.head_dim == getattr(theirs, "head_dim", 2) and ours.hidden_act == theirs.hidden_act
    assert ours.sliding_window == getattr(theirs, "sliding_window", None)
    assert ours.rope_theta == theirs.rope_parameters["rope_theta"]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_comes_back_from_what_transformers_saves(name, tmp_path):
    CONFIGS[name]().save_pretrained(tmp_path)
    assert config_from_hf(json.loads((tmp_path / "config.json").read_text())) == config_from_hf(
        CONFIGS[name]().to_dict())


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_stretched_frequencies_under_old_and_new_keys(key):
    new = key == "rope_parameters"
    rope = {"rope_parameters": STRETCH} if new else {
        "rope_theta": 100.0, "rope_scaling": {name: STRETCH[name] for name in STRETCH if name != "rope_theta"}}
    config = config_from_hf({"model_type": "llama", **LLAMA, **rope})
    assert config.rope_theta == 100.0 and config.rope_scaling == RopeScaling(4.0, 1.0, 4.0, 32)
    assert config_from_hf(config_to_hf(config)) == config


@pytest.mark.parametrize("changes, expected", [
    ({}, None), ({"use_sliding_window": True, "max_window_layers": 0}, 9),
    ({"use_sliding_window": True, "max_window_layers": 3}, None), ({"use_sliding_window": True}, None),
    ({"use_sliding_window": True, "layer_types": ["sliding_attention"] * 3}, 9),
    ({"use_sliding_window": True, "layer_types": ["full_attention"] * 3}, None),
])
def test_qwen_slides_only_when_asked_and_from_a_layer_on(changes, expected):
    assert config_from_hf({"model_type": "qwen2", **LLAMA, "sliding_window": 9, **changes}).sliding_window == expected


@pytest.mark.parametrize("changes, message", [
    ({"model_type": "bert"}, r"model_type = 'bert'.*gpt2, llama, mistral, qwen2, qwen3"),
    ({"model_type": None}, "model_type = None"),
    ({"hidden_size": None}, "hidden_size = None"),
    ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, "rope_type = 'yarn'"),
    ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_type = 'linear'"),
    ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type = 'dynamic'"),
    ({"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}, "low_freq_factor"),
    ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "same in every layer"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
    ({"hidden_act": "gelu_fancy"}, "hidden_act = 'gelu_fancy'"),
    ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
    ({"model_type": "qwen3", "use_sliding_window": True, "max_window_layers": 1}, "layer_types"),
    ({"num_key_value_heads": 4}, "num_key_value_heads = 4"),
])
def test_what_is_not_supported_is_refused_by_name(changes, message, folder):
    edit_json(folder / "config.json", **changes)
    with pytest.raises(ValueError, match=message) as caught:
        load(folder)
    assert str(folder / "config.json") in str(caught.value)


NUMBERS_CHANGE = [  # the key is read by transformers, or by its cache
    ("llama", {"is_causal": False}), ("gpt2", {"is_causal": False}), ("mistral", {"is_causal": False}),
    ("llama", {"sliding_window": 4}), ("llama", {"attention_chunk_size": 4}),
    ("llama", {"layer_types": ["sliding_attention"] * 3, "sliding_window": 4}),
    ("mistral", {"layer_types": ["full_attention"] * 3}),
    ("gpt2", {"num_hidden_layers": 2}), ("gpt2", {"num_attention_heads": 3}),
    ("gpt2", {"scale_attn_weights": False}), ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    ("llama 3.1", {"original_max_position_embeddings": 8}),
]


@torch.no_grad()
def reference_logits(folder, ids):
    """Without a cache, and one token after the other."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    cache, steps = None, []
    for column in ids.split(1, dim=1):
        output = model(column, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        steps.append(output.logits)
    return torch.cat((model(ids, use_cache=False).logits, torch.cat(steps, dim=1)))


@pytest.mark.parametrize("name, changes", NUMBERS_CHANGE)
def test_a_setting_that_changes_the_numbers_is_refused_or_followed(name, changes, tmp_path):
    make_model(name, tmp_path)
    write_tokenizer(make_tokenizer("gpt2", 300), tmp_path)
    ids = torch.randint(0, 101, (1, 20), generator=torch.Generator().manual_seed(0))
    before = reference_logits(tmp_path, ids)
    edit_json(tmp_path / "config.json", **changes)
    after = reference_logits(tmp_path, ids)
    assert (after - before).abs().max() > 0.1, "the oracle sees it"
    if "original_max_position_embeddings" in changes:
        with torch.no_grad():
            torch.testing.assert_close(load(tmp_path).model(ids), after[:1], rtol=0, atol=1e-5)
        return
    with pytest.raises(ValueError, match=rf"config\.json: ({'|'.join(changes)}) = "):
        load(tmp_path)


@pytest.mark.parametrize("name, changes", [
    ("llama", {"per_layer_config": {"0": {"hidden_act": "relu"}}}), ("llama", {"something_new": 2.0}),
    ("qwen2", {"layer_types": ["sliding_attention"] * 3}), ("qwen3", {"layer_types": ["full_attention"] * 2}),
    ("qwen3", {"layer_types": [1, 2, 3]}), ("qwen3", {"layer_types": []}), ("qwen3", {"layer_types": "full_attention"}),
    ("gpt2", {"is_causal": None}), ("gpt2", {"n_inner": 1.5}), ("llama", {"quantization_config": {"bits": 4}}),
    ("qwen2", {"layer_types": None, "use_sliding_window": True, "max_window_layers": "0"}),
    ("mistral", {"sliding_window": "5"}),
])
def test_a_setting_that_nobody_reads_is_refused(name, changes):
    with pytest.raises(ValueError, match=f"{next(iter(changes))}|max_window_layers|intermediate_size"):
        config_from_hf(CONFIGS[name]().to_dict() | changes)


def test_settings_that_ask_for_nothing_are_accepted():
    """By name, or because they are null, false, empty or what the family does anyway."""
    for name in CONFIGS:
        hf = CONFIGS[name]().to_dict()
        more = {"something_new": None, "other": False, "pruned_heads": {}, "is_causal": True, "use_cache": True,
                "transformers_version": "9", "torch_dtype": "bfloat16", "pretraining_tp": 2, "temperature": 0.7}
        assert config_from_hf(hf | more) == config_from_hf(hf)
    gpt2 = transformers.GPT2Config(n_embd=30, n_head=6).to_dict()
    assert config_from_hf(gpt2 | {"hidden_size": 30, "num_hidden_layers": 12}) == config_from_hf(gpt2)


def test_device(monkeypatch):
    monkeypatch.delenv("COURSE_DEVICE", raising=False)
    assert device() == torch.device("cuda" if torch.cuda.is_available() else "cpu")
    monkeypatch.setenv("COURSE_DEVICE", "cpu")
    assert device() == torch.device("cpu") == device("cpu") == device(torch.device("cpu"))
    for bad in ("gpu", "cuda:99", "tpu"):
        monkeypatch.setenv("COURSE_DEVICE", bad)
        with pytest.raises(ValueError, match=rf"COURSE_DEVICE = '{bad}'.*one of cpu"):
            device()
    monkeypatch.setenv("COURSE_DEVICE", "")
    with pytest.raises(ValueError, match="device = 'nonsense'"):
        device("nonsense")


def test_device_with_other_hardware(monkeypatch):
    """CUDA is taken where it is; MPS only when it is asked for."""
    monkeypatch.delenv("COURSE_DEVICE", raising=False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device() == torch.device("cpu") and available_devices() == ["cpu", "mps"]
    monkeypatch.setenv("COURSE_DEVICE", "mps")
    assert device() == torch.device("mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("COURSE_DEVICE", "cuda:1")
    assert device() == torch.device("cuda:1")
    monkeypatch.delenv("COURSE_DEVICE")
    assert device() == torch.device("cuda")
