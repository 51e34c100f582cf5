"""What can be asked of a loaded model besides generating."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from pydspark import results
from pydspark.engine import Engine

_Model = TypeVar("_Model", bound="LoadedModel")


class LoadedModel:
    """Tokens, sizes and counts of a model, under llama-cpp-python's names.

    Attributes:
        engine: what runs it.
    """

    engine: Engine

    def tokenize(self, text: str | bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """Token ids of a text. ``special``: control tokens may be spelled in it."""
        return self.engine.prompts.tokenizer.encode(text, special=special, add_bos=add_bos)

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """Bytes of token ids. ``special``: control tokens too. ``prev_tokens`` makes no difference here."""
        return self.engine.prompts.tokenizer.decode(tokens, special=special)

    @property
    def metadata(self) -> dict[str, str]:
        """Scalar metadata of the file as text."""
        scalars = {key: value for key, value in self.engine.metadata.items() if not isinstance(value, list)}
        return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in scalars.items()}

    @property
    def last_stats(self) -> dict[str, Any]:
        """Counts and times of the last generation that ended; empty before."""
        done = self.engine.last_done
        return {} if done is None else results.stats(done)

    def n_ctx(self) -> int:
        """Tokens that the context holds."""
        return self.engine.n_ctx

    def n_vocab(self) -> int:
        """Tokens of the vocabulary."""
        return self.engine.prompts.vocab.n_vocab

    def n_embd(self) -> int:
        """Size of a hidden state."""
        return self.engine.info.n_embd

    def token_bos(self) -> int:
        """Id of the BOS token, or -1."""
        return _id_or_minus_one(self.engine.prompts.vocab.bos_id)

    def token_eos(self) -> int:
        """Id of the EOS token, or -1."""
        return _id_or_minus_one(self.engine.prompts.vocab.eos_id)

    def token_nl(self) -> int:
        """Id of the newline, or -1."""
        ids = self.engine.prompts.tokenizer.encode("\n")
        return ids[0] if len(ids) == 1 else -1

    def reset(self) -> None:
        """Forgets the last sequence, so that nothing of it is reused."""
        self.engine.reset()

    def close(self) -> None:
        """Stops what is running and frees the memory. Later calls that generate raise ClosedError."""
        self.engine.close()

    def __enter__(self: _Model) -> _Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _id_or_minus_one(token: int | None) -> int:
    return -1 if token is None else token
