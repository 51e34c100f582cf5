"""Templated user turns: ``sample(rng)`` gives (category, text). The same text always lands in the same split.

The word lists are in ``prompts.json``.
"""

import hashlib
import json
from pathlib import Path

_LISTS = json.loads((Path(__file__).parent / "prompts.json").read_text())
TOPICS = _LISTS["TOPICS"]
THINGS = _LISTS["THINGS"]
FUNCS = _LISTS["FUNCS"]
LANGS = _LISTS["LANGS"]
NAMES = _LISTS["NAMES"]
CITIES = _LISTS["CITIES"]
OBJECTS = _LISTS["OBJECTS"]
FIELDS = _LISTS["FIELDS"]
WORDS = _LISTS["WORDS"]
SENTS = _LISTS["SENTS"]
FACTS = _LISTS["FACTS"]
LANDS = _LISTS["LANDS"]
SYSTEMS = _LISTS["SYSTEMS"]


def _code(r):
    task, language = r.choice(FUNCS), r.choice(LANGS)
    return r.choice(
        [
            "Write a {l} function that {f}.",
            "Write a {l} program that {f}.",
            "Show me {l} code that {f}.",
            "Can you write {l} code that {f}? Add comments.",
            "Implement a {l} function which {f} and give an example of its use.",
            "Write a {l} class with a method that {f}.",
            "Give me a short {l} snippet that {f}, without explanation.",
            "Write unit tests for a {l} function that {f}.",
            "Explain and write a {l} function that {f}.",
        ]
    ).format(f=task, l=language)


def _json(r):
    o, fs = r.choice(OBJECTS), r.sample(FIELDS, r.randint(2, 6))
    n = r.randint(2, 6)
    return r.choice(
        [
            f"Give me a JSON object describing a {o} with the fields {', '.join(fs)}.",
            f"Create a JSON array of {n} {o} objects with the keys {', '.join(fs)}.",
            f"Write an example JSON file for a {o}.",
            f"Return only JSON: a {o} with {', '.join(fs)}.",
            f"Convert this to JSON: {', '.join(f'{k}: {r.choice(WORDS)}' for k in fs)}.",
            f"Write a YAML file for a {o} with {', '.join(fs)}.",
            f"Make a CSV table of {n} {o} rows with the columns {', '.join(fs)}.",
            f"Write an HTML table with {n} rows about {o}s with the columns {', '.join(fs[:3])}.",
        ]
    )


def _list(r):
    n, t = r.randint(3, 12), r.choice(THINGS)
    return r.choice(
        [
            f"List {n} {t}.",
            f"Give me a numbered list of {n} {t}.",
            f"Name {n} {t} and describe each in one sentence.",
            f"Write a bullet list of {n} {t}.",
            f"What are {n} {t}?",
            f"List {n} facts about {r.choice(TOPICS)}.",
            f"Give me {n} tips about {r.choice(TOPICS)}.",
            f"Make a table of {n} {t}.",
        ]
    )


def _repeat(r):
    w = r.sample(WORDS, r.randint(2, 6))
    s = r.choice(SENTS).format(n=r.choice(NAMES), c=r.choice(CITIES))
    return r.choice(
        [
            f"Repeat the word {w[0]} {r.randint(5, 30)} times.",
            f"Write '{w[0]} {w[1]}' {r.randint(5, 20)} times.",
            f"Repeat this sentence {r.randint(3, 10)} times: {s}",
            f"Count from {r.randint(1, 20)} to {r.randint(30, 80)}.",
            f"Copy this text exactly: {s} {r.choice(SENTS).format(n=r.choice(NAMES), c=r.choice(CITIES))}",
            f"Write the words {', '.join(w)} in a loop, over and over.",
            f"Print the multiplication table of {r.randint(2, 12)}.",
            f"Write the alphabet {r.randint(2, 5)} times.",
            f"Write the numbers from 1 to {r.randint(15, 60)}, one per line.",
        ]
    )


def _qa(r):
    return r.choice(FACTS).format(k=r.choice(LANDS), t=r.choice(TOPICS), u=r.choice(TOPICS))


def _rewrite(r):
    s = " ".join(r.choice(SENTS).format(n=r.choice(NAMES), c=r.choice(CITIES)) for _ in range(r.randint(1, 3)))
    return (
        r.choice(
            [
                "Rewrite this in a formal tone: ",
                "Fix the grammar: ",
                "Summarize in one sentence: ",
                "Make this shorter: ",
                "Rewrite this as a question: ",
                "Paraphrase: ",
                "Turn this into a polite email: ",
                "Make this more exciting: ",
                "Extract the key facts as bullet points: ",
                "Is the sentiment positive or negative? ",
                "Rewrite in the past tense: ",
            ]
        )
        + s
    )


def _math(r):
    a, b, c, n = r.randint(2, 99), r.randint(2, 60), r.randint(2, 12), r.choice(NAMES)
    return r.choice(
        [
            f"What is {a} + {b}?",
            f"What is {a} times {c}?",
            f"Calculate {a} - {b} and explain the steps.",
            f"{n} has {a} apples and gives {c} to a friend. How many are left?",
            f"Solve for x: {c}x + {b} = {a}.",
            f"A shirt costs ${a} and is {c * 5}% off. What is the final price?",
            f"{n} reads {c} pages a day. How long does a book of {a * c} pages take?",
            f"Find the area of a rectangle of {a} by {b}.",
            f"What is the average of {a}, {b} and {c}?",
            f"A train travels {a} km in {c} hours. What is its speed? Think step by step.",
            f"What is {c * 10}% of {a * 10}?",
        ]
    )


def _trans(r):
    s = r.choice(SENTS).format(n=r.choice(NAMES), c=r.choice(CITIES))
    return r.choice(
        [
            f"Translate to {r.choice(['French', 'Spanish', 'German', 'Italian'])}: {s}",
            f"How do you say '{r.choice(WORDS)}' in {r.choice(['French', 'Spanish', 'German', 'Italian'])}?",
        ]
    )


def _story(r):
    t, n, c = r.choice(TOPICS), r.choice(NAMES), r.choice(CITIES)
    return r.choice(
        [
            f"Write a short story about {n} and {t}.",
            f"Write a poem about {t}.",
            f"Tell me a story set in {c} about {t}.",
            f"Write a story about a {r.choice(WORDS)} and a {r.choice(WORDS)}.",
            f"Write a dialogue between {n} and {r.choice(NAMES)} about {t}.",
            f"Write a letter from {n} to a friend in {c}.",
            f"Write a blog post about {t}.",
            f"Write a product review about {t}.",
        ]
    )


def _explain(r):
    t = r.choice(TOPICS)
    return r.choice(
        [
            f"Explain {t} in simple terms.",
            f"Explain {t} to a five year old.",
            f"Write a paragraph about {t}.",
            f"Give me a step-by-step guide to {t}.",
            f"What are the pros and cons of {t}?",
            f"Write an essay about {t}.",
            f"Describe {t} in detail.",
            f"Compare {t} and {r.choice(TOPICS)}.",
            f"How do I get started with {t}?",
        ]
    )


CATS = dict(
    code=(_code, 17),
    json=(_json, 10),
    list=(_list, 7),
    repeat=(_repeat, 8),
    qa=(_qa, 12),
    rewrite=(_rewrite, 7),
    math=(_math, 7),
    translate=(_trans, 3),
    story=(_story, 9),
    explain=(_explain, 7),
    magpie=(lambda r: "", 13),
)


def sample(r, cat=None):
    cat = cat or r.choices(list(CATS), [w for _, w in CATS.values()])[0]
    return cat, CATS[cat][0](r)


def held_out(text):
    return int(hashlib.sha1(text.encode()).hexdigest(), 16) % 20 == 0


def chat(text, system="You are a helpful AI assistant named SmolLM, trained by Hugging Face"):
    s = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    if not text:  # magpie: the model writes the user turn itself
        return s + "<|im_start|>user\n"
    return s + f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
