"""What a rendered chat has in common with chats that are likely to come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydspark.params import ChatParams
from pydspark.prompts import Prompts
from pydspark.text.chat_template import CHATML_TEMPLATE, ChatTemplate
from pydspark.text.stable_prefix import Render, common_prefix, stable_boundaries

pytest_plugins = ["real_vocab"]

DATA = Path(__file__).parents[1] / "data"
LLAMA_LIKE = """\
{{- bos_token }}
{%- for message in messages %}
{%- if loop.previtem and loop.previtem.role == message.role %}
{{- raise_exception('Turns have to alternate.') }}
{%- endif %}
{{- '<|start|>' + message.role + '<|end_header|>\n\n' + message.content | trim + '<|eot|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start|>assistant<|end_header|>\n\n' }}
{%- endif %}
"""
TEMPLATES = {
    "chatml": ChatTemplate(CHATML_TEMPLATE),
    "qwen": ChatTemplate((DATA / "qwen3_6.jinja").read_text()),
    "llama": ChatTemplate(LLAMA_LIKE, bos_token="<|bos|>"),
    "smollm": ChatTemplate((DATA / "smollm2_like.jinja").read_text()),
}
Chat = list[dict[str, object]]


def system(text: str) -> dict[str, object]:
    return {"role": "system", "content": text}


def user(text: str) -> dict[str, object]:
    return {"role": "user", "content": text}


def assistant(text: str, reasoning: str = "hm") -> dict[str, object]:
    return {"role": "assistant", "content": text, "reasoning_content": reasoning}


def renderer(name: str, **variables: object) -> Render:
    def render(messages: Sequence[Mapping[str, object]]) -> str:
        return TEMPLATES[name].render(messages, **variables)

    return render


def ends(name: str, messages: Chat, **variables: object) -> list[str]:
    """The last characters of the beginnings that are stable."""
    render = renderer(name, **variables)
    return [render(messages)[:end][-32:] for end in stable_boundaries(render, messages)]


@pytest.mark.parametrize(
    ("name", "question", "answer"),
    [
        ("chatml", "<|im_start|>user\n", "<|im_start|>assistant\n"),
        ("smollm", "<|im_start|>user\n", "<|im_start|>assistant\n"),
        ("llama", "user<|end_header|>\n\n", "assistant<|end_header|>\n\n"),
        ("qwen", "<|im_start|>user\n", "<|im_start|>assistant\n"),  # <think> follows, but not in the next turn
    ],
)
def test_boundaries_stand_before_what_differs(name: str, question: str, answer: str) -> None:
    first = ends(name, [system("S"), user("A")])
    assert [end.endswith(text) for end, text in zip(first, (question, answer), strict=True)] == [True] * 2
    second = ends(name, [system("S"), user("A"), assistant("B"), user("C")])
    texts = (question, question, answer)
    assert [end.endswith(text) for end, text in zip(second, texts, strict=True)] == [True] * 3


def test_reasoning_that_is_kept_moves_the_last_boundary_to_the_end() -> None:
    chat = [user("A")]
    render = renderer("qwen", preserve_thinking=True)
    assert stable_boundaries(render, chat)[-1] == len(render(chat))
    assert stable_boundaries(renderer("qwen"), chat)[-1] == len(render(chat)) - len("<think>\n")


def test_answers_between_calls_are_stable_up_to_the_question() -> None:
    call = {**assistant(""), "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}
    chat = [user("A"), call, {"role": "tool", "content": "1"}]
    assert ends("qwen", chat)[-1].removesuffix("<t").endswith("<|im_start|>assistant\n")  # <think> or <tool_call>


def test_tools_belong_to_the_beginning() -> None:
    first, *_ = ends("qwen", [user("A")], tools=[{"name": "f"}])
    assert first.endswith("</IMPORTANT><|im_end|>\n<|im_start|>user\n"[-32:])


def test_a_chat_to_come_that_is_refused_has_no_boundary() -> None:
    # After an answer only a question can come, and no answer.
    assert len(stable_boundaries(renderer("llama"), [user("A"), assistant("B")])) == 1


TEXTS = st.text("ab ?!\n<", min_size=1, max_size=5)
TURNS = st.lists(st.tuples(TEXTS, TEXTS, TEXTS), max_size=3)


@settings(max_examples=100, deadline=None)
@given(name=st.sampled_from(list(TEMPLATES)), instructions=st.none() | TEXTS, turns=TURNS, question=TEXTS, answer=TEXTS)
def test_chats_that_come_begin_as_promised(
    name: str, instructions: str | None, turns: list[tuple[str, str, str]], question: str, answer: str
) -> None:
    head = [] if instructions is None else [system(instructions)]
    before = [turn for ask, think, reply in turns for turn in (user(ask), assistant(reply, think))]
    chat = [*head, *before, user(question)]
    render = renderer(name)
    prompt = render(chat)
    boundaries = stable_boundaries(render, chat)
    assert boundaries == sorted({*boundaries})
    assert len(boundaries) == (3 if before else 2)
    comings = [[*head, user("other")], [*head, *before, user("other")], [*chat, assistant(answer), user("next")]]
    for coming, least in zip(comings, (boundaries[0], boundaries[-2], boundaries[-1]), strict=True):
        assert common_prefix(prompt, render(coming)) >= least


@settings(max_examples=200, deadline=None)
@given(st.text("ab", max_size=9), st.text("ab", max_size=9))
def test_common_prefix(one: str, other: str) -> None:
    n = common_prefix(one, other)
    assert one[:n] == other[:n]
    assert one[n : n + 1] != other[n : n + 1] or not one[n:]


# ---- in tokens ----


@pytest.fixture(scope="module")
def qwen_prompts(qwen_metadata: dict[str, object]) -> Prompts:
    return Prompts(qwen_metadata)


@pytest.mark.parametrize("thinking", [True, False])
def test_boundaries_in_tokens(qwen_prompts: Prompts, thinking: bool) -> None:
    params = ChatParams(enable_thinking=thinking)
    chat = [system("Be brief."), user("stop <|im_end|>\u00e9"), assistant("No."), user("Why?" * 9)]
    prompt = qwen_prompts.chat(chat, params=params, with_boundaries=True)
    following = {
        prompt.boundaries[0]: [system("Be brief."), user("other")],
        prompt.boundaries[1]: [*chat[:-1], user("other")],
        prompt.boundaries[2]: [*chat, assistant("Because."), user("other")],
    }
    assert len(following) == len(prompt.boundaries) == 3
    for n, messages in following.items():
        tokens = qwen_prompts.chat(messages, params=params).tokens
        assert tokens[:n] == prompt.tokens[:n]
        assert tokens[: n + 4] != prompt.tokens[: n + 4]


def test_the_prompt_itself_may_come_again(qwen_prompts: Prompts) -> None:
    call = {**assistant(""), "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    chat = [user("A"), call, {"role": "tool", "content": "a result of some length, which is not in the next prompt"}]
    prompt = qwen_prompts.chat(chat, with_boundaries=True)
    assert prompt.boundaries[-1] == len(prompt.tokens) - 1
    assert qwen_prompts.chat(chat).boundaries == ()


def test_a_prompt_without_special_tokens_has_the_last_boundary_alone(qwen_metadata: dict[str, object]) -> None:
    plain = Prompts({**qwen_metadata, "tokenizer.chat_template": "{% for m in messages %}{{ m.content }} {% endfor %}"})
    prompt = plain.chat([user("one two")], with_boundaries=True)
    assert prompt.boundaries == (len(prompt.tokens) - 1,)
    assert plain.chat([user("x")], with_boundaries=True).boundaries in ((), (1,))


def test_where_an_answer_begins(qwen_prompts: Prompts, smollm_metadata: dict[str, object]) -> None:
    assert qwen_prompts.chat([user("A")]).in_reasoning
    closed = qwen_prompts.chat([user("A")], params=ChatParams(enable_thinking=False))
    assert (closed.in_reasoning, closed.finds_reasoning) == (False, True)
    smollm = Prompts(smollm_metadata).chat([user("<think>")])
    assert (smollm.in_reasoning, smollm.finds_reasoning) == (False, False)
