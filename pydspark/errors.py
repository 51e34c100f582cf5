"""Exceptions of pydspark and the table that maps the core's status codes to them."""

from __future__ import annotations


class PydsparkError(Exception):
    """Base of every error that pydspark raises on purpose.

    Attributes:
        exit_code: process exit status of the command line tools.
        http_status: status of the server's answer.
        http_type: ``type`` of the server's error object.
    """

    exit_code = 1
    http_status = 500
    http_type = "server_error"


class ArgumentError(PydsparkError, ValueError):
    """A value that cannot be used; the message names it, and what would be right."""

    exit_code = 2
    http_status = 400
    http_type = "invalid_request_error"


class ContextFullError(ArgumentError):
    """The prompt does not fit in the context.

    Attributes:
        n_prompt_tokens: tokens of the prompt.
        n_ctx: tokens that the context holds.
    """

    exit_code = 1
    http_type = "exceed_context_size_error"

    def __init__(self, message: str, n_prompt_tokens: int = 0, n_ctx: int = 0) -> None:
        super().__init__(message)
        self.n_prompt_tokens = n_prompt_tokens
        self.n_ctx = n_ctx


class ModelFileError(PydsparkError, OSError):
    """A model file that is missing, cut short, damaged or of another kind."""


class PairingError(PydsparkError):
    """Target and drafter do not belong together; the message lists every mismatch in a line of its own."""

    _BULLET = "  - "

    @property
    def mismatches(self) -> list[str]:
        """What does not fit."""
        lines = str(self).splitlines()
        return [line.removeprefix(self._BULLET) for line in lines if line.startswith(self._BULLET)]


class UnsupportedError(PydsparkError, NotImplementedError):
    """Something known that pydspark does not do."""

    http_status = 501
    http_type = "not_supported_error"


class OutOfMemoryError(PydsparkError, MemoryError):
    """Not enough memory.

    Attributes:
        wanted: bytes asked for.
        free: bytes that were free.
    """

    http_status = 503
    http_type = "unavailable_error"

    def __init__(self, message: str, wanted: int = 0, free: int = 0) -> None:
        super().__init__(message)
        self.wanted = wanted
        self.free = free


class Cancelled(PydsparkError):
    """The call was stopped by its caller."""

    exit_code = 130


class ClosedError(PydsparkError, RuntimeError):
    """A call on an object that has been closed."""


class InternalError(PydsparkError):
    """A defect of pydspark itself."""

    exit_code = 70


def from_code(code: int, message: str, values: tuple[int, int]) -> PydsparkError:
    """The exception for a status code of the core (``PDS_ERR_*`` in ``pydspark.h``)."""
    if code == 2:
        return ContextFullError(message, *values)
    if code == 7:
        return OutOfMemoryError(message, *values)
    kinds: dict[int, type[PydsparkError]] = {
        1: ArgumentError,
        3: ModelFileError,
        4: ModelFileError,
        5: PairingError,
        6: UnsupportedError,
        8: Cancelled,
    }
    return kinds.get(code, InternalError)(message)
