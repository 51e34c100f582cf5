"""``pydspark run``: one prompt, or a chat."""

from __future__ import annotations

import json
import sys

from pydspark import chat_results, results
from pydspark.chat import chat_events
from pydspark.cli.args import Arguments
from pydspark.cli.chat import Chat, chat_messages
from pydspark.cli.model import open_model
from pydspark.cli.prompt import read_prompt, read_system_prompt
from pydspark.cli.reply import Generation, show_reply
from pydspark.cli.terminal import Output, Terminal
from pydspark.errors import ArgumentError, Cancelled
from pydspark.params import ChatParams, SamplingParams
from pydspark.prompts import ChatPrompt

_NEEDS_TEMPLATE = {
    "conversation": "-cnv",
    "system_prompt": "-sys",
    "chat_template_kwargs": "--chat-template-kwargs",
    "enable_thinking": "--reasoning",
    "reasoning_format": "--reasoning-format",
}


def run(arguments: Arguments, terminal: Terminal, output: Output) -> int:
    """Runs the command and returns the exit status.

    Raises:
        ArgumentError: arguments that do not go together.
        PydsparkError: the model cannot be loaded, or generating fails.
    """
    _check_together(arguments)
    chat_params = ChatParams(**arguments.of(ChatParams))
    prompt = read_prompt(arguments, sys.stdin)
    system = read_system_prompt(arguments)
    with open_model(arguments, terminal) as llama:
        engine = llama.engine
        params = engine.sampling(arguments.of(SamplingParams))
        is_chat = not arguments.get("raw") and "default" in engine.prompts.vocab.chat_templates
        if not is_chat and (system is not None or arguments.get("conversation")):
            raise ArgumentError("this model has no chat template, which -sys and -cnv need; leave them out")
        if prompt is None or arguments.get("conversation"):
            return Chat(engine, params, terminal, output, system, chat_params).run(sys.stdin, prompt)
        if is_chat:
            ready = engine.chat_prompt(chat_messages(system, prompt), params=chat_params)
        else:
            ready = ChatPrompt(engine.prompts.encode(prompt))
        if arguments.get("json"):
            generation = Generation(engine, ready, params, terminal, True)
            return _print_json(generation, ready if is_chat else None, llama.model_path, output)
        reply = show_reply(engine, ready, params, terminal, output)
        return 0 if reply.done is not None else Cancelled.exit_code


def _check_together(arguments: Arguments) -> None:
    for dest, flag in _NEEDS_TEMPLATE.items():
        if arguments.get("raw") and dest in arguments.given:
            raise ArgumentError(f"{flag} needs the chat template, which --raw leaves out; give one of them")
    if arguments.get("conversation") and arguments.get("json"):
        raise ArgumentError("--json prints one answer; it does not go with -cnv")
    if len(arguments.positionals) > 1:
        raise ArgumentError(f"one prompt at a time, but {len(arguments.positionals)} were given; put it in quotes")


def _print_json(generation: Generation, chat: ChatPrompt | None, model: str, output: Output) -> int:
    events = list(generation.events())
    if generation.interrupted:
        generation.say_interrupted()
        return Cancelled.exit_code
    shape = results.new_shape("chatcmpl" if chat else "cmpl", model, generation.engine.prompts.piece)
    if chat:
        result = chat_results.chat(chat_events(events, chat.parser()), shape)
    else:
        result = results.completion(events, shape)
    output.write(json.dumps(result, ensure_ascii=False, indent=2))
    output.end_line()
    return 0
