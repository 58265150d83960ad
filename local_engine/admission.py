"""What a request must satisfy before an engine takes it: the numbers that need a model, and no state.

`sampling` checks the ranges that hold for every model. What is refused here has reached no scheduler.
"""

from local_engine.errors import ContextOverflow, InvalidInput
from local_engine.generation import MAX_CONTEXT_LOGITS, GenerationRequest
from local_engine.vision_config import VisionConfig

__all__ = ["check_request"]


def check_request(
    request: GenerationRequest,
    *,
    max_context: int,
    vocab_size: int,
    max_sequences: int,
    vision: VisionConfig | None = None,
) -> None:
    """Raises InvalidInput naming the parameter, or ContextOverflow. vision: of a model that reads images."""
    if type(request.priority) is not int or not -(2**31) <= request.priority < 2**31:
        raise InvalidInput("priority", "must be a 32-bit integer")
    prompt, sampling = request.prompt, request.sampling
    if not prompt:
        raise InvalidInput("prompt", "has no tokens")
    if len(prompt) >= max_context:
        raise ContextOverflow(prompt_tokens=len(prompt), limit=max_context)
    # Set, min and max first: they run at C speed over the 100,000 ids that a prompt may have.
    if set(map(type, prompt)) != {int} or min(prompt) < 0 or max(prompt) >= vocab_size:
        valid = (type(token_id) is int and 0 <= token_id < vocab_size for token_id in prompt)
        index = next(index for index, good in enumerate(valid) if not good)
        raise InvalidInput("prompt", f"item {index} is no token id below {vocab_size}")
    if request.images:
        _check_images(request, vision)
    room = max_context - len(prompt)
    if sampling.max_tokens is not None and sampling.max_tokens > room:
        raise ContextOverflow(prompt_tokens=len(prompt), limit=max_context, max_tokens=sampling.max_tokens)
    if sampling.min_tokens > room:
        raise InvalidInput("min_tokens", f"{sampling.min_tokens} exceeds the {room} tokens that fit")
    for param, token_id in sampling.token_ids():
        if token_id >= vocab_size:
            raise InvalidInput(param, f"token id {token_id} is not below the vocabulary's size, {vocab_size}")
    for param, count in (("logprobs", sampling.logprobs), ("prompt_logprobs", sampling.prompt_logprobs)):
        if count is not None and count > vocab_size:
            raise InvalidInput(param, f"{count} exceeds the vocabulary's size, {vocab_size}")
    if sampling.width > max_sequences:
        param = "n" if sampling.best_of is None else "best_of"
        raise InvalidInput(param, f"{sampling.width} exceeds the {max_sequences} sequences that run at once")
    if sampling.context_logits and len(prompt) * vocab_size > MAX_CONTEXT_LOGITS:
        longest = MAX_CONTEXT_LOGITS // vocab_size
        raise InvalidInput("context_logits", f"can be had of {longest} tokens at most, the prompt has {len(prompt)}")


def _check_images(request: GenerationRequest, vision: VisionConfig | None) -> None:
    if vision is None:
        raise InvalidInput("images", "the model reads none")
    side, end = vision.image_size, 0
    for number, image in enumerate(request.images):
        shape = image.pixels.shape
        grid = vision.grid(*shape[1:]) if len(shape) == 3 and shape[0] == 3 else None
        if grid is None:
            expected = f"({side}, {side})" if side is not None else f"multiples of {vision.unit}"
            raise InvalidInput("images", f"item {number} has shape {shape}, expected 3 channels of {expected}")
        count = grid[0] * grid[1]
        stop = image.start + count
        if image.start < end or request.prompt[image.start : stop] != (vision.token_id,) * count:
            raise InvalidInput("images", f"item {number} has no {count} tokens of its own at {image.start}")
        end = stop
