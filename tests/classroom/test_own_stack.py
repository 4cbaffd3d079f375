"""The model around the reader's functions: the library's logits from the finished functions, others from others."""

import pytest
import torch
from test_model import make_model

from course_lib import layers
from course_lib.classroom.checks import nb04
from course_lib.classroom.line_count import code_lines
from course_lib.classroom.own_stack import Parts, build, is_llama
from course_lib.kv_cache import DynamicCache
from course_lib.published import PUBLISHED

IDS = torch.randint(0, 37, (2, 9), generator=torch.Generator().manual_seed(1))
FINISHED = Parts(nb04.rms_norm, nb04.swiglu, nb04.decoder_layer)


@torch.no_grad()
def test_the_finished_functions_give_the_librarys_logits_with_and_without_a_cache():
    model = make_model(torch.float64)
    own = build(model.config, model.state_dict(), FINISHED)
    expected = model(IDS)
    torch.testing.assert_close(own(IDS), expected, rtol=0, atol=1e-12)
    kv_cache = DynamicCache()
    pieces = [own(piece, kv_cache=kv_cache) for piece in IDS.split(4, dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", Parts._fields)
@torch.no_grad()
def test_each_of_the_three_functions_is_called(name):
    model, calls = make_model(), []

    def counted(*args):
        calls.append(name)
        return getattr(FINISHED, name)(*args)

    build(model.config, model.state_dict(), FINISHED._replace(**{name: counted}))(IDS)
    depth = model.config.num_hidden_layers
    assert len(calls) == {"rms_norm": 2 * depth + 1, "swiglu": depth, "decoder_layer": depth}[name]


def test_weights_that_are_missing_or_left_over_are_refused():
    model = make_model()
    weights = dict(model.state_dict())
    del weights["layers.1.mlp.up_proj.weight"]
    with pytest.raises(RuntimeError, match=r"layers.1.mlp.up_proj"):
        build(model.config, weights, FINISHED)


def test_another_family_is_refused():
    assert is_llama(PUBLISHED["Llama-3-8B"]) and not is_llama(PUBLISHED["GPT-2"])
    with pytest.raises(ValueError, match="RMSNorm"):
        build(PUBLISHED["GPT-2"], {}, FINISHED)


def test_code_lines_are_neither_blank_nor_remarks_nor_docstrings():
    source = '"""One\n\ntwo."""\n\nimport os\n\n\ndef f():\n    """Text."""\n    # why\n    return (os,\n        1)\n'
    assert code_lines(source) == 4
    assert 40 < code_lines(layers) < 100
