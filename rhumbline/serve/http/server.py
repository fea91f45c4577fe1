"""The HTTP server: sockets, limits on connections, and an orderly end."""

import gc
import ipaddress
import socket
from dataclasses import dataclass
from typing import Any

from rhumbline.errors import InputError
from rhumbline.serve.http.app import make_app
from rhumbline.serve.http.security import Tokens
from rhumbline.serve.settings import ServiceSettings


@dataclass(frozen=True)
class ConnectionLimits:
    """How many connections there are at a time, and how long they may outlive the service."""

    max_connections: int = 1_000
    end_seconds: int = 3  # that open connections get at the end


LIMITS = ConnectionLimits()


@dataclass(frozen=True)
class Address:
    """Where the server listens."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:  # a name, which may stand for any address
            return False

    @property
    def url(self) -> str:
        """The address for a browser."""
        host = self.host
        if ":" in host:  # IPv6
            host = f"[{host}]"
        return f"http://{host}:{self.port}"


def run_server(settings: ServiceSettings, address: Address, tokens: Tokens | None) -> None:
    """Serve until a signal comes."""
    import uvicorn

    from rhumbline.serve.http.timeouts import TimedProtocol

    if tokens is None and not address.is_loopback:
        advice = "give --token-file, or listen on 127.0.0.1"
        raise InputError(f"without tokens any program on the network could send jobs: {advice}")
    listener = open_socket(address)
    hosts: tuple[str, ...] = ()
    if tokens is None:  # a page of another site must not reach this server under its own name
        port = listener.getsockname()[1]
        loopback_hosts = ("127.0.0.1", "localhost", "[::1]")
        hosts = tuple(f"{host}:{port}" for host in loopback_hosts)
    app: Any = make_app(settings, tokens, hosts)
    config = uvicorn.Config(
        app,
        http=TimedProtocol,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=LIMITS.max_connections,
        timeout_graceful_shutdown=LIMITS.end_seconds,
        lifespan="on",
    )
    gc.freeze()  # what is loaded by now stays; later garbage collections skip it
    uvicorn.Server(config).run(sockets=[listener])


def open_socket(address: Address) -> socket.socket:
    """Return a listening socket; a taken port is refused before workers start."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address.host, address.port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = f"cannot listen on {address.host} port {address.port} ({error})"
        raise InputError(f"{reason}; choose another --port or --host") from error
    return listener
