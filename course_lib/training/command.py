"""Train the shipped models anew, or a small model on your own text.

    python -m course_lib train            # the shipped ones, resuming what was interrupted
    python -m course_lib train --show     # how the shipped weights were made, and their loss curve
    python -m course_lib train --text FILE... --name mine
    python -m course_lib evaluate --card  # after the shipped ones: write what the model knows into its card
"""

from __future__ import annotations

import argparse
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from course_lib.checkpoint import MODELS, SHIPPED
from course_lib.command_line import Parser, UsageError, in_range, usage_errors
from course_lib.device import device as choose_device
from course_lib.training.own_model import OwnRun, farewell, train_own
from course_lib.training.own_text import VOCAB_SIZES, read_texts
from course_lib.training.rebuild import make_model, run_files, tuned
from course_lib.training.resume import start_anew
from course_lib.training.train import RECIPES, Recipe, train_tokenizer
from course_lib.training.training_log import show_training

MOST_STEPS, MOST_MINUTES = 1_000_000, 10_000
OWN_MODELS = Path("my_models")
FOR_SHIPPED, FOR_OWN = ("only", "models", "no_compile", "note", "show"), ("name", "out", "minutes", "vocab_size")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The options, those that belong to the other kind of training refused."""
    parser = Parser(prog="python -m course_lib train", description=__doc__.split("\n")[0])
    steps = in_range(1, MOST_STEPS)
    parser.add_argument("--steps", type=steps, help="optimizer steps (default: as the recipe or the text says)")
    parser.add_argument("--work", type=Path, default=Path("build/train"), help="corpus, logs, resume files")
    parser.add_argument("--restart", action="store_true", help="start anew, although a run was interrupted")
    shipped = parser.add_argument_group("the shipped models")
    shipped.add_argument("--models", type=Path, default=MODELS, help="where the checkpoints go")
    shipped.add_argument("--only", choices=RECIPES, help="one model instead of both")
    shipped.add_argument("--no-compile", action="store_true", help="run without torch.compile")
    shipped.add_argument("--note", default="", help="what the model card should say about this run")
    shipped.add_argument("--show", action="store_true", help="train nothing: say how the shipped models were trained")
    own = parser.add_argument_group("a model of your own text")
    own.add_argument("--text", type=Path, nargs="+", metavar="FILE", help="plain text in UTF-8")
    own.add_argument("--name", help="of the model (default: mine)")
    own.add_argument("--out", type=Path, metavar="FOLDER", help=f"where it goes (default: {OWN_MODELS}/NAME)")
    own.add_argument("--minutes", type=in_range(0.1, MOST_MINUTES, float),
                     help="roughly how long to train, instead of --steps")
    own.add_argument("--vocab-size", type=in_range(*VOCAB_SIZES), help="tokens (default: by the size of the text)")
    args = parser.parse_args(argv)
    for name in FOR_SHIPPED if args.text else FOR_OWN:
        if getattr(args, name) != parser.get_default(name):
            parser.error(f"--{name.replace('_', '-')} does not go {'with' if args.text else 'without'} --text")
    if args.steps and args.minutes:
        parser.error("--steps and --minutes exclude each other")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Show, train on the reader's text, or rebuild the tokenizer and both models."""
    args = parse(argv)
    if args.show:
        with usage_errors():
            print("\n".join(show_training(args.models / name) for name in ([args.only] if args.only else RECIPES)))
    elif args.text:
        own(args)
    else:
        shipped(args)
    return 0


def shipped(args: argparse.Namespace) -> None:
    """Rebuild the tokenizer and the shipped models."""
    names = [args.only] if args.only else list(RECIPES)
    with usage_errors():
        device = choose_device()
    args.work.mkdir(parents=True, exist_ok=True)
    if args.restart:
        start_anew(*(file for name in names for one in (name, tuned(name)) for file in run_files(args.work, one)))
    tokenizer = train_tokenizer()
    for name in names:
        recipe = shortened(RECIPES[name], args.steps) if args.steps else RECIPES[name]
        make_model(name, tokenizer, recipe, args.work, args.models / name,
                   device=device, compiled=not args.no_compile, note=args.note)


def shortened(recipe: Recipe, steps: int) -> Recipe:
    """The recipe with so many steps, and no more than that of tuning."""
    tuning = recipe.tuning and replace(recipe.tuning, steps=min(recipe.tuning.steps, steps))
    return recipe._replace(config=replace(recipe.config, steps=steps), tuning=tuning)


def own(args: argparse.Namespace) -> None:
    """Train on the reader's text; the state of the run is removed when its model is written."""
    started = time.perf_counter()
    name = "mine" if args.name is None else args.name
    folder, work = args.out or OWN_MODELS / name, args.work / f"own-{name}"
    check_place(name, folder, replaced=args.restart or run_files(work, name)[0].exists())
    with usage_errors():
        device = choose_device()
        run = OwnRun(name, tuple(read_texts(args.text)), folder, work, steps=args.steps, minutes=args.minutes,
                     vocab_size=args.vocab_size)
    if args.restart:
        shutil.rmtree(work, ignore_errors=True)
    loss = train_own(run, device)
    shutil.rmtree(work)
    print(farewell(run, loss, time.perf_counter() - started))


def check_place(name: str, folder: Path, *, replaced: bool) -> None:
    """Whether a model of this name may be written there.

    Raises:
        UsageError: it would be mixed up with a shipped one, or overwrite something.
    """
    if not re.fullmatch(r"\w[\w.-]*", name) or name in SHIPPED:
        raise UsageError(f"--name {name!r} is not allowed: must start with a letter, digit or _ and go on "
                         f"with these, dots or dashes, and be none of {', '.join(SHIPPED)}")
    if folder.resolve().is_relative_to(MODELS.parent.resolve()):
        raise UsageError(f"{folder} is inside the package: choose another folder with --out")
    if not folder.exists():
        return
    if not folder.is_dir() or (any(folder.iterdir()) and not (folder / "training_log.jsonl").is_file()):
        raise UsageError(f"{folder} exists and holds something else: choose another folder with --out")
    if any(folder.iterdir()) and not replaced:
        raise UsageError(f"{folder} holds a model already: choose another --name, or replace it with --restart")
