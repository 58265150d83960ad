"""One connection: requests in turn, clients that leave, time limits, and how it ends."""

import asyncio
import json
import socket

import pytest

from tests.gateway.http.hosted import HOST, chunked, get, hosted, post, until


async def test_a_request_that_comes_byte_by_byte_is_the_same_request() -> None:
    asked = [post("/echo?a", b"abc", b"X-A: b"), chunked("/echo", b"a", b"bc"), get("/echo")]
    async with hosted() as at, at.client() as client, at.client() as whole:
        for sent in asked:
            await client.send(*[sent[at : at + 1] for at in range(len(sent))])
            await whole.send(sent)
            assert (await client.answer())[2] == (await whole.answer())[2]


async def test_requests_that_come_together_are_answered_in_their_order() -> None:
    async with hosted() as at, at.client() as client:
        await client.send(post("/wait", b"x") + chunked("/echo", b"two") + get("/stream") + get("/echo?four"))
        await at.service.waiting.wait()
        await asyncio.sleep(0)
        assert len(at.service.requests) == 1
        at.service.release.set()
        assert (await client.answer())[2] == b"waited"
        assert json.loads((await client.answer())[2])[3] == "two"
        assert (await client.answer())[2].endswith(b"end")
        assert json.loads((await client.answer())[2])[1] == "/echo?four"


async def test_requests_without_number_do_not_pile_up() -> None:
    """Those of a client that sends on and on wait in its own socket, and all are answered in the end."""
    count = 20_000
    async with hosted() as at, at.client() as client:
        sending = asyncio.ensure_future(client.send(get("/wait") + get("/empty") * count))
        await at.service.waiting.wait()
        (connection,) = at.connections.connections
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(connection._queue) < 700
        assert len(connection._unread) < 600_000
        at.service.release.set()
        assert (await client.answer())[2] == b"waited"
        seen, tail = 0, client.seen
        while seen < count:
            found = tail + await client.reader.read(1 << 20)
            seen += found.count(b"HTTP/1.1 204")
            tail = found[-11:]
            seen -= tail.count(b"HTTP/1.1 204")
        await sending


async def test_what_is_no_request_is_refused_after_the_answers_before_it() -> None:
    async with hosted() as at, at.client() as client:
        await client.send(get("/wait") + b"garbage\r\n\r\n" + get("/echo"))
        await at.service.waiting.wait()
        at.service.release.set()
        assert (await client.answer())[2] == b"waited"
        assert (await client.answer())[0] == 400
        assert await client.end() == b""
    assert len(at.service.requests) == 1


@pytest.mark.parametrize("how", ["close", "half", "abort"])
async def test_a_client_that_leaves_while_it_waits_cancels_its_request(how: str) -> None:
    """Whether it has closed its socket or only its sending half cannot be seen from here."""
    async with hosted() as at, at.client() as client:
        await client.send(get("/wait"))
        await at.service.waiting.wait()
        if how == "half":
            client.writer.write_eof()
        elif how == "close":
            client.close()
        else:
            client.abort()
        await until(lambda: at.service.cancelled == 1 and not at.connections.connections)


@pytest.mark.parametrize(
    "sent", [post("/echo", b"a" * 10)[:-5], chunked("/echo", b"abc")[:-5]], ids=["length", "chunks"]
)
async def test_a_client_that_leaves_within_its_body_cancels_its_request(sent: bytes) -> None:
    async with hosted() as at, at.client() as client:
        await client.send(sent)
        await until(lambda: at.service.running == 1)
        client.abort()
        await until(lambda: at.service.cancelled == 1 and not at.connections.connections)


@pytest.mark.parametrize("path", ["/endless", "/large"])
async def test_a_client_that_leaves_within_its_answer_cancels_it(path: str) -> None:
    async with hosted() as at, at.client() as client:
        await client.send(get(path))
        await client.reader.readexactly(100)
        client.abort()
        await until(lambda: not at.connections.connections and not at.service.running)


async def test_a_client_that_does_not_read_stops_the_stream_it_asked_for() -> None:
    async with hosted() as at:
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.setblocking(False)
            await asyncio.get_running_loop().sock_connect(slow, ("127.0.0.1", at.port))
            await asyncio.get_running_loop().sock_sendall(slow, get("/endless"))
            await at.service.waiting.wait()
            (connection,) = at.connections.connections
            await until(lambda: connection.outflow.is_full)
        await until(lambda: at.service.cancelled == 1)


@pytest.mark.parametrize("path", ["/large", "/endless"])
async def test_a_client_that_takes_nothing_of_an_answer_is_cut_off(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.http.outflow.STALLED_S", 0.05)
    async with hosted() as at, at.client() as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(get(path))
        await until(lambda: bool(at.service.requests) and not at.connections.connections)


async def test_a_client_that_takes_an_answer_slowly_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.http.outflow.STALLED_S", 0.1)
    loop = asyncio.get_running_loop()
    async with hosted() as at:
        with socket.socket() as slow:
            slow.setblocking(False)
            await loop.sock_connect(slow, ("127.0.0.1", at.port))
            await loop.sock_sendall(slow, get("/large"))
            taken, begun = 0, loop.time()

            def is_due() -> bool:
                return loop.time() - begun > taken / 40_000_000

            while taken < 20_000_000:
                piece = await loop.sock_recv(slow, 1_000_000)
                assert piece, f"cut off after {taken} bytes"
                taken += len(piece)
                await until(is_due)


async def test_a_large_answer_comes_whole() -> None:
    async with hosted() as at:
        assert len((await at.ask(get("/large")))[2]) == 20_000_000


async def test_a_client_that_waits_is_told_to_go_on_once_its_body_is_wanted() -> None:
    async with hosted() as at, at.client() as client:
        for _ in range(2):
            head, body = post("/echo", b"abc", b"Expect: 100-continue").split(b"abc")[0], b"abc"
            await client.send(head)
            assert (await client.answer())[0] == 100
            await client.send(body)
            assert json.loads((await client.answer())[2])[3] == "abc"


async def test_a_client_that_waits_is_not_told_to_go_on_for_nothing() -> None:
    """Whether it sends the body after all is not known, so nothing after it is read."""
    async with hosted() as at, at.client() as client:
        await client.send(post("/blind", b"a" * 1000, b"Expect: 100-continue")[:-1000])
        status, headers, _ = await client.answer()
        assert (status, headers["connection"]) == (401, "close")
        assert await client.end() == b""


async def test_a_client_that_does_not_wait_is_not_told_to_go_on() -> None:
    async with hosted() as at:
        status, _, body = await at.ask(post("/echo", b"abc", b"Expect: 100-continue"))
        assert (status, json.loads(body)[3]) == (200, "abc")


async def test_http_1_0_is_answered_and_closed_unless_it_asks_to_be_kept() -> None:
    async with hosted() as at:
        for path in ("/echo", "/stream"):
            async with at.client() as client:
                await client.send(get(path, version=b"1.0"))
                found = await client.end()
                assert b"chunked" not in found
                assert b"Connection: close" in found
                assert found.endswith(b"end" if path == "/stream" else b"]")
        async with at.client() as client:
            for _ in range(2):
                await client.send(get("/stream?sized", b"Connection: keep-alive", version=b"1.0"))
                _, headers, body = await client.answer()
                assert (headers["connection"], body) == ("keep-alive", b"one" + b"two" * 10 + b"three")


async def test_a_client_that_asks_for_the_end_gets_it_and_nothing_after_its_request_is_read() -> None:
    async with hosted() as at, at.client() as client:
        await client.send(get("/echo", b"Connection: close") + get("/echo?second"))
        _, headers, _ = await client.answer()
        assert headers["connection"] == "close"
        assert await client.end() == b""
        assert len(at.service.requests) == 1


@pytest.mark.parametrize("path", ["/echo", "/stream", "/stream?sized"])
async def test_a_head_is_the_same_as_of_the_answer_without_its_body(path: str) -> None:
    async with hosted() as at, at.client() as client:
        await client.send(get(path))
        _, whole, _ = await client.answer()
        await client.send(get(path).replace(b"GET", b"HEAD"), get("/empty"))
        _, headers, body = await client.answer("HEAD")
        assert body == b""
        if path != "/echo":  # which tells its method
            assert headers == whole
        status, headers, _ = await client.answer()
        assert status == 204
        assert not {"content-length", "transfer-encoding"} & set(headers)


async def test_the_rest_of_a_refused_body_is_read_and_the_connection_goes_on() -> None:
    async with hosted() as at, at.client() as client:
        for sent in (post("/blind", b"x" * 4_000_000), chunked("/blind", *[b"x" * 10_000] * 50)):
            await client.send(sent)
            assert (await client.answer())[0] == 401
        await client.send(get("/echo"))
        assert (await client.answer())[0] == 200


async def test_a_refused_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.http.connection.LINGER_S", 0.05)
    async with hosted() as at, at.client() as client:
        await client.send(post("/blind", b"x" * 100)[:-1])
        assert (await client.answer())[0] == 401
        assert await client.end() == b""


@pytest.mark.parametrize("sent", [b"", b"GET /echo HTTP/1.1\r\nHost: x\r\nx-slow: ", b"\r\n"])
async def test_a_first_head_that_does_not_arrive_whole_is_not_waited_for(sent: bytes) -> None:
    async with hosted(head_s=0.05) as at, at.client() as client:
        await client.send(sent)
        assert await client.end() == b""
        async with at.client() as other:
            await other.send(get("/wait"))
            await at.service.waiting.wait()
            await asyncio.sleep(0.1)  # longer than its head had
            at.service.release.set()
            assert (await other.answer())[2] == b"waited"


async def test_bytes_of_a_head_do_not_buy_time() -> None:
    async with hosted(head_s=0.2) as at, at.client() as client:

        async def trickle() -> None:
            await client.send(b"GET /echo HTTP/1.1\r\n")
            while True:
                await client.send(b"A: b\r\n")
                await asyncio.sleep(0.02)

        sending = asyncio.ensure_future(trickle())
        assert await client.end() == b""
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    assert not at.service.requests


@pytest.mark.parametrize("rest", [b"", b"GET /echo HTTP/1.1\r\nHost"])
async def test_an_idle_connection_is_closed(rest: bytes) -> None:
    async with hosted(head_s=0.05, idle_s=0.05) as at, at.client() as client:
        await client.send(get("/echo"))
        assert (await client.answer())[0] == 200
        await client.send(rest)
        assert await client.end() == b""


async def test_a_fault_outside_the_service_is_an_answer_and_the_end() -> None:
    async with hosted() as at:
        status, headers, _ = await at.ask(get("/fault"))
        assert (status, headers["connection"]) == (500, "close")
        (fault,) = at.service.faults
        assert isinstance(fault, LookupError)
        at.service.faults.clear()


async def test_a_fault_within_an_answer_ends_it_without_another_one() -> None:
    async with hosted() as at, at.client() as client:
        await client.send(get("/broken"))
        found = await client.end()
        assert found.count(b"HTTP/1.1") == 1
        assert not found.endswith(b"0\r\n\r\n")
        assert len(at.service.faults) == 1
        at.service.faults.clear()


async def test_refusals_are_seen_by_clients_that_are_still_sending() -> None:
    """A socket that is closed with bytes unread takes back what was sent on it."""
    async with hosted() as at, at.client() as client:
        client.writer.write(b"GET / HTTP/1.1\r\n" + HOST + b"bad\r\n\r\n" + b"x" * 1_000_000)
        assert (await client.answer())[0] == 400
        client.writer.write(b"x" * 1_000_000)
        assert await client.end() == b""
