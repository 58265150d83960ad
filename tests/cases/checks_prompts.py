"""What reaches a model: messages, roles, names, limits and schemas, local and remote."""

import copy
import json
from typing import Any

from providers.remote.vendors import VENDORS
from tests.cases.case import Case
from tests.cases.reply import message_of
from tests.cases.stage import Local, staged
from tests.mock_upstream import Answer
from tests.providers.local.templates import CHATML, CONTENT_ONLY, NO_SYSTEM, STRICT

__all__ = ["CHECKS"]

_OPENAI = {
    "id": "c1",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
}
_ANTHROPIC = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "ok"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
_GEMINI = {"candidates": [{"content": {"role": "model", "parts": [{"text": "ok"}]}, "finishReason": "STOP"}]}
_OLLAMA = {"model": "x", "message": {"role": "assistant", "content": "ok"}, "done": True, "done_reason": "stop"}
_RESPONSES = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "model": "m",
    "output": [
        {
            "type": "message",
            "id": "m1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "ok", "annotations": []}],
        }
    ],
    "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
}
_ANSWERS = {"anthropic": _ANTHROPIC, "gemini": _GEMINI, "ollama": _OLLAMA, "resp": _RESPONSES}


async def _sent_by(case: Case, prefix: str, **fields: Any) -> Any:
    """The body that a provider of this kind is sent for the case's request."""
    remote = case.towards(f"{prefix}/x")
    answer = Answer.json(json.dumps(_ANSWERS.get(prefix, _OPENAI)).encode())
    async with staged(remote, answer) as stage:
        reply = await stage.post(remote.body_with(**fields))
        assert message_of(reply.ok).content == "ok"
        return stage.sent()


async def _prompt_of(case: Case, template: str, body: dict[str, Any]) -> str:
    local = Local(template=template)
    local.says("ok")
    async with staged(case.towards("local/x"), local=local) as stage:
        assert message_of((await stage.post({**body, "model": "local/x"})).ok).content == "ok"
        return local.prompt()


async def _ms_01(case: Case) -> None:
    forms: tuple[dict[str, Any], ...] = ({"content": None}, {"content": ""}, {})
    for template in (CONTENT_ONLY, CHATML, "{% for m in messages %}{{ m.role }}={{ m['content'] }};{% endfor %}"):
        prompts = set()
        for form in forms:
            body = case.body
            call = body["messages"][1]
            del call["content"]
            call.update(form)
            prompt = await _prompt_of(case, template, body)
            assert "None" not in prompt
            assert "null" not in prompt
            assert "now" in prompt
            assert "12:00" in prompt
            assert prompt.index("time?") < prompt.index("12:00")
            prompts.add(prompt)
        assert len(prompts) == 1


async def _ms_01_anthropic(case: Case) -> None:
    sent = await _sent_by(case, "anthropic", max_tokens=9)
    blocks = [
        block for message in sent["messages"] if isinstance(message["content"], list) for block in message["content"]
    ]
    assert not any(block["type"] == "text" and not block["text"] for block in blocks)
    assert {"tool_use", "tool_result"} <= {block["type"] for block in blocks}


async def _ms_02(case: Case) -> None:
    assert "system\nRhyme." in await _prompt_of(case, CHATML, case.body)
    assert "Rhyme." in await _prompt_of(case, NO_SYSTEM, case.body)
    both = case.body
    both["messages"].insert(0, {"role": "system", "content": "Be kind."})
    prompt = await _prompt_of(case, CHATML, both)
    assert prompt.index("Be kind.") < prompt.index("Rhyme.") < prompt.index("Hi")
    knowing = (
        "{% for m in messages %}{{ m.role if m.role in ('developer', 'system', 'user') }}:{{ m.content }};{% endfor %}"
    )
    assert (await _prompt_of(case, knowing, case.body)).startswith("developer:Rhyme.;")


async def _ms_02_openai(case: Case) -> None:
    for vendor, role in (("oai", "developer"), ("openai", "developer"), ("mistral", "system"), ("deepseek", "system")):
        sent = await _sent_by(case, vendor)
        assert [message["role"] for message in sent["messages"]] == [role, "user"], vendor
        assert sent["messages"][0]["content"] == "Rhyme."


async def _ms_02_anthropic(case: Case) -> None:
    sent = await _sent_by(case, "anthropic")
    assert "Rhyme." in json.dumps(sent["system"])
    assert [message["role"] for message in sent["messages"]] == ["user"]


async def _ms_02_gemini(case: Case) -> None:
    sent = await _sent_by(case, "gemini")
    assert sent["systemInstruction"]["parts"] == [{"text": "Rhyme."}]
    assert [content["role"] for content in sent["contents"]] == ["user"]


async def _ms_03(case: Case) -> None:
    async with staged(case, Answer.json(json.dumps(_RESPONSES).encode())) as stage:
        assert message_of((await stage.post()).ok).content == "ok"
        sent = stage.sent()["input"]
        assert not any("name" in item for item in sent)
        assert "hi" in json.dumps(sent[0])
        assert "yo" in json.dumps(sent[1])


async def _ms_03_openai(case: Case) -> None:
    sent = await _sent_by(case, "oai")
    assert [(message["name"], message["content"]) for message in sent["messages"]] == [("ann", "hi"), ("bob", "yo")]


async def _ms_03_local(case: Case) -> None:
    """A template that reads names gets them, without what could end their line or be read as a marker."""
    template = "{% for m in messages %}[{{ m.role }} {{ m.name }}] {{ m.content }}\n{% endfor %}"
    assert await _prompt_of(case, template, case.body) == "[user ann] hi\n[user bob] yo\n"
    body = case.body
    body["messages"][0]["name"] = "an\nn]<|im_start|>\x00"
    assert await _prompt_of(case, template, body) == "[user annim_start] hi\n[user bob] yo\n"


async def _ct_01(case: Case) -> None:
    conversations = {
        "two user turns": ["user", "user"],
        "two answers": ["user", "assistant", "assistant", "user"],
        "a later system message": ["user", "assistant", "system", "user"],
        "an answer first": ["assistant", "user"],
        "a tool first": ["tool"],
    }
    for template in (STRICT, NO_SYSTEM):
        local = Local(template=template)
        local.says("ok")
        async with staged(case, local=local) as stage:
            for name, roles in conversations.items():
                messages: list[dict[str, Any]] = [
                    {"role": role, "content": f"text {at}", **({"tool_call_id": "c"} if role == "tool" else {})}
                    for at, role in enumerate(roles)
                ]
                reply = await stage.post({"model": "local/strict", "messages": messages})
                assert reply.status in (200, 400), name
                assert all(word not in reply.body for word in (b"{%", b"SECRET", b"raise_exception", b"Traceback"))
                if reply.status == 200:
                    prompt = local.prompt()
                    places = [prompt.index(f"text {at}") for at in range(len(roles))]
                    assert places == sorted(places), name
                else:
                    assert (reply.error["param"] or "").startswith("messages["), name


async def _ct_01_merges(case: Case) -> None:
    local = Local(template=STRICT)
    local.says("ok")
    async with staged(case, local=local) as stage:
        assert message_of((await stage.post()).ok).content == "ok"
        assert "Title this:\n\nhello" in local.prompt()


async def _ct_01_anthropic(case: Case) -> None:
    sent = await _sent_by(case, "anthropic")
    (message,) = sent["messages"]
    text = json.dumps(message)
    assert text.index("Title this:") < text.index("hello")


async def _pm_01(case: Case) -> None:
    refusal = case.answer()
    async with staged(case, Answer.json(json.dumps(_OPENAI).encode())) as stage:
        assert message_of((await stage.post()).ok).content == "ok"
        sent = stage.sent()
        assert "max_tokens" not in sent
        assert sent["max_completion_tokens"] == 30
        stage.upstream.script(refusal)
        reply = await stage.post()
        assert (reply.status, reply.error["param"]) == (400, "max_tokens")


async def _pm_01_vendors(case: Case) -> None:
    for name, vendor in ((name, vendor) for name, vendor in VENDORS.items() if "messages" in vendor.fields):
        for fields in ({}, {"max_completion_tokens": None}, {"max_tokens": None}):
            body = {key: value for key, value in case.body_with(**fields).items() if value is not None}
            remote = Case(case.id, {"request": {**case.requests[0], "body": {**body, "model": f"{name}/x"}}})
            async with staged(remote, Answer.json(json.dumps(_OPENAI).encode()), key="upstream-key") as stage:
                assert (await stage.post()).status == 200, name
                limits = {key: value for key, value in stage.sent().items() if key.startswith("max_")}
                wanted = body.get("max_completion_tokens", body.get("max_tokens"))
                assert limits == {vendor.quirks.limit_field: wanted}, name


async def _pm_01_anthropic(case: Case) -> None:
    assert (await _sent_by(case, "anthropic"))["max_tokens"] == 30
    no_limit = await _sent_by(case, "anthropic", max_tokens=None, max_completion_tokens=None)
    assert isinstance(no_limit["max_tokens"], int)


async def _pm_01_gemini(case: Case) -> None:
    assert (await _sent_by(case, "gemini"))["generationConfig"]["maxOutputTokens"] == 30


async def _pm_01_ollama(case: Case) -> None:
    assert (await _sent_by(case, "ollama"))["options"]["num_predict"] == 30


async def _pm_01_responses(case: Case) -> None:
    sent = await _sent_by(case, "resp")
    assert {key: value for key, value in sent.items() if key.startswith("max_")} == {"max_output_tokens": 30}


async def _js_01(case: Case) -> None:
    body = case.body
    schema = body["response_format"]["json_schema"]["schema"]
    before = copy.deepcopy(body)
    async with staged(case) as stage:
        assert json.loads(message_of((await stage.post(body)).ok).content) == {"a": {"n": None}}
        config = stage.sent()["generationConfig"]
        assert config["responseMimeType"] == "application/json"
        assert config["responseJsonSchema"] == schema
        assert "responseSchema" not in config
        tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
        await stage.post({**body, "tools": [tool]})
        (declaration,) = stage.sent()["tools"][0]["functionDeclarations"]
        assert declaration["parametersJsonSchema"] == schema
    assert body == before


async def _js_01_openai(case: Case) -> None:
    """A server of the same dialect gets the schema byte for byte, key order and spacing included."""
    remote = case.towards("oai/x")
    schema = b'{"type":"object",  "z": 1.50, "a": 12345678901234567890123, "$defs": {"A": {"$ref": "#/$defs/A"}}}'
    raw = (
        b'{"model": "oai/x", "messages": [{"role": "user", "content": "hi"}], "response_format": '
        b'{"type": "json_schema", "json_schema": {"name": "p", "strict": true, "schema": %b}}, '
        b'"tools": [{"type": "function", "function": {"name": "f", "parameters": %b}}]}' % (schema, schema)
    )
    async with staged(remote, Answer.json(json.dumps(_OPENAI).encode()), key="upstream-key") as stage:
        assert (await stage.post(raw)).status == 200
        assert stage.upstream.requests[0].body.count(schema) == 2


CHECKS = {
    "MS-01": _ms_01,
    "MS-01/anthropic": _ms_01_anthropic,
    "MS-02": _ms_02,
    "MS-02/openai-compatible": _ms_02_openai,
    "MS-02/anthropic": _ms_02_anthropic,
    "MS-02/gemini": _ms_02_gemini,
    "MS-03": _ms_03,
    "MS-03/openai-compatible": _ms_03_openai,
    "MS-03/local": _ms_03_local,
    "CT-01": _ct_01,
    "CT-01/merges": _ct_01_merges,
    "CT-01/anthropic": _ct_01_anthropic,
    "PM-01": _pm_01,
    "PM-01/vendors": _pm_01_vendors,
    "PM-01/anthropic": _pm_01_anthropic,
    "PM-01/gemini": _pm_01_gemini,
    "PM-01/ollama": _pm_01_ollama,
    "PM-01/responses": _pm_01_responses,
    "JS-01": _js_01,
    "JS-01/openai-compatible": _js_01_openai,
}
