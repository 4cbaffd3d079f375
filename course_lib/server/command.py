"""`python -m course_lib serve`: a server that any OpenAI client talks to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from course_lib.checkpoint import load
from course_lib.command_line import Parser, in_range, usage_errors
from course_lib.engine import Engine
from course_lib.generate import LanguageModel
from course_lib.server.app import create_app
from course_lib.server.limits import Limits, check_access, is_loopback
from course_lib.server.listening import Server, listen, url_of

KEY_VARIABLE = "COURSE_API_KEY"


def serve(lm: LanguageModel, *, host: str = "127.0.0.1", port: int = 8000, api_key: str | None = None,
          seconds_to_finish: int = 10, **options: Any) -> None:
    """Answer requests until SIGINT or SIGTERM; then finish the answers that have begun. A second one does not wait.

    Args:
        lm: as `load()` returns it.
        host, port: where to listen; an address beyond this machine needs a key.
        api_key: what clients must send as bearer token; None: nothing.
        seconds_to_finish: answers that take longer after the signal end with an error.
        options: `model`, `limits` and `engine` of `create_app`.

    Raises:
        ValueError: the port is taken, or one of the options is not allowed.
    """
    check_access(host, api_key)
    with listen(host, port) as listener:  # before an engine is made, which takes a while and half of the memory
        app = create_app(lm, api_key=api_key, local=is_loopback(host), **options)
        url = url_of(listener)
        print(f"{app.state.service.model} answers at {url} (OpenAI's clients: base_url={url}/v1); Ctrl+C stops it",
              flush=True)
        Server(app, seconds_to_finish=seconds_to_finish).run(sockets=[listener])


def main(argv: Sequence[str]) -> int:
    """The command."""
    limits = Limits()
    parser = Parser(prog="python -m course_lib serve", description=__doc__)
    parser.add_argument("--model", help="pocket, pocket-draft, a folder or a hub id (default: COURSE_MODEL or pocket)")
    parser.add_argument("--served-model-name", help="the name under which clients know it")
    parser.add_argument("--host", default="127.0.0.1", help="beyond this machine with a key (default: %(default)s)")
    parser.add_argument("--port", type=in_range(0, 65535), default=8000, help="0: a free one (default: %(default)s)")
    parser.add_argument("--api-key", default=os.environ.get(KEY_VARIABLE) or None,
                        help=f"better in the environment's {KEY_VARIABLE}: other users see a command's arguments")
    parser.add_argument("--max-body-bytes", type=in_range(1), default=limits.max_body_bytes,
                        help="of a request, more gets 413 (default: %(default)s)")
    parser.add_argument("--max-prompt-tokens", type=in_range(1), help="of a request (default: what the context holds)")
    parser.add_argument("--max-tokens", type=in_range(1), help="of an answer (default: what the context holds)")
    parser.add_argument("--max-choices", type=in_range(1), default=limits.max_choices,
                        help="of a request: prompts times n (default: %(default)s)")
    parser.add_argument("--max-queue", type=in_range(0), default=limits.max_queue,
                        help="requests that may wait, more get 429 (default: %(default)s)")
    parser.add_argument("--request-seconds", type=in_range(0.001, kind=float), default=limits.request_seconds,
                        help="that an answer may take (default: %(default)s)")
    parser.add_argument("--max-num-seqs", type=in_range(1), default=32,
                        help="requests that run at a time (default: %(default)s)")
    parser.add_argument("--max-num-batched-tokens", type=in_range(1), default=512,
                        help="in a pass; longer prompts are read in pieces (default: %(default)s)")
    parser.add_argument("--block-size", type=in_range(1), default=16, help="tokens of a page (default: %(default)s)")
    parser.add_argument("--num-blocks", type=in_range(1),
                        help="pages (default: for as many full contexts as requests run, in half a gigabyte at most)")
    parser.add_argument("--no-enable-prefix-caching", action="store_true", help="read every prompt from its beginning")
    options = parser.parse_args(argv)
    with usage_errors():
        check_access(options.host, options.api_key)
        limits = Limits(options.max_body_bytes, options.max_prompt_tokens, options.max_tokens, options.max_choices,
                        options.max_queue, options.request_seconds)
        lm = load(options.model)
        engine = partial(serving_engine, lm, max_num_seqs=options.max_num_seqs, block_size=options.block_size,
                         max_num_batched_tokens=options.max_num_batched_tokens, num_blocks=options.num_blocks,
                         enable_prefix_caching=not options.no_enable_prefix_caching)
        serve(lm, host=options.host, port=options.port, api_key=options.api_key, limits=limits,
              model=options.served_model_name, engine=engine)
    return 0


def serving_engine(lm: LanguageModel, **options: Any) -> Engine:
    """An engine that holds the memory of all its pages from the start: a server that grows later may be killed."""
    engine = Engine(lm, **options)
    engine.cache.claim_memory()
    return engine
