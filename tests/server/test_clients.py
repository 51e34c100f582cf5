"""Clients that people use hold a conversation with the demo model and its drafter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import anthropic
import openai
import pydantic
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_openai import ChatOpenAI
from serving import Serving, load_pair, wait_until

from pydspark.demo import demo_draft_path, demo_model_path

KEY = "a-key"
SKY = "Why is the sky blue?"
ASKED = [{"role": "user", "content": SKY}]
TOOL = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}


@pytest.fixture(scope="module")
def demo() -> Iterator[Serving]:
    load = load_pair(demo_model_path(), demo_draft_path(), n_ctx=1024)
    # Prompts are evaluated whole. In other parts, numbers could differ in their last places, and texts with them.
    settings = {"cache_prompt": False, "api_key": (KEY,)}
    with Serving(load, name="smollm2", sampling={"temperature": 0.0}, **settings) as serving:
        yield serving


def said(demo: Serving, messages: list[dict[str, str]], n: int = 24) -> str:
    """What the Python API says to this."""
    demo.service.model.reset()
    answer = demo.service.model.create_chat_completion(messages, max_tokens=n, temperature=0)
    return str(answer["choices"][0]["message"]["content"])


@pytest.fixture
def client(demo: Serving) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{demo.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
def claude(demo: Serving) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=demo.url, api_key=KEY, max_retries=0) as client:
        yield client


def test_openai_conversation(demo: Serving, client: openai.OpenAI) -> None:
    messages = [*ASKED]
    first = client.chat.completions.create(model="any", messages=messages, max_tokens=24, logprobs=True, top_logprobs=2)
    answer = first.choices[0].message.content
    assert "sky" in answer and answer == said(demo, messages)
    assert "".join(item.token for item in first.choices[0].logprobs.content) == answer
    assert first.usage.completion_tokens == len(first.choices[0].logprobs.content)
    messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And at night?"}]
    stream = client.chat.completions.create(
        model="any", messages=messages, max_tokens=24, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert streamed == said(demo, messages)
    assert chunks[-1].usage.total_tokens > 24
    assert chunks[-1].timings["draft_n"] > 0


def test_openai_stop_and_seed(client: openai.OpenAI) -> None:
    ask = {"model": "any", "messages": [{"role": "user", "content": "Count from one to ten."}], "max_tokens": 20}
    cut = client.chat.completions.create(**ask, stop=["."])
    assert "." not in cut.choices[0].message.content and cut.choices[0].finish_reason in ("stop", "length")
    texts = {
        client.chat.completions.create(**ask, seed=3, temperature=1.0).choices[0].message.content for _ in range(2)
    }
    assert len(texts) == 1


def test_openai_tools_and_formats(client: openai.OpenAI) -> None:
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": TOOL}}]
    ask = {"model": "any", "messages": ASKED, "max_tokens": 12}
    answer = client.chat.completions.create(**ask, tools=tools, response_format={"type": "text"})
    assert answer.choices[0].message.content
    with pytest.raises(openai.BadRequestError, match="tool_choice demands a call, but the model's"):
        client.chat.completions.create(**ask, tools=tools, tool_choice="required")


class Person(pydantic.BaseModel):
    """What answers are made of."""

    name: Literal["Ann", "Bert"]
    age: int
    hobbies: list[Literal["chess", "tea"]] = pydantic.Field(max_length=2)


def test_openai_structured_output(client: openai.OpenAI) -> None:
    ask = {"model": "any", "messages": [{"role": "user", "content": "Who is Ann?"}], "max_tokens": 90}
    answer = client.chat.completions.parse(**ask, response_format=Person)
    assert isinstance(answer.choices[0].message.parsed, Person)
    with client.chat.completions.stream(**ask, response_format=Person) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == answer.choices[0].message.parsed
    for speculative in (False, {"schedule": "fixed", "n_max": 8}):
        same = client.chat.completions.parse(**ask, response_format=Person, extra_body={"speculative": speculative})
        assert same.choices[0].message.content == answer.choices[0].message.content
    parsed = client.responses.parse(model="any", input="Who is Ann?", text_format=Person, max_output_tokens=90)
    assert parsed.output_parsed == answer.choices[0].message.parsed
    with pytest.raises(openai.BadRequestError, match="response_format cannot be kept"):
        schema = {"name": "x", "schema": {"type": "object", "propertyNames": {"pattern": "^a"}, "not": {}}}
        client.chat.completions.create(**ask, response_format={"type": "json_schema", "json_schema": schema})


def test_openai_errors(demo: Serving, client: openai.OpenAI) -> None:
    ask = {"model": "any", "messages": [{"role": "user", "content": "hello " * 2000}]}
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**ask, stream=stream)
        assert caught.value.body["type"] == "exceed_context_size_error"
    with openai.OpenAI(base_url=f"{demo.url}/v1", api_key="wrong", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError):
            stranger.models.list()


def test_openai_cancelled_stream(demo: Serving, client: openai.OpenAI) -> None:
    ask = {"model": "any", "messages": [{"role": "user", "content": "Tell a long story."}], "max_tokens": 900}
    with client.chat.completions.create(**ask, stream=True) as stream:
        next(iter(stream))
    wait_until(lambda: demo.service.worker.running is None)
    assert client.models.list().data[0].id == "smollm2"


def test_openai_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="any", prompt="One, two, three,", max_tokens=8, logprobs=1)
    choice = answer.choices[0]
    assert "four" in choice.text and choice.logprobs is not None and choice.logprobs.tokens is not None
    assert "".join(choice.logprobs.tokens) == choice.text


def test_openai_responses(demo: Serving, client: openai.OpenAI) -> None:
    answer = client.responses.create(model="any", input=SKY, max_output_tokens=24)
    assert answer.output_text == said(demo, ASKED) and answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    with client.responses.stream(model="any", input=SKY, max_output_tokens=24) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
    assert "".join(deltas) == answer.output_text


def test_anthropic_conversation(demo: Serving, claude: anthropic.Anthropic) -> None:
    messages = [*ASKED]
    answer = claude.messages.create(model="any", max_tokens=24, system="Be brief.", messages=messages)
    assert answer.content[0].type == "text"
    assert answer.content[0].text == said(demo, [{"role": "system", "content": "Be brief."}, *messages])
    assert answer.stop_reason in ("end_turn", "max_tokens") and answer.usage.output_tokens > 0
    messages += [{"role": "assistant", "content": answer.content[0].text}, {"role": "user", "content": "And at night?"}]
    with claude.messages.stream(model="any", max_tokens=24, messages=messages) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert final.content[0].type == "text" and final.content[0].text == text == said(demo, messages)
    counted = claude.messages.count_tokens(model="any", messages=messages)
    assert counted.input_tokens == final.usage.input_tokens + (final.usage.cache_read_input_tokens or 0)


def test_anthropic_errors(demo: Serving, claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match="tool_choice demands a call"):
        claude.messages.create(
            model="any", max_tokens=5, messages=[{"role": "user", "content": "x"}], tool_choice={"type": "any"}
        )
    with anthropic.Anthropic(base_url=demo.url, api_key="wrong", max_retries=0) as stranger:
        with pytest.raises(anthropic.AuthenticationError):
            stranger.messages.create(model="any", max_tokens=5, messages=[{"role": "user", "content": "x"}])


def test_langchain_conversation(demo: Serving) -> None:
    chat = ChatOpenAI(base_url=f"{demo.url}/v1", api_key=KEY, model="any", max_tokens=24, temperature=0)
    first = str(chat.invoke([HumanMessage(SKY)]).content)
    assert first == said(demo, ASKED)
    more = [HumanMessage(SKY), AIMessage(first), HumanMessage("And at night?")]
    messages = [*ASKED, {"role": "assistant", "content": first}, {"role": "user", "content": "And at night?"}]
    assert "".join(str(chunk.content) for chunk in chat.stream(more)) == said(demo, messages)
    chat.root_client.close()
