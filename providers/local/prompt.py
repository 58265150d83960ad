"""The prompt of a request for one choice as token ids, and what is known of the place where it ends.

Renders chats, encodes texts, takes token ids as they are, and cuts what is too long where the client asks for it.
"""

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from adapters.canonical.embedding import CUT_TO_WINDOW
from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import ASSISTANT, Message, text_of
from adapters.canonical.request import Prompt, Request
from adapters.ollama.vocabulary import GENERATE as OLLAMA_GENERATE
from adapters.text.reasoning import ReasoningFormat
from local_engine.generation import ImageInput
from providers.local.call_grammar import begun_call
from providers.local.chat_template import ChatTemplate, request_template
from providers.local.image_input import Pixels, ReadyImage
from providers.local.local_model import LocalModel
from providers.local.template_messages import render_prompt
from providers.local.thinking import thinking_variables
from providers.local.tools_as_text import tools_as_text

__all__ = ["ModelPrompt", "echoed_text", "model_prompt", "num_added"]

_TAIL: Final = 64
"""Tokens of a prompt in which a mark is looked for that it ends with."""


class ModelPrompt(NamedTuple):
    """`opens_reasoning`: the prompt ends inside the model's reasoning, so the answer begins with the rest of it.
    `begun_call`: it ends inside a call of this tool, so the answer is its arguments. `images`: in their places."""

    ids: tuple[int, ...]
    opens_reasoning: bool = False
    begun_call: str | None = None
    images: tuple[ImageInput, ...] = ()


def model_prompt(model: LocalModel, request: Request, images: Sequence[ReadyImage] = ()) -> ModelPrompt:
    """The prompt as the engine takes it. `images` are those of the messages, in order.

    Renders and tokenizes, so run it in a thread when the text may be long.
    """
    if request.detokenize is False:
        _check_without_text(request)
    if request.messages is None:
        prompt = ModelPrompt(_plain_prompt(model, request))
    elif request.prompt_token_ids is not None:
        prompt = _given_prompt(model, request, request.prompt_token_ids)
    elif request.dialect == OLLAMA_GENERATE and model.template is None:
        prompt = _untemplated_prompt(model, request.messages)
    else:
        prompt = _chat_prompt(model, request, request.messages, images)
    if images:
        prompt = prompt._replace(images=_placed(model, images, prompt.ids))
    limit = _limit(model, request)
    if limit is None or len(prompt.ids) <= limit:
        return prompt
    if images:
        raise InvalidRequest.at("truncate_prompt_tokens", "would cut images")
    return prompt._replace(ids=_last(prompt.ids, limit, model.tokenizer.bos_id))


def echoed_text(model: LocalModel, request: Request, prompt: tuple[int, ...]) -> str | None:
    """What stands before the answer where the prompt is to be repeated: a plain prompt, or the assistant's last
    message, which the answer goes on with. None: nothing."""
    if not request.echo:
        return None
    if request.messages is not None:
        last = request.messages[-1] if request.messages else None
        return None if last is None or last.role != ASSISTANT else text_of(last.parts)
    (asked,) = request.prompts or ("",)
    if isinstance(asked, str) and request.truncate_prompt_tokens is None:
        return asked
    shown = prompt[num_added(model, asked, prompt) :]
    return b"".join(map(model.tokenizer.token_bytes, shown)).decode(errors="replace")


def num_added(model: LocalModel, asked: Prompt, prompt: tuple[int, ...]) -> int:
    """How many tokens a prompt begins with that the client did not write: a BOS, or none."""
    tokenizer = model.tokenizer
    if not isinstance(asked, str) or prompt[:1] != (tokenizer.bos_id,):
        return 0
    is_written = bool(tokenizer.bos_token) and asked.startswith(tokenizer.bos_token)
    return 0 if is_written and prompt[1:2] != (tokenizer.bos_id,) else 1


def _check_without_text(request: Request) -> None:
    """An answer that is token ids alone has nothing that is found in text."""
    asked = {"stop": request.sampling.stop, "tools": request.tools, "echo": request.echo}
    for name, value in asked.items():
        if value:
            raise InvalidRequest.at(name, "not together with detokenize: false")


def _limit(model: LocalModel, request: Request) -> int | None:
    """Tokens that a prompt may keep; -1 asks for as many as leave room for the answer."""
    limit = request.truncate_prompt_tokens
    if limit == 0:
        raise InvalidRequest.at("truncate_prompt_tokens", "expected 1 or more, or -1")
    if limit == CUT_TO_WINDOW:
        return max(model.engine.max_context - max(request.max_tokens or 0, 1), 1)
    return limit


def _last(ids: tuple[int, ...], limit: int, bos_id: int | None) -> tuple[int, ...]:
    """The last tokens. One that begins every text stays at the beginning."""
    if bos_id is not None and ids[0] == bos_id and limit > 1:
        return (bos_id, *ids[len(ids) - limit + 1 :])
    return ids[len(ids) - limit :]


def _plain_prompt(model: LocalModel, request: Request) -> tuple[int, ...]:
    (prompt,) = request.prompts or ("",)
    special = request.template.add_special_tokens if request.template is not None else None
    begins, tokenizer = special is not False, model.tokenizer
    if request.suffix is None:
        return tuple(tokenizer.encode(prompt, add_special_tokens=begins)) if isinstance(prompt, str) else prompt
    if model.infill is None:
        raise UnsupportedParameter.at("suffix", f"the model '{model.name}' was not trained to fill in")
    if request.echo:
        raise InvalidRequest.at("suffix", "not together with echo")

    def written(text: str) -> tuple[int, ...]:
        """What looks like a mark in it is text: a file may be about such marks."""
        return tuple(tokenizer.encode(tokenizer.quoted(text), add_special_tokens=False, quoted=True))

    before = written(prompt) if isinstance(prompt, str) else prompt
    filled = model.infill.prompt(before, written(request.suffix))
    bos_id = tokenizer.bos_id
    adds_bos = begins and bos_id is not None and tokenizer.encode("", add_special_tokens=True)[:1] == [bos_id]
    return (bos_id, *filled) if adds_bos and bos_id is not None else filled


def _untemplated_prompt(model: LocalModel, messages: Sequence[Message]) -> ModelPrompt:
    """Of a model without a template, what is said to it is its prompt, as Ollama has it."""
    text = "\n\n".join(text_of(message.parts) for message in messages)
    return ModelPrompt(tuple(model.tokenizer.encode(text, add_special_tokens=True)))


def _given_prompt(model: LocalModel, request: Request, ids: tuple[int, ...]) -> ModelPrompt:
    """A chat whose prompt the client has rendered itself."""
    _check_tools(model, request)
    form = model.formats.reasoning
    tail = b"".join(map(model.tokenizer.token_bytes, ids[-_TAIL:])).decode(errors="replace")
    return ModelPrompt(ids, form is not None and tail.rstrip().endswith(form.start))


def _placed(model: LocalModel, images: Sequence[ReadyImage], ids: Sequence[int]) -> tuple[ImageInput, ...]:
    """Each tile where its tokens stand in the prompt."""
    processor = model.images
    assert processor is not None
    places = [place for place, token_id in enumerate(ids) if token_id == processor.token_id]
    needed = sum(len(image.tiles) * image.tokens for image in images)
    if len(places) != needed:
        raise InvalidRequest.at("messages", f"the prompt has {len(places)} tokens for images, its images need {needed}")
    placed, used = [], 0
    for image in images:
        for tile in image.tiles:
            placed.append(ImageInput(places[used], tile, _content_key(tile)))
            used += image.tokens
    return tuple(placed)


def _content_key(tile: Pixels) -> bytes:
    """Of numbers and shape: those of one colour are alike in any shape."""
    key = sha256(ascii(tile.shape).encode())
    key.update(tile.data)
    return key.digest()


def _with_images(text: str, mark: str, images: Sequence[ReadyImage]) -> str:
    """What stands for each image in the place of its mark, of which there are as many."""
    before, *pieces = text.split(mark)
    return "".join([before, *(image.text + piece for image, piece in zip(images, pieces, strict=True))])


def _chat_prompt(
    model: LocalModel, request: Request, messages: Sequence[Message], images: Sequence[ReadyImage]
) -> ModelPrompt:
    _check_tools(model, request)
    template = _template(model, request)
    kwargs = thinking_variables(template, model.formats.reasoning, request.reasoning)
    quote = model.tokenizer.quoted
    mark = None if model.images is None else model.images.mark
    text = render_prompt(
        template,
        messages,
        request.tools,
        request.template,
        kwargs=kwargs,
        quote=quote,
        image_mark=mark,
        spelling=tools_as_text(model.formats.tools),
    )
    if images and mark is not None:
        text = _with_images(text, mark, images)
    opens_reasoning = _ends_inside(model.formats.reasoning, text, request, messages)
    begun = None if opens_reasoning else _begun_call(model, request)
    if begun is not None:
        text += begun.text
    ids = tuple(model.tokenizer.encode(text, add_special_tokens=_adds_special(request), quoted=True))
    return ModelPrompt(ids, opens_reasoning, None if begun is None else begun.tool)


def _adds_special(request: Request) -> bool:
    """A template writes them itself, so they are added to a chat only where that is asked for."""
    return request.template is not None and bool(request.template.add_special_tokens)


def _template(model: LocalModel, request: Request) -> ChatTemplate:
    """The request's own template, or the model's."""
    own = None if request.template is None else request.template.chat_template
    if own is not None:
        return request_template(own, model.tokenizer.bos_token, model.tokenizer.eos_token)
    if model.template is None:
        raise UnsupportedParameter.at("messages", f"the model '{model.name}' has no chat template; use completions")
    return model.template


class _BegunCall(NamedTuple):
    tool: str
    text: str


def _begun_call(model: LocalModel, request: Request) -> _BegunCall | None:
    """The call of a tool that was chosen by name, which the prompt can begin: the model does not think first."""
    choice, effort = request.tool_choice, None if request.reasoning is None else request.reasoning.effort
    thinks = model.formats.reasoning is not None and effort != "none"
    if choice is None or choice.name is None or model.formats.tools is None or thinks:
        return None
    quote = model.tokenizer.quoted
    text = begun_call(model.formats.tools, quote(choice.name), quote(json.dumps(choice.name, ensure_ascii=False)))
    return None if text is None else _BegunCall(choice.name, text)


def _ends_inside(form: ReasoningFormat | None, prompt: str, request: Request, messages: Sequence[Message]) -> bool:
    """Whether the prompt, or the final message that is to be continued, has opened reasoning and not closed it."""
    if form is None:
        return False
    if request.template is not None and request.template.continue_final_message:
        begun = text_of(messages[-1].parts)
        return begun.rfind(form.start) > begun.rfind(form.end)
    return prompt.rstrip().endswith(form.start)


def _check_tools(model: LocalModel, request: Request) -> None:
    """A call can be read back only in a known form."""
    if request.tools and not model.formats.reads_calls:
        raise UnsupportedParameter.at(
            "tools", f"the form in which the model '{model.name}' writes tool calls is not known; set its tool_format"
        )
