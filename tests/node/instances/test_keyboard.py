"""Typing into fields and pressing keys, as the page sees it."""

import pytest

from omniboxes.errors import InvalidRequest
from tests.node.instances.driving import Session, reading

pytestmark = pytest.mark.browser

KEYS = [
    (["a"], "key=a code=KeyA held=none"),
    (["A"], "key=A code=KeyA held=none"),
    (["/"], "key=/ code=Slash held=none"),
    (["return"], "key=Enter code=Enter held=none"),
    (["Enter"], "key=Enter code=Enter held=none"),
    (["esc"], "key=Escape code=Escape held=none"),
    (["escape"], "key=Escape code=Escape held=none"),
    (["up"], "key=ArrowUp code=ArrowUp held=none"),
    (["ArrowDown"], "key=ArrowDown code=ArrowDown held=none"),
    (["page_down"], "key=PageDown code=PageDown held=none"),
    (["space"], "key=  code=Space held=none"),
    (["del"], "key=Delete code=Delete held=none"),
    (["F5"], "key=F5 code=F5 held=none"),
    (["f12"], "key=F12 code=F12 held=none"),
    (["numpad5"], "key=5 code=Numpad5 held=none"),
    (["ctrl", "a"], "key=a code=KeyA held=ctrl"),
    (["Control", "k"], "key=k code=KeyK held=ctrl"),
    (["ctrl+a"], "key=a code=KeyA held=ctrl"),
    (["ctrl-shift-p"], "key=P code=KeyP held=ctrl+shift"),
    (["shift", "a"], "key=A code=KeyA held=shift"),
    (["shift", "/"], "key=? code=Slash held=shift"),
    (["alt", "left"], "key=ArrowLeft code=ArrowLeft held=alt"),
    (["cmd", "c"], "key=c code=KeyC held=meta"),
    (["ctrl++"], "key=+ code=Equal held=ctrl"),
    (["é"], "key=é code= held=none"),
]


@pytest.mark.parametrize(("keys", "seen"), KEYS, ids=["+".join(keys) for keys, _ in KEYS])
async def test_key_reaches_the_page_under_every_name(
    shared: Session, keys: list[str], seen: str
) -> None:
    await shared.visit("keys.html")
    await shared.execute("keypress", keys=keys)
    log = (await shared.text("log")).splitlines()
    assert f"keydown {seen}" in log
    assert f"keyup {seen}" in log
    # What is pressed is released: nothing is held when the next key comes.
    await shared.execute("keypress", keys=["b"])
    assert await shared.text("last") == "keyup key=b code=KeyB held=none"


async def test_function_key_is_the_pages_not_the_browsers(shared: Session) -> None:
    await shared.visit("keys.html")
    step = await shared.step("keypress", keys=["F5"], options=reading("f5-count"))
    assert step.value == "1"


async def test_slash_focuses_the_search_as_on_many_sites(shared: Session) -> None:
    await shared.visit("keys.html")
    step = await shared.step("keypress", keys=["/"], options=reading("focused"))
    assert step.value == "search"


async def test_select_all_then_typing_replaces_the_text(session: Session) -> None:
    await session.visit("keys.html")
    at = await session.centre("text")
    await session.execute("click_coords", **at)
    step = await session.step("keypress", keys=["ctrl", "a"], options=reading("selected"))
    assert step.value == "hello world"
    step = await session.step("keypress", keys=["x"], options=reading("value"))
    assert step.value == "x"


async def test_copy_and_paste_work(session: Session) -> None:
    await session.visit("keys.html")
    await session.execute("click_coords", **await session.centre("text"))
    for keys in (["ctrl", "a"], ["ctrl", "c"], ["End"], ["ctrl", "v"]):
        await session.execute("keypress", keys=keys)
    assert await session.text("value") == "hello worldhello world"


@pytest.mark.parametrize("keys", [["nosuchkey"], ["ctrl", "nosuchkey"], ["ctrl+nosuchkey"]])
async def test_unknown_key_is_refused_by_name(shared: Session, keys: list[str]) -> None:
    await shared.visit("keys.html")
    with pytest.raises(InvalidRequest, match="'nosuchkey' is not a key name"):
        await shared.execute("keypress", keys=keys)
    assert await shared.text("log") == ""


@pytest.mark.parametrize("keys", [[], [""], "a", None, [1], ["a"] * 11])
async def test_keys_that_are_no_list_of_names_are_refused(shared: Session, keys: object) -> None:
    with pytest.raises(InvalidRequest, match="keys"):
        await shared.execute("keypress", keys=keys)


async def test_enter_submits_the_form(session: Session) -> None:
    await session.visit("forms.html")
    at = await session.centre("search-input")
    step = await session.step("fill_coords", **at, value="green tea", options=reading("log"))
    assert step.metadata["url"].startswith(f"{session.site.url}/echo?")
    assert "search = green tea" in step.value


async def test_filling_without_deleting_inserts_at_the_caret(shared: Session) -> None:
    await shared.visit("forms.html")
    at = await shared.centre("text-input")
    step = await shared.step(
        "fill_coords", **at, value=" and more", press_enter=False, options=reading("value")
    )
    assert step.value == "text-input = preset and more"


async def test_filling_with_deleting_replaces_what_was_there(session: Session) -> None:
    await session.visit("forms.html")
    at = await session.centre("text-input")
    step = await session.step(
        "fill_coords",
        **at,
        value="New text!",
        delete_existing=True,
        press_enter=False,
        options=reading("value"),
    )
    assert step.value == "text-input = New text!"
    assert (await session.text("key-log")).split() == [
        "ctrl+Control", "ctrl+a", "Backspace", "N", "e", "w", "t", "e", "x", "t", "!",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "".join(map(chr, range(33, 127))),
        "héllo wörld, grüße",
        "mixed ä and b and 日本語 and c",
        "emoji 👩‍💻 ok",
        "tab\tinside",
    ],
)
async def test_typed_text_arrives_as_written(shared: Session, text: str) -> None:
    await shared.visit("forms.html")
    at = await shared.centre("text-input")
    await shared.execute("fill_coords", **at, value=text, delete_existing=True, press_enter=False)
    assert await shared.evaluate("document.getElementById('text-input').value") == text


async def test_lines_are_typed_into_a_text_area(shared: Session) -> None:
    await shared.visit("forms.html")
    at = await shared.centre("textarea")
    await shared.execute("fill_coords", **at, value="one\ntwo\r\nthree", press_enter=False)
    assert await shared.evaluate("textarea.value") == "one\ntwo\nthree"


async def test_editable_element_takes_text(shared: Session) -> None:
    await shared.visit("forms.html")
    at = await shared.centre("editable")
    await shared.execute("fill_coords", **at, value="Rich", delete_existing=True, press_enter=False)
    assert await shared.evaluate("editable.innerText.trim()") == "Rich"


async def test_long_text_is_inserted_whole(shared: Session) -> None:
    text = "All work and no play makes Jack a dull boy. " * 200
    await shared.visit("forms.html")
    at = await shared.centre("textarea")
    await shared.execute("fill_coords", **at, value=text, press_enter=False)
    assert await shared.evaluate("textarea.value") == text


async def test_tab_and_enter_activates_the_next_element(session: Session) -> None:
    await session.visit("navigate.html")
    step = await session.step("tab_and_enter")
    assert step.metadata["url"] == f"{session.site.url}/landing.html"
