"""Every text of a request is looked at, also that of its files."""

from adapters.canonical.messages import Document, File, MediaSource, Message, Text, ToolResult
from adapters.canonical.request import Request
from gateway.guardrails.request_texts import texts_of, with_texts

TABLE = File(source=MediaSource(data="YSxi", media_type="text/csv"), filename="t.csv")
PAPER = File(source=MediaSource(data="JVBERi0="))
ASKED = Request(
    model="m",
    dialect="chat",
    messages=(
        Message(role="user", parts=(Text(text="sum"), TABLE, PAPER)),
        Message(role="tool", parts=(ToolResult(call_id="c", parts=(Document(text="d"),)),)),
    ),
)


def test_files_and_documents_of_text_are_texts() -> None:
    assert texts_of(ASKED) == ["sum", "a,b", "d"]


def test_a_file_whose_text_is_changed_becomes_a_document_and_any_other_stays_as_it_came() -> None:
    assert with_texts(ASKED, texts_of(ASKED)) == ASKED
    first, second = with_texts(ASKED, ["sum", "a,*", "*"]).messages or ()
    assert first.parts == (Text(text="sum"), Document(title="t.csv", text="a,*"), PAPER)
    assert second.parts == (ToolResult(call_id="c", parts=(Document(text="*"),)),)
