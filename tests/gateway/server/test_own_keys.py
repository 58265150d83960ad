"""Clients without a key of the gateway: those with a token of an identity provider, or with a provider's own key."""

import asyncio
import io
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import jwt
import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from gateway.config import parse_config
from gateway.keys import issuer_fetch
from gateway.server.app import Surroundings, build_app
from gateway.server.lifetime import App
from tests.mock_upstream import Answer, MockUpstream
from tests.serving import listening

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ANSWER = Answer.json(
    b'{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop",'
    b'"message":{"role":"assistant","content":"hi"}}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}'
)
BODY = {"model": "up/m", "messages": [{"role": "user", "content": "hi"}]}


@dataclass
class Asked:
    """`issuer` gives the signing keys, `upstream` the answers."""

    url: str
    session: aiohttp.ClientSession
    issuer: MockUpstream
    upstream: MockUpstream
    app: App
    log: io.BytesIO

    def logged(self) -> bytes:
        self.app.log.flush()
        return self.log.getvalue()

    async def ask(self, secret: str, body: object = BODY, path: str = "/v1/chat/completions") -> tuple[int, str]:
        """The status, and the code of the error."""
        headers = {"Authorization": f"Bearer {secret}"}
        async with self.session.post(self.url + path, json=body, headers=headers) as answer:
            found = orjson.loads(await answer.read())
            return answer.status, str(found.get("error", {}).get("code"))


def published(*keys: tuple[str, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey]) -> Answer:
    """A set of signing keys."""
    rows = []
    for name, key in keys:
        algorithm = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
        rows.append({**orjson.loads(algorithm.to_jwk(key.public_key())), "kid": name, "use": "sig"})  # type: ignore[arg-type]
    return Answer.json(orjson.dumps({"keys": rows}))


@asynccontextmanager
async def asked(auth: str, *answers: Answer, keys: tuple[Answer, ...] = ()) -> AsyncIterator[Asked]:
    """`ISSUER` in `auth` is the issuer's address, which is also that of the providers `spare` and `keyless`."""
    log = io.BytesIO()
    async with (
        MockUpstream(*(answers or (ANSWER,))) as upstream,
        MockUpstream(*(keys or (published(("one", KEY), ("two", EC)),))) as issuer,
        aiohttp.ClientSession() as session,
    ):
        issuer_url = issuer.base_url.removesuffix("/v1")
        text = (
            "version: 1\nproviders:\n"
            f"  up: {{type: openai-compatible, base_url: '{upstream.base_url}', api_key: key-of-the-gateway}}\n"
            f"  spare: {{type: openai-compatible, base_url: '{issuer.base_url}', api_key: key-of-the-spare}}\n"
            f"  keyless: {{type: openai-compatible, base_url: '{issuer.base_url}'}}\n"
            f"reliability: {{retry: {{attempts: 1}}}}\nstorage: {{url: memory}}\n{auth.replace('ISSUER', issuer_url)}"
        )
        app = build_app(parse_config(text, {}, provider_types=["openai-compatible"]), around=Surroundings(log=log))
        async with listening(app) as url:
            yield Asked(url, session, issuer, upstream, app, log)


TOKENS = "auth: {jwt: {issuer: 'ISSUER', audience: gateway, jwks_url: 'ISSUER/keys', limits: {rpm: 2}}}\n"


def token(issuer: str, *, key: object = KEY, name: str = "one", algorithm: str = "RS256", **claims: object) -> str:
    filled = {"iss": issuer, "aud": "gateway", "sub": "user-1", "exp": int(time.time()) + 600, **claims}
    left = {claim: value for claim, value in filled.items() if value is not None}
    return jwt.encode(left, key, algorithm=algorithm, headers={"kid": name})  # type: ignore[arg-type]


def issuer_of(gateway: Asked) -> str:
    return gateway.issuer.base_url.removesuffix("/v1")


async def test_a_signed_token_lets_its_subject_in_with_limits_of_its_own() -> None:
    async with asked(TOKENS) as gateway:
        first, second = (token(issuer_of(gateway), sub=name) for name in ("user-1", "user-2"))
        assert [(await gateway.ask(first))[0] for _ in range(3)] == [200, 200, 429]
        assert (await gateway.ask(second))[0] == 200
        assert len(gateway.issuer.requests) == 1  # the signing keys are kept
        assert b'"key":"jwt:user-1"' in gateway.logged()
        assert gateway.upstream.requests[0].headers["authorization"] == "Bearer key-of-the-gateway"


async def test_each_algorithm_goes_with_a_key_of_its_kind() -> None:
    async with asked(TOKENS) as gateway:
        assert (await gateway.ask(token(issuer_of(gateway), key=EC, name="two", algorithm="ES256")))[0] == 200


TEAMS = (
    "auth: {teams: {research: {limits: {rpm: 1}}, search: {models: ['up/*']}}, jwt: {issuer: 'ISSUER', "
    "audience: [gateway, portal], jwks_url: 'ISSUER/keys', team_claim: realm.groups, models_claim: llm_models, MORE}}\n"
)


async def test_a_claim_names_the_team_whose_limits_the_tokens_share() -> None:
    async with asked(TEAMS.replace("MORE", "id_claim: email")) as gateway:
        claims: dict[str, Any] = {"llm_models": "up/m", "realm": {"groups": ["staff", "search", "research"]}}
        first, second = (token(issuer_of(gateway), email=name, **claims) for name in ("a@x.example", "b@x.example"))
        assert [await gateway.ask(first), await gateway.ask(second)] == [(200, "None"), (429, "rate_limit_exceeded")]
        assert b'"key":"jwt:a@x.example"' in gateway.logged()


@pytest.mark.parametrize("audience", ["portal", ["elsewhere", "gateway"]])
async def test_a_token_is_for_one_of_several_audiences(audience: object) -> None:
    async with asked(TEAMS.replace("MORE", "team: search")) as gateway:
        assert (await gateway.ask(token(issuer_of(gateway), aud=audience, llm_models=["up/m"])))[0] == 200
        assert (await gateway.ask(token(issuer_of(gateway), aud="elsewhere", llm_models=["up/m"])))[0] == 401


@pytest.mark.parametrize("groups", [None, [], ["staff"], "staff", 7])
async def test_a_token_of_no_team_gets_the_default_team_or_is_refused(groups: object) -> None:
    claims: dict[str, Any] = {"llm_models": "up/m", "realm": {"groups": groups}}
    async with asked(TEAMS.replace("MORE", "leeway_s: 30")) as gateway:
        assert await gateway.ask(token(issuer_of(gateway), **claims)) == (403, "unknown_team")
    async with asked(TEAMS.replace("MORE", "team: research")) as gateway:
        told = [(await gateway.ask(token(issuer_of(gateway), sub=name, **claims)))[0] for name in ("a", "b")]
        assert told == [200, 429]


@pytest.mark.parametrize(
    ("models", "status"),
    [(["up/m", "other"], 200), ("other up/*", 200), ("*", 200), ("other,up/m", 200), (["other"], 403), (None, 403)],
)
async def test_a_claim_lists_the_models_that_a_token_is_for(models: object, status: int) -> None:
    async with asked(TEAMS.replace("MORE", "team: search")) as gateway:
        assert (await gateway.ask(token(issuer_of(gateway), llm_models=models)))[0] == status


async def test_the_models_of_its_team_hold_for_a_token_as_well() -> None:
    async with asked(TEAMS.replace("MORE", "team: search")) as gateway:
        assert (await gateway.ask(token(issuer_of(gateway), llm_models="*"), {**BODY, "model": "spare/m"}))[0] == 403


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ({"aud": "another"}, "invalid_token"),
        ({"iss": "https://another.example"}, "invalid_token"),
        ({"exp": 1_000_000}, "token_expired"),
        ({"exp": None}, "invalid_token"),
        ({"nbf": 4_000_000_000}, "invalid_token"),
        ({"sub": None}, "invalid_token"),
        ({"sub": 7}, "invalid_token"),
        ({"key": OTHER}, "invalid_token"),
        ({"name": "unknown"}, "invalid_token"),
        ({"algorithm": "RS512"}, "invalid_token"),
        ({"name": "two"}, "invalid_token"),
        ({"key": EC, "algorithm": "ES256"}, "invalid_token"),
        ({"key": "a-shared-secret-that-is-long-enough!", "algorithm": "HS256"}, "invalid_token"),
        ({"key": None, "algorithm": "none"}, "invalid_token"),
    ],
)
async def test_a_token_that_is_not_right_in_every_way_is_a_401(claims: dict[str, object], code: str) -> None:
    async with asked(TOKENS) as gateway:
        made = token(**{"issuer": issuer_of(gateway), **claims})  # type: ignore[arg-type]
        assert await gateway.ask(made) == (401, code)
        assert not gateway.upstream.requests


async def test_clocks_may_differ_by_the_leeway_and_no_more() -> None:
    async with asked(TOKENS) as gateway:
        now = int(time.time())
        assert (await gateway.ask(token(issuer_of(gateway), exp=now - 10)))[0] == 200
        assert (await gateway.ask(token(issuer_of(gateway), exp=now - 40)))[0] == 401
        assert (await gateway.ask(token(issuer_of(gateway), nbf=now + 10)))[0] == 200


async def test_the_issuers_configuration_tells_where_its_keys_are() -> None:
    auth = "auth: {jwt: {issuer: 'ISSUER', audience: gateway}}\n"
    gate = published(("one", KEY))
    async with asked(auth, keys=(Answer.json(b"{}"), gate)) as gateway:
        configuration = orjson.dumps({"issuer": issuer_of(gateway), "jwks_uri": f"{issuer_of(gateway)}/where"})
        gateway.issuer.script(Answer.json(configuration), gate)
        assert (await gateway.ask(token(issuer_of(gateway))))[0] == 200
        paths = [request.path for request in gateway.issuer.requests]
        assert paths == ["/.well-known/openid-configuration", "/where"]


async def test_an_issuer_that_cannot_be_reached_is_a_503() -> None:
    async with asked(TOKENS, keys=(Answer.json(b"{}", status=500),)) as gateway:
        assert await gateway.ask(token(issuer_of(gateway))) == (503, "issuer_unavailable")


async def test_an_issuer_that_is_silent_is_waited_for_once_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuer_fetch, "_TIMEOUT_S", 0.2)
    async with asked(TOKENS, keys=(Answer(then="hang", silent=True),)) as gateway:
        tokens = [token(issuer_of(gateway), sub=f"user-{number}") for number in range(5)]
        answers = await asyncio.gather(*map(gateway.ask, tokens))
        assert set(answers) == {(503, "issuer_unavailable")}
        assert len(gateway.issuer.requests) == 1


PASSED = "auth: {pass_through: true, keys: [{id: ours, secret: key-of-a-team}]}\n"


async def test_a_key_that_is_not_ours_goes_to_the_provider() -> None:
    async with asked(PASSED) as gateway:
        assert (await gateway.ask("sk-of-the-client"))[0] == 200
        assert (await gateway.ask("key-of-a-team"))[0] == 200
        sent = [request.headers["authorization"] for request in gateway.upstream.requests]
        assert sent == ["Bearer sk-of-the-client", "Bearer key-of-the-gateway"]
        assert b"sk-of-the-client" not in gateway.logged()


async def test_a_key_made_here_that_is_good_no_more_goes_to_no_provider() -> None:
    auth = "auth: {pass_through: true, hash_secret: pepper-of-the-test}\n"
    async with asked(auth) as gateway:
        assert await gateway.ask("gw-" + "a" * 43) == (401, "invalid_api_key")
        assert gateway.upstream.requests == []
        assert (await gateway.ask("gw-of-another-make"))[0] == 200


async def test_a_key_that_the_provider_refuses_is_the_clients_own_fault() -> None:
    refused = Answer.json(b'{"error":{"message":"wrong key","code":"invalid_api_key"}}', status=401)
    async with asked(PASSED, refused) as gateway:
        assert await gateway.ask("sk-wrong") == (401, "invalid_api_key")
        assert await gateway.ask("key-of-a-team") == (502, "upstream_auth")


async def test_without_any_key_nothing_is_passed_on() -> None:
    async with (
        asked(PASSED) as gateway,
        gateway.session.post(gateway.url + "/v1/chat/completions", json=BODY) as answer,
    ):
        assert answer.status == 401
        assert not gateway.upstream.requests


BUSY = Answer.json(b'{"error":{"message":"busy"}}', status=503)
WITH_SPARE = PASSED + "models: {both: {targets: [up/m, %s/m]}}\n"
BOTH = {**BODY, "model": "both"}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_clients_own_key_goes_to_the_provider_that_it_is_meant_for_alone(stream: bool) -> None:
    async with asked(WITH_SPARE % "spare", BUSY, keys=(ANSWER,)) as gateway:
        body = {**BOTH, "stream": stream}
        assert await gateway.ask("sk-of-the-client", body) == (503, "overloaded")
        assert not gateway.issuer.requests  # neither with the client's key nor with the gateway's
        assert (await gateway.ask("key-of-a-team", BOTH))[0] == 200
        assert [request.headers["authorization"] for request in gateway.issuer.requests] == ["Bearer key-of-the-spare"]


async def test_a_client_with_its_own_key_falls_over_to_a_provider_that_asks_for_no_key() -> None:
    async with asked(WITH_SPARE % "keyless", BUSY, keys=(ANSWER,)) as gateway:
        assert (await gateway.ask("sk-of-the-client", BOTH))[0] == 200
        assert "authorization" not in gateway.issuer.requests[0].headers


async def test_shadows_and_detours_do_not_get_a_clients_own_key() -> None:
    elsewhere = (
        "models: {both: {targets: [up/m], shadow: {use: spare/m, percent: 100}, on_content_filter: [spare/m]}}\n"
    )
    filtered = Answer.json(b'{"error":{"message":"no","code":"content_filter"}}', status=400)
    async with asked(PASSED + elsewhere, ANSWER, filtered, keys=(ANSWER,)) as gateway:
        assert (await gateway.ask("sk-of-the-client", BOTH))[0] == 200
        assert (await gateway.ask("sk-of-the-client", BOTH))[0] >= 400
        await gateway.app.drain(0)
        assert not gateway.issuer.requests


async def test_embeddings_keep_to_the_clients_own_provider_as_well() -> None:
    async with asked(WITH_SPARE % "spare", BUSY, keys=(ANSWER,)) as gateway:
        found = await gateway.ask("sk-of-the-client", {"model": "both", "input": "hi"}, "/v1/embeddings")
        assert found == (503, "overloaded")
        assert not gateway.issuer.requests


async def test_wrong_keys_of_one_client_do_not_turn_others_away_from_a_provider() -> None:
    refused = Answer.json(b'{"error":{"message":"wrong key"}}', status=401)
    async with asked(WITH_SPARE % "spare", *[refused] * 8, ANSWER, keys=(ANSWER,)) as gateway:
        assert {await gateway.ask("sk-wrong", BOTH) for _ in range(8)} == {(401, "invalid_api_key")}
        assert (await gateway.ask("key-of-a-team", BOTH))[0] == 200
        assert not gateway.issuer.requests  # its breaker is closed, so the first target was asked
