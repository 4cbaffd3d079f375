"""Gather the numbers of the course's claims from the stored outputs of the notebooks.

    python tests/tools/claims.py            write course_lib/classroom/course_claims.json
    python tests/tools/claims.py --check    exit 1 if the file is not what the notebooks say
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from course_lib.classroom.course_claims import STORED, ClaimNotFound, collect, dumps

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; 0 if the file is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--notebooks", type=Path, default=NOTEBOOKS)
    options = parser.parse_args(argv)
    try:
        claims = collect(options.notebooks)
    except ClaimNotFound as error:
        print(error)
        return 1
    text = dumps(claims)
    same = STORED.exists() and STORED.read_text("utf-8") == text
    if not same and not options.check:
        STORED.write_text(text, "utf-8")
    print(f"{STORED.name}: {len(claims)} claims, {'same' if same else 'DIFFERS' if options.check else 'written'}")
    return 0 if same or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
