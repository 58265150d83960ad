import asyncio
import json
import re
from contextlib import aclosing
from pathlib import Path

import pytest

from gateway.cli import main
from gateway.storage.bounds import Bounds
from gateway.storage.opening import open_stores
from gateway.storage.place import FilePlace
from gateway.usage.row import UsageRow

NOVEMBER = 1_793_700_000  # 2026-11-03


def used(key: str, model: str, cost_usd: float | None, at: float = NOVEMBER) -> UsageRow:
    nano = None if cost_usd is None else int(cost_usd * 1e9)
    return UsageRow(at, "r", key, model, "p", "m", "first", "ok", 10, 5, None, None, None, False, nano, 1, 1)


async def keep(path: Path, *rows: UsageRow) -> None:
    async with aclosing(await open_stores(FilePlace(path), Bounds(1e9, 1 << 30), lambda: NOVEMBER)) as stores:
        await stores.usage.add(rows)


@pytest.fixture
def config(tmp_path: Path) -> list[str]:
    path, kept = tmp_path / "run.yaml", tmp_path / "gateway.db"
    path.write_text(
        "version: 1\nproviders: {p: {type: openai-compatible, base_url: 'http://127.0.0.1:9/v1'}}\n"
        f"storage: {{url: 'sqlite:///{kept}'}}\n"
    )
    rows = used("a", "fast", 0.5), used("a", "fast", 0.25), used("b", "fast", 2, NOVEMBER + 86_400), used("", "x", None)
    asyncio.run(keep(kept, *rows))
    return ["--config", str(path), "--since", "2026-11-01", "--until", "2026-12-01"]


def test_usage_is_a_table_with_its_sums(config: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage", *config]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1:] == [
        ["key", "model", "attempts", "failed", "prompt_tokens", "completion_tokens", "cost_usd"],
        ["-", "x", "1", "0", "10", "5", "0.000000"],
        ["a", "fast", "2", "0", "20", "10", "0.750000"],
        ["b", "fast", "1", "0", "10", "5", "2.000000"],
        ["total", "4", "0", "40", "20", "2.750000"],
    ]


def test_usage_is_a_table_for_spreadsheets(config: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage", *config, "--by", "key,day", "--model", "fast", "--csv"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "key,day,attempts,failed,estimated,prompt_tokens,completion_tokens,cached_tokens,cache_write_tokens,"
        "reasoning_tokens,cost_usd",
        "a,2026-11-03,2,0,0,20,10,0,0,0,0.75",
        "b,2026-11-04,1,0,0,10,5,0,0,0,2.0",
    ]


def test_usage_is_told_by_what_is_asked_for_and_in_json(config: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage", *config, "--by", "day", "--model", "fast", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["day"], row["attempts"], row["cost_usd"]) for row in rows] == [
        ("2026-11-03", 2, 0.75),
        ("2026-11-04", 1, 2.0),
    ]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--by", "colour"], "--by: expected some of key, team, end_user, model"),
        (["--since", "soon"], "--since: expected a date"),
    ],
)
def test_what_cannot_be_told_is_one_line_and_status_1(
    config: list[str], arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["usage", *config, *arguments]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert why in said


def test_where_nothing_was_kept_nothing_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, kept = tmp_path / "run.yaml", tmp_path / "gateway.db"
    path.write_text(f"version: 1\nstorage: {{url: 'sqlite:///{kept}'}}\n")
    assert main(["usage", "--config", str(path)]) == 0
    assert re.search("nothing was used .*: it is kept where the gateway has keys", capsys.readouterr().err)
    assert not kept.exists()
    path.write_text("version: 1\nstorage: {url: memory}\n")
    assert main(["usage", "--config", str(path)]) == 1
    assert "storage.url is memory" in capsys.readouterr().err
