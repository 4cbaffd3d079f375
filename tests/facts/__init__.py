"""Numbers in the notebooks' prose that no cell of the same notebook prints, one module per notebook.

`COMPUTED` maps words of the prose, with their number, to the value: `{"1.07 GB": bytes / 1e9}`. The number must be
that value, rounded as it is written. `KNOWN` maps such words to the source of a fact that cannot be computed.
"""
