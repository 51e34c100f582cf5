"""Renders the chats of ``data/qwen3_6_prompts.json`` again, with the template engine of the package transformers.

pip install transformers==5.24.0 && python tests/golden_prompts.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
PROMPTS = DATA / "qwen3_6_prompts.json"


def template_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages as clients send them, as the template wants them."""
    return [_template_message(message) for message in messages]


def _template_message(message: dict[str, Any]) -> dict[str, Any]:
    message = dict(message)
    if message["role"] == "developer":
        message["role"] = "system"
    if isinstance(message["content"], list):
        message["content"] = "".join(part["text"] for part in message["content"])
    if "tool_calls" in message:
        functions = [call["function"] for call in message["tool_calls"]]
        message["tool_calls"] = [
            {"function": {"name": function["name"], "arguments": json.loads(function["arguments"])}}
            for function in functions
        ]
    return message


def main() -> None:
    """Rewrites the field ``rendered`` of every chat."""
    from transformers.utils.chat_template_utils import render_jinja_template

    template = (DATA / "qwen3_6.jinja").read_text()
    chats = json.loads(PROMPTS.read_text())
    for chat in chats:
        rendered, _ = render_jinja_template(
            [template_messages(chat["messages"])],
            tools=chat.get("tools"),
            chat_template=template,
            add_generation_prompt=True,
            **chat.get("variables", {}),
        )
        chat["rendered"] = rendered[0]
    PROMPTS.write_text(json.dumps(chats, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
