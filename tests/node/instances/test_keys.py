"""Key names and the events made of them; no browser needed."""

import pytest

from omniboxes.errors import InvalidRequest
from omniboxes.node.instances import _keys


def names(*written: str) -> list[str]:
    return [key.key for key in _keys.combination(list(written))]


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("ctrl", "Control"), ("CTRL", "Control"), ("control", "Control"), ("Control_L", "Control"),
        ("return", "Enter"), ("ENTER", "Enter"), ("esc", "Escape"), ("escape", "Escape"),
        ("up", "ArrowUp"), ("Up Arrow", "ArrowUp"), ("arrow_left", "ArrowLeft"),
        ("pgdn", "PageDown"), ("Page Down", "PageDown"), ("page-up", "PageUp"),
        ("option", "Alt"), ("cmd", "Meta"), ("super", "Meta"), ("win", "Meta"),
        ("space", " "), (" ", " "), ("backspace", "Backspace"), ("del", "Delete"),
        ("/", "/"), ("\\", "\\"), ("a", "a"), ("Z", "Z"), ("slash", "/"), ("plus", "+"),
        ("F5", "F5"), ("f24", "F24"), ("KeyQ", "q"), ("digit7", "7"), ("BracketLeft", "["),
        ("kp_enter", "Enter"), ("Numpad 4", "4"), (" x ", "x"), ("\n", "Enter"),
    ],
)  # fmt: skip
def test_names_people_write_are_known(written: str, key: str) -> None:
    assert names(written) == [key]


@pytest.mark.parametrize(
    ("written", "keys"),
    [
        ("ctrl+a", ["Control", "a"]),
        ("Ctrl + Shift + T", ["Control", "Shift", "T"]),
        ("ctrl-c", ["Control", "c"]),
        ("ctrl++", ["Control", "+"]),
        ("ctrl+-", ["Control", "-"]),
        ("shift+page-down", ["Shift", "PageDown"]),
        ("+", ["+"]),
        ("-", ["-"]),
    ],
)
def test_combination_in_one_string_is_taken_apart(written: str, keys: list[str]) -> None:
    assert names(written) == keys


@pytest.mark.parametrize("written", ["F25", "nosuchkey", "ctrl+", "+a", "++", "--", "  "])
def test_what_is_no_key_is_refused_by_name(written: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a key name"):
        names(written)


def test_keys_go_down_in_order_and_up_in_reverse() -> None:
    events = [params for _, params in _keys.press(_keys.combination(["ctrl", "shift", "k"]))]
    assert [(e["type"], e["key"], e["modifiers"]) for e in events] == [
        ("rawKeyDown", "Control", 2),
        ("rawKeyDown", "Shift", 10),
        ("rawKeyDown", "K", 10),
        ("keyUp", "K", 10),
        ("keyUp", "Shift", 2),
        ("keyUp", "Control", 0),
    ]
    # A shortcut types nothing.
    assert not any(e.get("text") for e in events)


def test_text_is_typed_key_by_key_and_inserted_where_there_is_none() -> None:
    messages = [
        (method, params.get("text"))
        for method, params in _keys.typed("aé日\r\nb")
        if params.get("type") != "keyUp"
    ]
    assert messages == [
        ("Input.dispatchKeyEvent", "a"),
        ("Input.insertText", "é日"),
        ("Input.dispatchKeyEvent", "\r"),
        ("Input.dispatchKeyEvent", "b"),
    ]
