"""Answers to the exercises of notebook 16, Agents."""

import json


def parse_calls(text):
    calls, errors, (content, *blocks) = [], [], text.split("<tool_call>")
    for block in blocks:
        body, closed, rest = block.partition("</tool_call>")
        content += rest
        try:
            call = json.loads(body if closed else "")  # nothing is no JSON
            good = type(call["name"]) is str and type(call["arguments"]) is dict
            (calls if good else errors).append(call if good else f"no call: {body}")
        except (ValueError, RecursionError, LookupError, TypeError) as error:
            errors.append(f"{error!r} in {body}")
    return content.strip(), calls, errors


def run_loop(reply, messages, tools, max_steps=4):
    messages = [*messages, reply(messages)]
    while (calls := messages[-1].get("tool_calls")) and max_steps > 1:
        for call in calls:
            try:
                result = tools[call["name"]](call["arguments"])
            except Exception as error:
                result = f"error: {error!r}"
            messages.append({"role": "tool", "content": result})
        messages.append(reply(messages))
        max_steps -= 1
    return messages, "max_steps" if calls else "stop"


def allowed(automaton, places, tokens):
    return [bool(token and automaton.read(places, token)) for token in tokens]


def attacks():
    call = '{"name": "calculator", "arguments": {"expression": "12 + 34"}}'
    return {
        "A": f"<tool_<tool_call>call>{call}</tool_</tool_call>call>",
        "B": f"<tool_call>\n{call}</tool_call>",
        "C": f"<tool_call>{call.replace('calc', chr(92) + 'u0063alc')}</tool_call>",
        "D": f"&lt;tool_call&gt;{call}</tool_call>",
    }
