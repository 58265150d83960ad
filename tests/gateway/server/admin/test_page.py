"""The page of usage: made whole, for who shows an admin's key as a password, and no name in it is more than a name."""

from base64 import b64encode
from html.parser import HTMLParser
from pathlib import Path

import pytest

from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.admin.test_keys import AUTH, administered, ask
from tests.gateway.server.running import HELLO, Running, error_of, running
from tests.gateway.server.test_limits import PRICED, prices

COST = (400 * 2 + 400 * 0.5 + 200 * 3 + 100 * 10) / 1e6
VOID = ("meta", "link")


def password(word: str) -> dict[str, str]:
    return {"Authorization": f"Basic {b64encode(f'anybody:{word}'.encode()).decode()}"}


ADMIN = password("secret-of-admin")


class Page(HTMLParser):
    """The texts of cells, and the bars; fails where tags do not close each other."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.bars: list[float] = []
        self.titles: list[str] = []
        self.caption = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in VOID:
            return
        self.open.append(tag)
        if tag == "rect":
            self.bars.append(float(dict(attrs)["height"] or "nan"))
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "td":
            self.cells[-1] += data
        elif self.open and self.open[-1] == "title":
            self.titles.append(data)
        elif self.open and self.open[-1] == "figcaption":
            self.caption += data


async def page(gateway: Running, query: str = "") -> Page:
    async with gateway.session.get(f"{gateway.url}/admin{query}", headers=ADMIN) as answer:
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["content-security-policy"].startswith("default-src 'none';")
        assert answer.headers["cache-control"] == "no-store"
        return Page(await answer.text())


async def test_usage_is_shown_by_day_and_by_key_what_cost_most_first(tmp_path: Path) -> None:
    async with administered(AUTH + prices(tmp_path), PRICED) as gateway:
        for key in ("plain", "admin", "admin"):
            assert await ask(gateway, f"secret-of-{key}") == 200
        shown = await page(gateway)
        assert shown.cells == [
            *("root", "2", "0", "2,000", "200", f"${COST * 2:.6f}"),
            *("plain", "1", "0", "1,000", "100", f"${COST:.6f}"),
        ]
        assert len(shown.bars) == 30
        assert (shown.bars[:-1], shown.bars[-1]) == ([0.0] * 29, 160.0)
        assert shown.titles[-1].endswith(f": ${COST * 3:.6f}")
        assert shown.caption.startswith("Dollars a day (UTC), from ")
        assert shown.caption.endswith(f"; at most ${COST * 3:.6f}")
        by_model = await page(gateway, "?days=7&by=model")
        assert (by_model.cells[0], len(by_model.bars)) == ("fake/m", 7)


async def test_without_prices_the_bars_are_of_tokens() -> None:
    async with administered() as gateway:
        assert await ask(gateway, "secret-of-plain") == 200
        shown = await page(gateway)
        assert shown.cells == ["plain", "1", "0", "3", "2", "$0.00"]
        assert shown.titles[-1].endswith(": 5 tokens")


async def test_a_name_is_a_name_whatever_is_in_it(tmp_path: Path) -> None:
    name = "<script>x</script>&amp;"
    async with administered(AUTH + f"models: {{'{name}': fake/m}}\n") as gateway:
        assert await ask(gateway, "secret-of-plain", name) == 200
        assert (await page(gateway, "?by=model")).cells[0] == name


@pytest.mark.parametrize("query", ["?days=8", "?days=x", "?by=day", "?by=colour"])
async def test_what_cannot_be_shown_is_refused_by_its_field(query: str) -> None:
    async with (
        administered() as gateway,
        gateway.session.get(f"{gateway.url}/admin{query}", headers=ADMIN) as answer,
    ):
        assert answer.status == 400
        assert (await error_of(answer))["param"] == query[1:].partition("=")[0]


async def test_a_browser_is_asked_for_a_password_and_only_an_admins_key_is_one() -> None:
    async with administered() as gateway:
        for path in ("/admin", "/admin/"):
            for headers, status in (({}, 401), (password("x"), 401), (password("secret-of-plain"), 403), (ADMIN, 200)):
                async with gateway.session.get(f"{gateway.url}{path}", headers=headers) as answer:
                    assert answer.status == status
                    asked = answer.headers.get("www-authenticate")
                    assert asked == ('Basic realm="gateway", charset="UTF-8"' if status == 401 else None)
        async with gateway.session.get(f"{gateway.url}/admin", headers={"authorization": "Basic ???"}) as answer:
            assert answer.status == 401
        async with gateway.session.get(f"{gateway.url}/admin", headers={"x-api-key": "secret-of-admin"}) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/admin/usage"), ("POST", "/admin/reload"), ("GET", "/v1/models")]
)
async def test_nothing_but_the_page_takes_a_password(method: str, path: str) -> None:
    async with (
        administered() as gateway,
        gateway.session.request(method, gateway.url + path, headers=ADMIN) as answer,
    ):
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == "Bearer"


async def test_where_nothing_is_kept_the_page_says_so() -> None:
    async with (
        running(ScriptedProvider("fake", HELLO)) as gateway,
        gateway.session.get(f"{gateway.url}/admin") as answer,
    ):
        assert answer.status == 200
        assert "Usage is kept once" in await answer.text()
