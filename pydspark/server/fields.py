"""The fields of a request, each checked when it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydspark.errors import ArgumentError
from pydspark.params import Option, checked
from pydspark.server.errors import HttpError, bad_field


class Fields:
    """What a client sent, without its nulls. Every reading method returns None for a field that is absent.

    Args:
        values: by name.
        where: what the names in messages begin with, such as ``"input[0]."``.
    """

    def __init__(self, values: Mapping[str, Any], where: str = "") -> None:
        self._values = {name: value for name, value in values.items() if value is not None}
        self._where = where

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def get(self, name: str, default: Any = None) -> Any:
        """A value as it was sent."""
        return self._values.get(name, default)

    def error(self, name: str, wanted: str) -> HttpError:
        """The error for a field that is not what is wanted."""
        if name not in self._values:
            return HttpError(400, f"{self._where}{name} is missing; it must be {wanted}", f"{self._where}{name}")
        return bad_field(f"{self._where}{name}", wanted, self._values[name])

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise self.error(name, "true or false")
        return value

    def text(self, name: str) -> str | None:
        """A text."""
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise self.error(name, "a text")
        return value

    def needed_text(self, name: str) -> str:
        """A text that has to be there."""
        value = self.text(name)
        if value is None:
            raise self.error(name, "a text")
        return value

    def array(self, name: str) -> list[Any] | None:
        """A list."""
        value = self.get(name)
        if value is not None and not isinstance(value, list):
            raise self.error(name, "a list")
        return value

    def object(self, name: str) -> Fields | None:
        """An object."""
        value = self.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise self.error(name, "an object")
        return None if value is None else Fields(value, f"{self._where}{name}.")

    def whole(self, name: str, low: int, high: int) -> int | None:
        """A whole number."""
        value = self.get(name)
        return None if value is None else int(self.value(name, Option(int, "", low=low, high=high)))

    def value(self, name: str, option: Option) -> Any:
        """A value of a parameter's kind, inside of its range."""
        try:
            return checked(f"{self._where}{name}", self._values[name], option)
        except ArgumentError as error:
            raise HttpError(400, str(error), f"{self._where}{name}") from None

    def first(self, *names: str) -> str | None:
        """The first of some names that is there."""
        return next((name for name in names if name in self._values), None)

    def objects(self, name: str) -> Iterator[Fields]:
        """The objects in a list; none if it is absent."""
        for i, value in enumerate(self.array(name) or ()):
            where = f"{self._where}{name}[{i}]"
            if not isinstance(value, Mapping):
                raise bad_field(where, "an object", value)
            yield Fields(value, f"{where}.")
