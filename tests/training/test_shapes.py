"""The stored runs of many shapes: the columns, what they cost, and that a short one comes out the same again."""

import dataclasses

import pytest
import torch

from course_lib.checkpoint import load
from course_lib.costs import flops_per_token, parameter_count
from course_lib.model import CausalLM
from course_lib.training import shapes
from course_lib.training.shapes import (
    AGAIN,
    CHECK,
    GRID,
    RATES,
    RECIPE,
    RESULTS,
    ShapeResult,
    grid_results,
    read_results,
)


def test_the_file_says_how_and_where_it_was_made():
    command, machine, recipe, header, *rows = RESULTS.read_text().splitlines()
    assert command == f"# {shapes.COMMAND}" and "PyTorch" in machine and "threads: " in machine
    assert recipe == f"# {RECIPE}", "the recipe has changed since: train the grid again"
    assert header.split(",") == [field.name for field in dataclasses.fields(ShapeResult)]
    assert len(rows) == len(read_results()) == len(RATES) * len(GRID) + 3


def test_every_shape_of_the_grid_is_there_once_and_cost_what_its_shape_says():
    runs = grid_results()
    assert tuple(runs) == GRID
    for (width, depth), run in runs.items():
        config = shapes.shape(width, depth)
        with torch.device("meta"):
            model = CausalLM(config)
        assert run.parameters == sum(p.numel() for p in model.parameters()) == parameter_count(config).total
        assert run.layer_parameters == sum(p.numel() for p in model.layers.parameters())
        assert run.flops_per_token == flops_per_token(config, 64).total
        assert run.tokens == RECIPE.steps * RECIPE.sequences * RECIPE.length
        assert 0 < run.loss < 4


def test_more_layers_and_wider_ones_lose_less_and_chance_does_little():
    runs = grid_results()
    for width, depth in runs:
        for wider in ((2 * width, depth), (width, 2 * depth)):
            if wider in runs:
                assert runs[wider].loss < runs[width, depth].loss + 0.02, wider
    losses = [run.loss for run in read_results() if (run.width, run.depth) == AGAIN and run.steps == RECIPE.steps
              and run.peak_lr == RECIPE.peak_lr]
    assert len(losses) == 3 and 0 < max(losses) - min(losses) < 0.1


def test_each_shape_ran_with_both_rates_and_the_better_run_counts():
    tried = {}
    for run in read_results():
        if run.steps == RECIPE.steps and run.seed == RECIPE.seed:
            tried.setdefault((run.width, run.depth), {})[run.peak_lr] = run.loss
    assert all(set(losses) == set(RATES) for losses in tried.values()) and set(tried) == set(GRID)
    assert all(run.loss == min(tried[pair].values()) for pair, run in grid_results().items())


def test_a_short_run_comes_out_as_it_is_stored():
    [stored] = [run for run in read_results() if run.steps == CHECK.steps]
    again = shapes.run_shape(stored.width, stored.depth, CHECK)
    assert again.loss == pytest.approx(stored.loss, abs=0.03), "sums in bfloat16 depend a little on the machine"
    assert dataclasses.replace(again, loss=stored.loss) == stored


def test_the_small_vocabulary_is_the_beginning_of_the_large_one():
    large = load("pocket-draft", device="cpu").tokenizer
    small = shapes.first_tokens(large, 512)
    assert small.n_vocab == 512 and small.special_tokens.keys() == large.special_tokens.keys()
    text = "She opened the box.<|endoftext|>"
    ids = small.encode(text, allowed_special="all")
    assert small.decode(ids) == text and max(ids) < 512 and len(ids) > len(large.encode(text, allowed_special="all"))
    with pytest.raises(ValueError, match="every byte is a token"):
        shapes.first_tokens(large, 200)


def test_a_width_must_split_into_heads():
    with pytest.raises(ValueError, match="multiple of 32"):
        shapes.shape(48, 1)


def test_results_are_written_and_read_again(tmp_path):
    runs = read_results()
    shapes.write_results(runs, tmp_path / "again.csv")
    assert read_results(tmp_path / "again.csv") == runs


def test_every_layer_is_a_step_that_takes_its_time():
    seconds = shapes.token_seconds([(32, 1), (32, 8)], runs=10)
    assert 0 < 2 * seconds[32, 1] < seconds[32, 8]
    with pytest.raises(ValueError, match="runs"):
        shapes.token_seconds([(32, 1)], runs=0)
