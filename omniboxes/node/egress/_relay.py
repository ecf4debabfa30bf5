"""Copy bytes both ways between two connections until both sides have finished.

Streams, not wired protocols: they move 600 MB/s against 1,100, which is more than any page
needs, and the back-pressure and the ends stand in one readable loop.
"""

import asyncio
import socket
import struct

from omniboxes.node.egress._dial import CHUNK_BYTES, Connection

# A FIN does not tell a half-close from a close. After the client's the answer may still come, but
# when the remote is silent the client (Chromium always) is taken to have left. After the remote's
# there is no such limit: a client may take its time over the rest, and closes when it is done.
_CLIENT_LEFT_IDLE_S = 10.0

# While the remote takes nothing we read nothing, and so would not see that the page has gone.
# The other direction needs no such limit: a paused video may read nothing for as long as it likes.
_STALLED_UPLOAD_S = 300.0

_LINGER_NONE = struct.pack("ii", 1, 0)


async def relay(client: Connection, remote: Connection) -> None:
    """Copy until both directions have ended; both connections are closed in any case.

    OSError when one side broke off; the client then sees a reset too, lest it take half an
    answer for a whole one.
    """
    try:
        await _Relay().run(client, remote)
    except OSError:
        _reset_on_close(client.writer)
        raise
    finally:
        client.writer.transport.abort()
        remote.writer.transport.abort()


class _Relay:
    def __init__(self) -> None:
        self._idle = asyncio.timeout(None)
        self._client_left = False

    async def run(self, client: Connection, remote: Connection) -> None:
        for connection in (client, remote):
            # A drained writer is then an empty one: nothing is lost when it is aborted.
            connection.writer.transport.set_write_buffer_limits(high=0)
        errors: ExceptionGroup[OSError] | None = None
        try:
            async with self._idle, asyncio.TaskGroup() as group:
                group.create_task(self._upload(client.reader, remote.writer))
                group.create_task(self._download(remote.reader, client.writer))
        except* OSError as caught:
            errors = caught
        if errors is not None:
            raise errors.exceptions[0]

    async def _upload(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(CHUNK_BYTES):
            sink.write(data)
            async with asyncio.timeout(_STALLED_UPLOAD_S):
                await sink.drain()
        sink.write_eof()
        self._client_left = True
        self._postpone_end()

    async def _download(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(CHUNK_BYTES):
            sink.write(data)
            await sink.drain()
            if self._client_left:
                self._postpone_end()
        sink.write_eof()

    def _postpone_end(self) -> None:
        if not self._idle.expired():
            self._idle.reschedule(asyncio.get_running_loop().time() + _CLIENT_LEFT_IDLE_S)


def _reset_on_close(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:  # else the transport is closed already
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
