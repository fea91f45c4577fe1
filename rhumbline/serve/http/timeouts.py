"""Time limits of connections: a client that sends or reads too slowly loses its connection."""

import asyncio
from dataclasses import dataclass

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


@dataclass(frozen=True)
class TimeLimits:
    """How long a client may take."""

    head_seconds: float = 15.0  # in which the head of a request must have arrived
    request_seconds: float = 60.0  # in which all of it must have arrived
    reading_seconds: float = 60.0  # in which a client must read what waits for it


LIMITS = TimeLimits()


class TimedProtocol(H11Protocol):
    """Uvicorn's HTTP/1.1 protocol with time limits.

    Uvicorn limits the time between two requests only. A request that never ends, or an answer that
    is never read, would hold its connection for good.
    """

    arrival: asyncio.TimerHandle | None = None
    reading: asyncio.TimerHandle | None = None
    head_is_complete = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self.expect(LIMITS.head_seconds)

    def data_received(self, data: bytes) -> None:
        """Take in a part of a request, and wait for the rest."""
        super().data_received(data)
        state = self.conn.their_state
        if state is h11.IDLE and (self.arrival is None or self.head_is_complete):
            self.head_is_complete = False
            self.expect(LIMITS.head_seconds)
        elif state is h11.SEND_BODY and not self.head_is_complete:
            self.head_is_complete = True
            self.expect(LIMITS.request_seconds)
        elif state not in (h11.IDLE, h11.SEND_BODY):
            self.head_is_complete = False
            self.expect(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget all limits."""
        super().connection_lost(exc)
        self.expect(None)
        self.stop_waiting_for_reader()

    def pause_writing(self) -> None:
        """Wait for a client that reads slowly."""
        super().pause_writing()
        self.reading = self.loop.call_later(LIMITS.reading_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Continue when the client has read."""
        super().resume_writing()
        self.stop_waiting_for_reader()

    def expect(self, seconds: float | None) -> None:
        """Close the connection unless the next part of a request is complete in time."""
        if self.arrival is not None:
            self.arrival.cancel()
        self.arrival = None
        if seconds is not None:
            self.arrival = self.loop.call_later(seconds, self.transport.abort)

    def stop_waiting_for_reader(self) -> None:
        """Cancel the time limit of a reader."""
        if self.reading is not None:
            self.reading.cancel()
            self.reading = None
