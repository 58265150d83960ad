from adapters.usage_fields import told_apart


def test_fields_of_the_usage_lose_its_name_and_others_stay_as_they_are() -> None:
    fields = {"usage.cost": b"1", "usage": b"2", "usages.x": b"3", "usage.a.b": b"4"}
    assert told_apart(fields, "usage") == ({"usage": b"2", "usages.x": b"3"}, {"cost": b"1", "a.b": b"4"})
