"""Seeded text: ``turn(rng)`` gives (category, question, reasoning, answer), ``conversation(rng)`` a whole chat.

Templated categories (code, json, table, repeat, math, facts, tool) leave little to chance once the question is known;
free ones (story, explain) draw every phrase.  5 % of all questions, chosen by hash, are held out from training.
"""

import hashlib
import json

from words import (
    ADJECTIVES,
    ADVERBS,
    ANIMALS,
    CAPITALS,
    CITIES,
    COLORS,
    FEELINGS,
    FOODS,
    NAMES,
    NOUNS,
    OBJECTS,
    PAST,
    PLACES,
    SYSTEMS,
    TIMES,
    TOPICS,
)  # fmt: skip

TYPES = dict(age="int", year="int", pages="int", price="float", stock="int", area="float", weight="float",
             score="int", id="int", total="float", active="bool", paid="bool", done="bool", grade="int")  # fmt: skip
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def _value(r, field):
    kind = TYPES.get(field, "str")
    if kind == "int":
        return r.randint(1, 99)
    if kind == "float":
        return r.randint(1, 99) + 0.5
    if kind == "bool":
        return r.random() < 0.5
    return r.choice({"city": CITIES, "color": COLORS, "kind": ANIMALS, "title": NOUNS}.get(field, NAMES))


def _record(r):
    name = r.choice(list(OBJECTS))
    fields = r.sample(OBJECTS[name], r.randint(2, 4))
    return name, {f: _value(r, f) for f in fields}


def _code(r):
    name = r.choice(list(OBJECTS))
    fields = r.sample(OBJECTS[name], r.randint(2, 4))
    listed, kind = ", ".join(fields), r.randrange(4)
    if kind == 0:
        ask = r.choice(["Write a Python class {n} with the fields {f}.", "I need a Python class {n} with {f}."])
        args = ", ".join(f"{f}: {TYPES.get(f, 'str')}" for f in fields)
        body = "".join(f"        self.{f} = {f}\n" for f in fields)
        shown = ", ".join(f"{f}={{self.{f}}}" for f in fields)
        code = f"class {name.title()}:\n    def __init__(self, {args}) -> None:\n{body}\n"
        code += f'    def __str__(self) -> str:\n        return f"{name.title()}({shown})"\n'
        lang = "python"
    elif kind == 1:
        ask = r.choice(["Write a SQL table for a {n} with {f}.", "Create a SQL table {n} with the columns {f}."])
        sql = {"int": "INTEGER", "float": "REAL", "bool": "BOOLEAN"}
        rows = ",\n".join(f"    {f} {sql.get(TYPES.get(f), 'TEXT')} NOT NULL" for f in fields)
        code, lang = f"CREATE TABLE {name} (\n{rows}\n);\n", "sql"
    elif kind == 2:
        ask = r.choice(["Write Python getters for {f} of a {n}.", "Write Python functions that read {f} of a {n}."])
        code = "\n\n".join(
            f"def get_{f}({name}: dict) -> {TYPES.get(f, 'str')}:\n"
            f'    """Return the {f} of the {name}."""\n    return {name}["{f}"]\n'
            for f in fields
        )
        lang = "python"
    else:
        ask = r.choice(["Write unit tests for a {n} with {f}.", "Test the fields {f} of a {n} in Python."])
        code = "\n\n".join(
            f"def test_{f}() -> None:\n    {name} = make_{name}()\n    assert {name}.{f} is not None\n" for f in fields
        )
        lang = "python"
    plan = f"The user wants {lang} code for a {name}. The fields are {listed}."
    return ask.format(n=name, f=listed), plan, f"```{lang}\n{code}```"


def _json(r):
    if r.random() < 0.6:
        name, rec = _record(r)
        given = ", ".join(f"{k} {json.dumps(v).strip(chr(34))}" for k, v in rec.items())
        ask = r.choice(["Write this {n} as JSON: {g}.", "JSON for a {n}: {g}.", "Convert to JSON: {n} with {g}."])
        plan = f"The user wants a JSON object. The fields are {', '.join(rec)}."
        return ask.format(n=name, g=given), plan, json.dumps({name: rec}, indent=2)
    name = r.choice(list(OBJECTS))
    fields, n = r.sample(OBJECTS[name], r.randint(2, 3)), r.randint(2, 4)
    rows = [{f: i + 1 if f == "id" else _value(r, f) for f in fields} for i in range(n)]
    ask = r.choice(["Give me {k} {n} records as JSON with {f}.", "Make a JSON array of {k} {n} records with {f}."])
    plan = f"The user wants a JSON array with {n} records. The fields are {', '.join(fields)}."
    return ask.format(k=n, n=name, f=", ".join(fields)), plan, json.dumps(rows, indent=2)


def _table(r):
    name = r.choice(list(OBJECTS))
    fields, n = r.sample(OBJECTS[name], r.randint(2, 3)), r.randint(2, 4)
    rows = [[str(_value(r, f)) for f in fields] for _ in range(n)]
    csv = "\n".join(",".join(row) for row in [fields, *rows])
    lines = ["| " + " | ".join(row) + " |" for row in [fields, ["---"] * len(fields), *rows]]
    if r.random() < 0.7:
        ask = r.choice(["Turn this CSV into a table:\n", "Make a Markdown table:\n", "Format as a table:\n"])
        return ask + csv, f"The table has {len(fields)} columns and {n} rows.", "\n".join(lines)
    ask = r.choice(["Turn this table into CSV:\n", "Give me this table as CSV:\n"])
    return ask + "\n".join(lines), f"The CSV has {len(fields)} columns and {n} rows.", csv


def _sentence(r):
    verb = r.choice(list(PAST))
    rest = PAST[verb].format(
        a=r.choice(ADJECTIVES), n=r.choice(NOUNS), x=r.choice(ANIMALS), p=r.choice(PLACES), c=r.choice(COLORS),
        f=r.choice(FOODS),
    )  # fmt: skip
    who = r.choice([r.choice(NAMES), f"the {r.choice(ADJECTIVES)} {r.choice(ANIMALS)}", "she", "he"])
    if r.random() < 0.3:
        rest += f" and felt {r.choice(FEELINGS)}"
    when, how = f"{r.choice(TIMES)}, " if r.random() < 0.4 else "", f"{r.choice(ADVERBS)} " if r.random() < 0.3 else ""
    s = f"{when}{who} {how}{verb} {rest}."
    return s[0].upper() + s[1:]


def _repeat(r):
    kind, n = r.randrange(5), r.randint(2, 6)
    if kind == 0:
        line = _sentence(r)
        ask = r.choice(["Repeat this {n} times: {s}", "Write this sentence {n} times: {s}"])
        return ask.format(n=n, s=line), f"I have to write the sentence {n} times.", "\n".join([line] * n)
    if kind == 1:
        a = r.randint(1, 40)
        b = a + r.randint(5, 20)
        ask = r.choice(["Count from {a} to {b}.", "List the numbers from {a} to {b}."])
        answer = ", ".join(map(str, range(a, b + 1)))
        return ask.format(a=a, b=b), f"I count from {a} to {b} in steps of one.", answer
    words = r.sample(r.choice([FOODS, ANIMALS, NOUNS, CITIES, NAMES]), r.randint(4, 8))
    given = ", ".join(words)
    if kind == 2:
        ask = r.choice(["Make a numbered list: {g}", "Number these: {g}"])
        answer = "\n".join(f"{i}. {w}" for i, w in enumerate(words, 1))
        return ask.format(g=given), f"The list has {len(words)} items.", answer
    if kind == 3:
        ask = r.choice(["Copy this list: {g}", "Repeat these words: {g}"])
        return ask.format(g=given), f"The list has {len(words)} items.", given
    text = " ".join(_sentence(r) for _ in range(r.randint(2, 3)))
    ask = r.choice(["Copy this text exactly: {t}", "Repeat after me: {t}"])
    return ask.format(t=text), "I only have to copy the text.", text


def _math(r):
    kind = r.randrange(4)
    if kind == 0:
        a, b = r.randint(2, 60), r.randint(2, 39)
        ask = r.choice(["What is {a} + {b}?", "Add {a} and {b}.", "Compute {a} + {b}."])
        return ask.format(a=a, b=b), f"{a} + {b} = {a + b}", f"{a} + {b} = {a + b}. The answer is {a + b}."
    if kind == 1:
        a, n = r.randint(2, 12), r.randint(5, 10)
        ask = r.choice(["Show the multiplication table of {a} up to {n}.", "Multiply {a} by 1 to {n}."])
        answer = "\n".join(f"{a} x {i} = {a * i}" for i in range(1, n + 1))
        return ask.format(a=a, n=n), f"I multiply {a} by the numbers from 1 to {n}.", answer
    if kind == 2:
        a, d, n = r.randint(1, 20), r.choice([2, 3, 5, 10]), r.randint(5, 9)
        seq = [a + d * i for i in range(n + 3)]
        ask = r.choice(["Continue: {s}", "What comes next: {s}"]).format(s=", ".join(map(str, seq[:3])))
        return f"{ask} ({n} numbers)", f"Each number is {d} more than the last.", ", ".join(map(str, seq[3:]))
    xs = [r.randint(1, 9) for _ in range(r.randint(3, 5))]
    steps, total = [], xs[0]
    for x in xs[1:]:
        steps.append(f"{total} + {x} = {total + x}")
        total += x
    ask = r.choice(["Add step by step: {s}", "Sum these step by step: {s}"]).format(s=" + ".join(map(str, xs)))
    return ask, f"There are {len(xs)} numbers to add.", "\n".join([*steps, f"The sum is {total}."])


def _facts(r):
    kind = r.randrange(3)
    if kind == 0:
        country = r.choice(list(CAPITALS))
        ask = r.choice(["What is the capital of {c}?", "Which city is the capital of {c}?", "Name the capital of {c}."])
        answer = f"The capital of {country} is {CAPITALS[country]}."
        return ask.format(c=country), f"{country}: the capital is {CAPITALS[country]}.", answer
    if kind == 1:
        picked = r.sample(list(CAPITALS), r.randint(3, 6))
        ask = r.choice(["List the capitals of {c}.", "What are the capitals of {c}?"])
        answer = "\n".join(f"- The capital of {c} is {CAPITALS[c]}." for c in picked)
        return ask.format(c=", ".join(picked)), f"There are {len(picked)} countries.", answer
    word = r.choice(NOUNS + ANIMALS + FOODS)
    ask = r.choice(["Spell the word {w}.", "How do you spell {w}?"])
    return ask.format(w=word), f"The word {word} has {len(word)} letters.", f"{word}: " + "-".join(word.upper())


def _tool(r):
    city = r.choice(CITIES)
    ask = r.choice(["What is the weather in {c}?", "Will it rain in {c}?", "How warm is it in {c}?"])
    call = f"<tool_call>\n<function=get_weather>\n<parameter=city>\n{city}\n</parameter>\n</function>\n</tool_call>"
    return ask.format(c=city), f"I call get_weather for {city}.", call


def _story(r):
    ask = r.choice(["Write a story about {x}.", "Tell me a story about {x}.", "Write a tale about {x}."])
    hero = r.choice([r.choice(NAMES), f"a {r.choice(ANIMALS)}", f"the {r.choice(NOUNS)}"])
    text = " ".join(_sentence(r) for _ in range(r.randint(4, 9)))
    return ask.format(x=hero), f"I will write a short story about {hero}.", text


def _explain(r):
    topic = r.choice(TOPICS)
    ask = r.choice(["Tell me about {t}.", "Explain {t}.", "What do you think about {t}?", "Describe {t}."])
    parts = []
    for _ in range(r.randint(3, 6)):
        a, b, n, m = r.choice(ADJECTIVES), r.choice(ADJECTIVES), r.choice(NOUNS), r.choice(NOUNS)
        form = r.choice([
            "Many people think of {t} as {a} and {b}.", "A {a} {n} can change how we see {t}.",
            "In {c} you find {t} near {p}.", "{w} says that {t} makes us {f}.", "It is {r} {a} without a {n}.",
            "There is a {n} and a {m} in every story about {t}.", "Some prefer a {b} {x}, others a {a} {n}.",
        ])  # fmt: skip
        parts.append(form.format(
            t=topic, a=a, b=b, n=n, m=m, c=r.choice(CITIES), p=r.choice(PLACES), w=r.choice(NAMES),
            f=r.choice(FEELINGS), r=r.choice(ADVERBS), x=r.choice(ANIMALS),
        ))  # fmt: skip
    text = " ".join(parts)
    return ask.format(t=topic), f"The user asks about {topic}.", text


CATEGORIES = dict(
    code=(_code, 16), json=(_json, 16), table=(_table, 12), repeat=(_repeat, 18), math=(_math, 12), facts=(_facts, 8),
    tool=(_tool, 3), story=(_story, 9), explain=(_explain, 6),
)  # fmt: skip


def held_out(question):
    return int(hashlib.sha1(question.encode()).hexdigest(), 16) % 20 == 0


def turn(r, category=None, held=False):
    """One question with its answer, from the held-out questions or from the others."""
    weights = [w for _, w in CATEGORIES.values()]
    while True:
        name = category or r.choices(list(CATEGORIES), weights)[0]
        question, plan, answer = CATEGORIES[name][0](r)
        if held_out(question) == held:
            return name, question, plan, answer


def system_turn(system="", tools=False):
    if not (system or tools):
        return ""
    listed = f"You may call these tools:\n<tools>\n{json.dumps(TOOL)}\n</tools>\n" if tools else ""
    return f"<|im_start|>system\n{listed}{system}<|im_end|>\n"


def prompt(question, thinking=False, system="", tools=False):
    """What the chat template makes of one question."""
    head = system_turn(system, tools) + f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    return head + ("<think>\n" if thinking else "<think>\n\n</think>\n\n")


def conversation(r, held=False):
    """A chat as [(text, is answer), ...]; long enough for one training sequence."""
    tools = r.random() < 0.12
    parts = [(system_turn(r.choice(SYSTEMS) if r.random() < 0.3 else "", tools), False)]
    for _ in range(24):
        category, question, plan, answer = turn(r, "tool" if tools and r.random() < 0.5 else None, held)
        if category == "tool" and not tools:
            continue
        parts.append((f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n", False))
        u = r.random()
        think = f"<think>\n{plan}\n</think>\n\n" if u < 0.3 else "<think>\n\n</think>\n\n" if u < 0.9 else ""
        parts += [(think, u < 0.3), (answer + "<|im_end|>", True), ("\n", False)]
    return parts
