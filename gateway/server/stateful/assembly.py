"""Puts together whatever has state: its storage, its work in the background, and its paths."""

from collections.abc import Callable, Mapping
from contextlib import suppress

from adapters.canonical.errors import NotReady
from adapters.openai.responses.front import ResponsesFront
from gateway.config import Config
from gateway.config.sections.state import Responses
from gateway.responses.background import Background
from gateway.responses.prepared import Preparation
from gateway.responses.workers import worker_name
from gateway.server.body import BodyReader
from gateway.server.log import Log
from gateway.server.routes import Route, Served
from gateway.server.stateful.compaction import Compaction
from gateway.server.stateful.conversations import Conversations
from gateway.server.stateful.kept_chats import KeptChats
from gateway.server.stateful.kept_responses import KeptResponses
from gateway.server.stateful.response_create import ResponseCreation
from gateway.server.stateful.response_socket import ResponseSocket
from gateway.server.stateful.responses import for_client, sealer
from gateway.storage.bounds import Bounds
from gateway.storage.place import FilePlace, Place, parse_place
from gateway.storage.storage import Storage
from gateway.tools.answers import ToolAnswers

__all__ = ["Stateful"]

_RESPONSES = "/v1/responses"
_CONVERSATIONS = "/v1/conversations"
_DAY_S = 86_400.0


class Stateful:
    """`routes` are its paths. Nothing is opened before `start`.

    Raises ValueError where run.yaml names no database, or one of another version.
    """

    def __init__(
        self,
        config: Config,
        answers: ToolAnswers,
        bodies: BodyReader,
        log: Log,
        *,
        now: Callable[[], float],
        token: Callable[[], str],
        redact: Callable[[str], str],
    ) -> None:
        section = config.run.responses or Responses()
        named = config.run.storage
        place = parse_place(named.url.get_secret_value() if named is not None else None)
        self._has_named_file = named is not None and isinstance(place, FilePlace)
        self.storage = storage = self._storage(place, section, log, now)
        self._background = background = Background(
            storage, answers, section.background, log, worker=worker_name(), redact=redact, now=now
        )
        front = ResponsesFront(sealer(section, place), now)
        choose = for_client(front, config.server.dialect)
        keepalive_s, max_depth = config.server.keepalive_s, config.server.max_depth
        preparation = Preparation(storage, now)
        compaction = Compaction(choose, answers, bodies, preparation, max_depth=max_depth)
        creation = ResponseCreation(
            front,
            choose,
            answers,
            bodies,
            preparation,
            background=background,
            max_depth=max_depth,
            keepalive_s=keepalive_s,
        )
        conversations = Conversations(choose, storage, bodies, now=now, max_depth=max_depth)
        self._socket = socket = ResponseSocket(
            choose,
            answers,
            preparation,
            log,
            token=token,
            redact=redact,
            max_bytes=int(config.server.max_body_mb * 2**20),
            max_depth=max_depth,
        )
        self.chats = KeptChats(storage, answers.router, bodies, max_depth=max_depth, keepalive_s=keepalive_s)
        kept = KeptResponses(front, storage, background, keepalive_s=keepalive_s)
        self.routes: Mapping[str, Route] = {
            _RESPONSES: Route({"POST": creation.serve, "GET": socket.serve}, front),
            f"{_RESPONSES}/input_tokens": Route({"POST": compaction.count}),
            f"{_RESPONSES}/compact": Route({"POST": compaction.compact}),
            f"{_RESPONSES}/*": kept.route,
            _CONVERSATIONS: conversations.route,
            f"{_CONVERSATIONS}/*": conversations.route_below,
        }

    def _storage(self, place: Place, section: Responses, log: Log, now: Callable[[], float]) -> Storage:
        storage = Storage(
            place,
            Bounds(section.ttl_days * _DAY_S, int(section.max_gb * 2**30)),
            now,
            when_open=lambda stores: self._background.recover(stores),
            report=lambda reason: log.write("storage_failed", {"reason": log.outside(reason)}),
        )
        storage.check()
        return storage

    def chat_routes(self, path: str, served: Mapping[str, Served]) -> Mapping[str, Route]:
        """Where chat completions are made at this path: what is served there, with the paths of those that are kept."""
        made = served.get(path)
        return {} if made is None or made.front is None else self.chats.routes(path, made.serve, made.front)

    async def start(self, *, keeps_usage: bool) -> None:
        """Opens the database where it is likely to be needed, so that no request waits for it. Raises SchemaMismatch
        where that is of another version."""
        if keeps_usage or self._has_named_file or not self.storage.holds_nothing:
            with suppress(NotReady):  # the log says so; it may come up later, and until then who needs it is told
                await self.storage.stores()

    @property
    def in_background(self) -> int:
        """How many responses are being made in the background."""
        return self._background.count

    async def drain(self, seconds: float | None) -> bool:
        """Lets the work in the background go on, at most so long (None: to its end).

        Tells whether some had to be stopped.
        """
        self._socket.stop()
        return await self._background.drain(seconds)

    async def stop(self) -> None:
        """Ends the work in the background."""
        await self._background.aclose()

    async def aclose(self) -> None:
        """Closes the database."""
        await self.storage.aclose()
