"""Answers to the exercises of notebook 13, Detokenize and stream."""


def decode_increment(held, new):
    data = held + new
    for n in (3, 2, 1):
        try:
            data[-n:].decode()
        except UnicodeDecodeError as error:
            if error.start == 0 and error.reason == "unexpected end of data":
                return data[:-n].decode(errors="replace"), data[-n:]
    return data.decode(errors="replace"), b""


def release(held, new, stops):
    text = held + new
    found = [(text.find(s) + len(s), text.find(s), s) for s in stops if s in text]
    if found:
        _, start, stop = min(found)
        return text[:start], "", stop
    for start in range(len(text)):
        if any(s.startswith(text[start:]) for s in stops):
            return text[:start], text[start:], None
    return text, "", None


def read_events(held, new):
    *events, rest = (held + new).split(b"\n\n")
    lines = [line for event in events for line in event.decode().split("\n")]
    return [line[6:] for line in lines if line.startswith("data: ")], rest


def diagnosis():
    return {"A": "holds the sign", "B": "shows the start",
            "C": "animation", "D": "no flush"}
