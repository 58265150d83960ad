"""Every field of Converse, as botocore's service model has it: where it comes from, or why it is not sent or read."""

from typing import Any

import pytest
from botocore.session import get_session

from adapters.bedrock.vocabulary import STOP_REASONS

MAPPED, DEFAULTS, OPAQUE, PASSED_OVER = "mapped", "by the provider's `params:`", "reported as it is", "passed over"
REQUEST = {
    "modelId": MAPPED,  # in the path
    "messages": MAPPED,
    "system": MAPPED,
    "inferenceConfig": MAPPED,
    "toolConfig": MAPPED,
    "outputConfig": MAPPED,
    "serviceTier": MAPPED,
    "requestMetadata": MAPPED,
    "additionalModelRequestFields": MAPPED,
    "guardrailConfig": DEFAULTS,
    "performanceConfig": DEFAULTS,
    "promptVariables": DEFAULTS,
    "additionalModelResponseFieldPaths": DEFAULTS,
    "projectIdentifier": DEFAULTS,
}
BLOCKS = {
    "text": MAPPED,
    "image": MAPPED,
    "document": MAPPED,
    "video": MAPPED,
    "audio": MAPPED,
    "toolUse": MAPPED,
    "toolResult": MAPPED,
    "cachePoint": MAPPED,
    "reasoningContent": MAPPED,
    "citationsContent": MAPPED,
    "guardContent": OPAQUE,
    "searchResult": OPAQUE,
    "toolAddition": OPAQUE,
    "toolRemoval": OPAQUE,
}
INFERENCE = dict.fromkeys(("maxTokens", "temperature", "topP", "stopSequences"), MAPPED)
RESPONSE = {
    "output": MAPPED,
    "stopReason": MAPPED,
    "usage": MAPPED,
    "metrics": OPAQUE,
    "additionalModelResponseFields": OPAQUE,
    "trace": OPAQUE,
    "performanceConfig": OPAQUE,
    "serviceTier": OPAQUE,
}
STREAM = {
    "messageStart": MAPPED,
    "contentBlockStart": MAPPED,
    "contentBlockDelta": MAPPED,
    "contentBlockStop": MAPPED,
    "messageStop": MAPPED,
    "metadata": MAPPED,
    "internalServerException": MAPPED,
    "modelStreamErrorException": MAPPED,
    "validationException": MAPPED,
    "throttlingException": MAPPED,
    "serviceUnavailableException": MAPPED,
}
DELTA = {
    "text": MAPPED,
    "toolUse": MAPPED,
    "reasoningContent": MAPPED,
    "citation": MAPPED,
    "toolResult": PASSED_OVER,  # of tools that the service runs; the text that follows tells what they gave
    "image": PASSED_OVER,
}
USAGE = {
    "inputTokens": MAPPED,
    "outputTokens": MAPPED,
    "totalTokens": MAPPED,
    "cacheReadInputTokens": MAPPED,
    "cacheWriteInputTokens": MAPPED,
    "cacheDetails": PASSED_OVER,
}
TOOL = dict.fromkeys(("name", "description", "inputSchema", "strict"), MAPPED)
CHOICE = dict.fromkeys(("auto", "any", "tool"), MAPPED)


@pytest.mark.parametrize(
    ("shape", "stated"),
    [
        ("ConverseRequest", REQUEST),
        ("ContentBlock", BLOCKS),
        ("InferenceConfiguration", INFERENCE),
        ("ToolSpecification", TOOL),
        ("ToolChoice", CHOICE),
        ("ConverseResponse", RESPONSE),
        ("ConverseStreamOutput", STREAM),
        ("ContentBlockDelta", DELTA),
        ("TokenUsage", USAGE),
    ],
)
def test_every_field_of_the_service_model_is_stated(shape: str, stated: dict[str, Any]) -> None:
    model = get_session().get_service_model("bedrock-runtime")
    assert set(model.shape_for(shape).members) == set(stated)


def test_every_stop_reason_of_the_service_model_is_known() -> None:
    known = set(get_session().get_service_model("bedrock-runtime").shape_for("StopReason").enum)
    assert known - set(STOP_REASONS) == {"malformed_model_output", "malformed_tool_use"}
