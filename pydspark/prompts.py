"""What a caller asks -> prompt token ids, for one vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydspark.errors import ArgumentError
from pydspark.params import ChatParams, check_token_ids
from pydspark.structured import chosen_tools
from pydspark.text.chat_parser import END_THINK, THINK, ChatParser
from pydspark.text.chat_template import ChatTemplate
from pydspark.text.grammar import Grammar, GrammarTokenizer
from pydspark.text.grammar_mask import GrammarMask
from pydspark.text.messages import normalize_messages
from pydspark.text.protect import Protector, unprotect
from pydspark.text.stable_prefix import stable_boundaries
from pydspark.text.tokenizer import Tokenizer
from pydspark.text.tool_arguments import Tools
from pydspark.text.tool_grammar import tool_grammar
from pydspark.text.vocab import Vocab

_NEAR_END = 8  # tokens that take hardly longer to evaluate than the last one alone


@dataclass(frozen=True)
class ChatPrompt:
    """A chat, ready to be answered. With tokens alone, a prompt whose answer is content and nothing else.

    Attributes:
        tokens: ids of the prompt.
        boundaries: numbers of tokens, ascending, after which chats that are likely to come may go on differently.
        in_reasoning: the prompt ends inside of reasoning.
        finds_reasoning: the model's template knows reasoning, so an answer may begin with it.
        keeps_reasoning: the caller wants it in the content.
        tools: what the model was told it can call, or None.
        mask: follows one answer and says what may come next; None = anything.
    """

    tokens: list[int]
    boundaries: tuple[int, ...] = ()
    in_reasoning: bool = False
    finds_reasoning: bool = False
    keeps_reasoning: bool = False
    tools: Tools | None = None
    mask: GrammarMask | None = None

    def parser(self) -> ChatParser:
        """A fresh parser of the answer."""
        return ChatParser(
            in_reasoning=self.in_reasoning,
            finds_reasoning=self.finds_reasoning,
            keeps_reasoning=self.keeps_reasoning,
            tools=self.tools,
        )


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
        chat = self._protector.protect_messages(normalize_messages(messages))
        return unprotect(self._render(chat, self._protected(tools), variables or {}))

    def chat(
        self,
        messages: object,
        tools: Sequence[object] | None = None,
        params: ChatParams | None = None,
        with_boundaries: bool = False,
        grammar: Grammar | None = None,
        tool_choice: object = None,
        parallel_tool_calls: bool = True,
    ) -> ChatPrompt:
        """The prompt for a chat. Control tokens come from the template alone, never from the text of a message.

        Args:
            messages: as OpenAI's API has them.
            tools: tool descriptions for the template; what is called of them is looked for in the answer.
            params: variables of the template, and where reasoning goes; None = defaults.
            with_boundaries: find them. Takes rendering the chat a few times more.
            grammar: of the answer, behind its reasoning.
            tool_choice: which tools must be called; see ``structured.chosen_tools``.
            parallel_tool_calls: an answer that must call tools may hold more than one call.

        Raises:
            ArgumentError: messages, tools or a grammar that the template or pydspark cannot take, or a model without a
                template.
        """
        params = params or ChatParams()
        chat = self._protector.protect_messages(normalize_messages(messages))
        callable_tools = Tools(tools) if tools else None
        protected_tools, variables = self._protected(tools), params.variables()

        def render(messages: Sequence[Mapping[str, object]]) -> str:
            return self._render(messages, protected_tools, variables)

        grammar = self._chat_grammar(grammar, callable_tools, tool_choice, parallel_tool_calls)
        rendered = render(chat)
        in_reasoning, finds_reasoning = rendered.rstrip().endswith(THINK), END_THINK in self._template.source
        ends = stable_boundaries(render, chat) if with_boundaries else []
        ids, counts = self.tokenizer.encode_rendered_at(rendered, ends)
        return ChatPrompt(
            tokens=ids,
            boundaries=_boundaries(counts, len(ids)) if with_boundaries else (),
            in_reasoning=in_reasoning,
            finds_reasoning=finds_reasoning,
            keeps_reasoning=params.reasoning_format == "none",
            tools=callable_tools,
            mask=self.mask(grammar, in_reasoning, finds_reasoning),
        )

    def _chat_grammar(
        self, grammar: Grammar | None, tools: Tools | None, tool_choice: object, in_parallel: bool
    ) -> Grammar | None:
        names = chosen_tools(tools, tool_choice)
        if grammar is not None and tools is not None:
            raise ArgumentError(
                "the answer cannot have a form of its own and call tools; leave out the grammar or response_format, or "
                "set tool_choice to none"
            )
        if tools is None or names is None:
            return grammar
        return tool_grammar(tools, names, self._template.source, in_parallel)

    def mask(
        self, grammar: Grammar | None, in_reasoning: bool = False, finds_reasoning: bool = False
    ) -> GrammarMask | None:
        """What follows one answer by a grammar.

        Args:
            grammar: of the answer, or None.
            in_reasoning: the answer begins inside of reasoning, and the grammar behind it.
            finds_reasoning: the answer may open reasoning.

        Raises:
            ArgumentError: the grammar is wrong, or asks for something that cannot be kept.
        """
        if grammar is None:
            return None
        openers = self.tokenizer.encode(THINK) if finds_reasoning else []
        return GrammarMask(
            self._grammar_tokenizer.matcher(grammar),
            self.vocab.n_vocab,
            self.vocab.eog_ids,
            self.piece,
            END_THINK.encode(),
            in_reasoning,
            openers[0] if len(openers) == 1 else None,
        )

    @cached_property
    def _grammar_tokenizer(self) -> GrammarTokenizer:
        return GrammarTokenizer(self.tokenizer)

    def _protected(self, tools: Sequence[object] | None) -> list[object] | None:
        return None if tools is None else [self._protector.protect_value(tool) for tool in tools]

    def _render(
        self, messages: Sequence[Mapping[str, object]], tools: list[object] | None, variables: Mapping[str, Any]
    ) -> str:
        return self._template.render(messages, tools=tools, **variables)

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


def _boundaries(counts: Sequence[int], n: int) -> tuple[int, ...]:
    """Boundaries of a prompt of ``n`` tokens, one of them near its end: the same prompt may come again."""
    found = {count for count in counts if 0 < count < n}
    if n > 1 and (not found or max(found) < n - _NEAR_END):
        found.add(n - 1)
    return tuple(sorted(found))
