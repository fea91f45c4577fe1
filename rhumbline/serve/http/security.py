"""Access: tokens, the Host header, and the security headers of every answer."""

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rhumbline.errors import InputError
from rhumbline.serve.http.problems import problem_response

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

# Of every answer.
HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


@dataclass(frozen=True)
class Tokens:
    """The tokens of a file, one per line, each with the name of its client."""

    clients: tuple[tuple[str, str], ...] = ()  # token, client

    def client_of(self, given: str) -> str | None:
        """Return the client of a token. All tokens are compared, so the time reveals nothing."""
        found = None
        for token, client in self.clients:
            if hmac.compare_digest(token.encode(), given.encode()):
                found = client
        return found


def read_tokens(path: Path) -> Tokens:
    """Return the tokens of a file: `TOKEN` or `NAME TOKEN` in each line; # begins a comment."""
    min_characters = 16  # of a token
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: cannot be read ({error}); expected a token in each line"
        ) from error
    clients = []
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) > 2:
            raise InputError.at(path, number, "expected a token, or a name and a token")
        token = words[-1]
        if len(token) < min_characters:
            least = f"at least {min_characters} characters, for example from: openssl rand -hex 24"
            raise InputError.at(path, number, f"the token is too short; expected {least}")
        client = words[0] if len(words) == 2 else f"token {number}"
        clients.append((token, client))
    if not clients:
        raise InputError(f"{path}: holds no token; write one in each line")
    return Tokens(tuple(clients))


class Guard:
    """Checks every request before the application sees it, and adds security headers."""

    def __init__(self, app: Any, tokens: Tokens | None, hosts: tuple[str, ...]):
        self.app = app
        self.tokens = tokens
        self.hosts = hosts  # allowed Host headers; empty: any

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                own_headers = message.get("headers", [])
                message["headers"] = [*own_headers, *HEADERS]
            await send(message)

        headers = {name.decode("latin-1"): value for name, value in scope["headers"]}
        refusal = self.refusal(scope, headers)
        app = problem_response(*refusal) if refusal else self.app
        await app(scope, receive, send_with_headers)

    def refusal(self, scope: Scope, headers: dict[str, bytes]) -> tuple[int, str] | None:
        """Return status and reason if a request is refused; note its client otherwise."""
        host = headers.get("host", b"").decode("latin-1").lower()
        if self.hosts and host not in self.hosts:
            return 421, "this server answers to its own address only"
        scope["state"] = {**scope.get("state", {}), "client": client_address(scope)}
        if self.tokens is None or is_open(scope["path"]):
            return None
        authorization = headers.get("authorization", b"").decode("latin-1")
        scheme, _, token = authorization.partition(" ")
        client = None
        if scheme.lower() == "bearer":
            client = self.tokens.client_of(token.strip())
        if client is None:
            return 401, "a valid token is needed: Authorization: Bearer TOKEN"
        scope["state"]["client"] = client
        return None


def is_open(path: str) -> bool:
    """Return whether a path needs no token: the page itself holds no data."""
    is_page = path == "/" or path.startswith("/page/")
    return is_page or path == "/health"


def client_address(scope: Scope) -> str:
    """Return the network address of a client."""
    address = scope.get("client")
    if not address:
        return "local"
    return address[0]
