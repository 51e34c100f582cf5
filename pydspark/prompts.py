"""What a caller asks -> prompt token ids, for one vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from pydspark.errors import ArgumentError
from pydspark.params import check_token_ids
from pydspark.text.chat_template import ChatTemplate
from pydspark.text.messages import normalize_messages
from pydspark.text.protect import Protector, unprotect
from pydspark.text.tokenizer import Tokenizer
from pydspark.text.vocab import Vocab


class Prompts:
    """The text side of a model.

    Args:
        metadata: of the model file.

    Attributes:
        vocab, tokenizer: of the model.

    Raises:
        ModelFileError, UnsupportedError: the tokenizer of the file is damaged or unknown.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.vocab = Vocab.from_metadata(metadata)
        self.tokenizer = Tokenizer(self.vocab)

    def encode(self, prompt: str | bytes | Sequence[int]) -> list[int]:
        """Token ids of a raw prompt, in which control tokens may be spelled, or the ids themselves.

        Raises:
            ArgumentError: an empty prompt and no BOS token to start from, or an id that does not exist.
        """
        if isinstance(prompt, (str, bytes)):
            ids = self.tokenizer.encode(prompt, special=True, add_bos=True)
        else:
            check_token_ids("prompt", prompt, self.vocab.n_vocab)
            ids = [int(token) for token in prompt] or self.tokenizer.encode("", add_bos=True)
        if not ids:
            raise ArgumentError("the prompt is empty, and this model has no BOS token to start from")
        return ids

    def text(self, prompt: str | bytes | Sequence[int]) -> str:
        """A raw prompt as text."""
        if isinstance(prompt, str):
            return prompt
        data = prompt if isinstance(prompt, bytes) else self.tokenizer.decode(prompt, special=True)
        return data.decode("utf-8", "replace")

    def piece(self, token: int) -> bytes:
        """The bytes of one token, those of control tokens too."""
        return self.tokenizer.token_bytes(token, special=True)

    def render(
        self,
        messages: object,
        tools: Sequence[object] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt text for a chat, as the model's template writes it."""
        return unprotect(self._render(messages, tools, variables))

    def encode_chat(
        self,
        messages: object,
        tools: Sequence[object] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Token ids for a chat. Control tokens come from the template alone, never from the text of a message.

        Args:
            messages: as OpenAI's API has them.
            tools: tool descriptions for the template.
            variables: further variables of the template, such as ``enable_thinking``.

        Raises:
            ArgumentError: messages that the template or pydspark cannot take, or a model without a template.
        """
        return self.tokenizer.encode_rendered(self._render(messages, tools, variables))

    def _render(self, messages: object, tools: Sequence[object] | None, variables: Mapping[str, Any] | None) -> str:
        protected = self._protector.protect_messages(normalize_messages(messages))
        protected_tools = None if tools is None else [self._protector.protect_value(tool) for tool in tools]
        return self._template.render(protected, tools=protected_tools, **(variables or {}))

    @cached_property
    def _protector(self) -> Protector:
        return Protector(self.vocab)

    @cached_property
    def _template(self) -> ChatTemplate:
        source = self.vocab.chat_templates.get("default")
        if source is None:
            raise ArgumentError("the model file has no chat template; use a completion with a prompt of your own")
        return ChatTemplate(
            source, bos_token=self._token_text(self.vocab.bos_id), eos_token=self._token_text(self.vocab.eos_id)
        )

    def _token_text(self, token: int | None) -> str:
        return "" if token is None else self.tokenizer.token_text(token)
