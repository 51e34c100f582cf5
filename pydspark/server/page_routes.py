"""The web page at ``/``: a few files that ask nobody but this server for anything."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pydspark.server.errors import HttpError

_FOLDER = Path(__file__).parent / "page"
_FILES = ("style.css", "page.js", "chat.js", "stream.js", "panel.js", "settings.js", "dom.js")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-cache",
    "X-Frame-Options": "DENY",
}
PATHS = frozenset({"/", *(f"/page/{name}" for name in _FILES)})
"""Where the page is, which needs no key: it asks for one."""


class PageRoutes:
    """Serves the page."""

    def routes(self) -> list[Route]:
        """The routes."""
        return [Route("/", self.index), Route("/page/{name}", self.file)]

    async def index(self, request: Request) -> Response:
        """The page itself."""
        return _response("index.html")

    async def file(self, request: Request) -> Response:
        """One of the files that the page needs."""
        name = request.path_params["name"]
        if name not in _FILES:
            raise HttpError(404, "File Not Found")
        return _response(name)


def _response(name: str) -> Response:
    kind = mimetypes.guess_type(name)[0] or "text/plain"
    return Response((_FOLDER / name).read_bytes(), headers=_HEADERS, media_type=kind)
