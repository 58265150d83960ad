import pytest

from adapters.canonical.errors import InvalidRequest
from gateway.config.posted import parse_posted
from gateway.keys.stored import NewKey, Rotation


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('{"id": "a", "days": 0}', "days: expected more than 0"),
        ('{"id": "a", "limits": {"rpm": 0}}', "limits.rpm: expected at least 1"),
        ('{"id": "a", "limits": {"rpmm": 1}}', "limits.rpmm: unknown key 'rpmm', did you mean 'rpm'?"),
        ('{"id": "a", "max_budget": 1}', "max_budget: unknown key 'max_budget'; here it is 'budget' of each entry"),
        ('{"id": "a", "models": ["x", ""]}', "models[1]: expected text that is not empty"),
        ('{"id": "a b"}', "id: expected letters, digits, '.', '_' and '-', beginning with a letter or digit"),
        ('{"id": "a", "admin": "yes"}', "admin: expected true or false"),
        ("{}", "id: the key is missing"),
        ("[]", "body: expected a mapping"),
        ("{", "body: not valid JSON: "),
    ],
)
def test_what_is_wrong_with_a_body_is_told_in_the_words_of_run_yaml(body: str, why: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_posted(NewKey, body.encode())
    assert refused.value.message.startswith(why)
    assert refused.value.param == (why.partition(":")[0] if not why.startswith("body") else None)


def test_a_limit_is_told_in_figures() -> None:
    with pytest.raises(InvalidRequest, match=r"grace_s: expected at most 2592000$"):
        parse_posted(Rotation, b'{"grace_s": 1e12}')
