"""The notebooks as HTML pages, to be read, printed or handed out without Jupyter.

    python tests/tools/pages.py --out pages notebooks/*.ipynb

Each page is one file that needs no network: drawings are inside, folded cells are left out, code of 88 columns fits
on A4, and pictures are not split between sheets. A link to a cell of another notebook goes to its page.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from nbconvert import HTMLExporter
from traitlets.config import Config

STYLE = """<style>
.jp-Notebook{max-width:860px;margin:auto}
figure{margin:8px 0}figcaption{font-style:italic;margin:4px 0 12px}
.jp-RenderedHTMLCommon img{max-width:100%;height:auto}
.jp-OutputArea-output pre{white-space:pre-wrap;overflow-wrap:anywhere}
@media screen and (max-width:600px){.jp-OutputArea-output pre{white-space:pre;overflow-x:auto}}
@media print{
.highlight pre,.jp-OutputArea-output pre{font-size:8.5pt!important;white-space:pre-wrap;overflow-wrap:anywhere}
.jp-Notebook{max-width:none;padding:0}.jp-CodeCell,figure,img,blockquote,table{break-inside:avoid}
h1,h2,h3{break-after:avoid}}
</style>"""


def page(path: Path, *, dark: bool = False) -> str:
    """A notebook as the text of one HTML file."""
    config = Config({
        "HTMLExporter": {"embed_images": True, "exclude_input_prompt": True, "exclude_output_prompt": True,
                         "theme": "dark" if dark else "light"},
        "TagRemovePreprocessor": {"enabled": True, "remove_cell_tags": {"hide-cell"}}})
    html, _ = HTMLExporter(config=config).from_filename(str(path))
    html = re.sub(r'href="([\w-]+)\.ipynb(#cell-id=[\w-]+)?"', r'href="\1.html\2"', html)
    return html.replace("</head>", f"{STYLE}</head>", 1)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the folder that they go to")
    parser.add_argument("--dark", action="store_true", help="light text on dark paper")
    parser.add_argument("notebooks", nargs="+", type=Path)
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    for path in options.notebooks:
        (options.out / f"{path.stem}.html").write_text(page(path, dark=options.dark), encoding="utf-8")
        print(options.out / f"{path.stem}.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
