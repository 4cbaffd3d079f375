"""The entries of GPT-2's vocabulary that one question needs, so that it can be encoded without a download.

Encoding by rank looks at no entry that is not part of the text. `GPT2_EXCERPT` holds every token of GPT-2 that is
part of `What`, ` is`, ` gravity` or `?`, and three more that a popular list of ids names. Copied from the published
`encoder.json` (MIT licence).
"""

from __future__ import annotations

GPT2_EXCERPT = {bytes([byte]): byte - 33 for byte in range(33, 127)} | {b" ": 220} | {
    b"Wh": 1199, b"What": 2061, b"ha": 3099, b"hat": 5183, b"at": 265, b" i": 1312, b"is": 271, b" is": 318,
    b" g": 308, b" gr": 1036, b" gra": 7933, b" grav": 9067, b" gravity": 13522, b"gr": 2164, b"gra": 46784,
    b"gravity": 46453, b"ra": 430, b"rav": 4108, b"ravity": 16995, b"av": 615, b"avi": 15820, b"vi": 8903,
    b"vity": 21319, b"it": 270, b"ity": 414, b"ty": 774,
    b"Cl": 2601, b"thro": 26110, b"ility": 879,
}
