"""Who may use the server: checks of hosts, origins and keys before anything else is looked at."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from pydspark.server.settings import LOOPBACK_ORIGINS

ANY = "*"
_LOCAL_NAME = "localhost"


def split_host(value: str) -> str:
    """The name of a ``Host`` header, without port and brackets, in lower case; empty if it is none."""
    try:
        return urlsplit(f"//{value}").hostname or ""
    except ValueError:
        return ""


def is_loopback(name: str) -> bool:
    """Whether a host name always means this machine."""
    if name == _LOCAL_NAME or name.endswith(f".{_LOCAL_NAME}"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class HostCheck:
    """Refuses names that may have been made to point here by somebody else.

    A web page can have the name of its own server point to this machine, and would then be of the same origin as this
    server. Addresses cannot be made to point elsewhere.

    Args:
        allowed: further names; ``*`` = any.
    """

    def __init__(self, allowed: Iterable[str]) -> None:
        self._names = {name.lower() for name in allowed} | {socket.gethostname().lower()}

    def allows(self, host: str | None) -> bool:
        """Whether a request with this ``Host`` header is served. Only old clients, never browsers, send none."""
        if host is None or ANY in self._names:
            return True
        name = split_host(host)
        return bool(name) and (is_loopback(name) or _is_address(name) or name in self._names)


class OriginCheck:
    """Which web pages may use the server.

    Args:
        allowed: origins such as ``https://chat.example``; ``localhost`` = pages of this machine, ``*`` = all.
    """

    def __init__(self, allowed: Iterable[str]) -> None:
        self._allowed = {origin.rstrip("/").lower() for origin in allowed}

    def allows(self, origin: str, host: str | None) -> bool:
        """Whether a page of this origin may use the server that it knows by the name ``host``."""
        origin = origin.lower()
        if ANY in self._allowed or origin in self._allowed:
            return True
        try:
            parts = urlsplit(origin)
            name = parts.hostname or ""
        except ValueError:
            return False
        if parts.scheme not in ("http", "https"):
            return False
        return parts.netloc == (host or "").lower() or (LOOPBACK_ORIGINS in self._allowed and is_loopback(name))


class KeyCheck:
    """Compares keys in a time that does not tell how much of them is right.

    Args:
        keys: the right ones; none = everybody may come in.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def allows(self, headers: Headers) -> bool:
        """Whether a request with these headers is served."""
        if not self._digests:
            return True
        given = _digest(given_key(headers))
        return sum([hmac.compare_digest(given, digest) for digest in self._digests]) > 0


def given_key(headers: Headers) -> str:
    """The key of a request: ``Authorization: Bearer KEY`` or ``X-Api-Key: KEY``; empty if there is none."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    return headers.get("x-api-key", "")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
