"""Keys: the names people write, the keys of a US keyboard behind them, and their CDP events."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from omniboxes.errors import InvalidRequest

Message = tuple[str, dict[str, Any]]


class Key(NamedTuple):
    """A key as a page sees it."""

    key: str
    code: str
    key_code: int
    text: str = ""
    location: int = 0


NUMPAD = 3
_BITS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}
# On macOS the system, not the page, turns a shortcut into its editing command.
_MAC_COMMANDS = {"a": "selectAll", "c": "copy", "v": "paste", "x": "cut", "z": "undo"}

# Name, code when it differs, Windows key code, text.
_NAMED = (
    Key("Enter", "Enter", 13, "\r"), Key("Escape", "Escape", 27), Key("Tab", "Tab", 9),
    Key(" ", "Space", 32, " "), Key("Backspace", "Backspace", 8), Key("Delete", "Delete", 46),
    Key("Insert", "Insert", 45), Key("Home", "Home", 36), Key("End", "End", 35),
    Key("PageUp", "PageUp", 33), Key("PageDown", "PageDown", 34),
    Key("ArrowUp", "ArrowUp", 38), Key("ArrowDown", "ArrowDown", 40),
    Key("ArrowLeft", "ArrowLeft", 37), Key("ArrowRight", "ArrowRight", 39),
    Key("Alt", "AltLeft", 18, location=1), Key("AltGraph", "AltRight", 225, location=2),
    Key("Control", "ControlLeft", 17, location=1), Key("Shift", "ShiftLeft", 16, location=1),
    Key("Meta", "MetaLeft", 91, location=1), Key("CapsLock", "CapsLock", 20),
    Key("NumLock", "NumLock", 144), Key("ScrollLock", "ScrollLock", 145),
    Key("Pause", "Pause", 19), Key("PrintScreen", "PrintScreen", 44),
    Key("ContextMenu", "ContextMenu", 93), Key("Help", "Help", 47), Key("Clear", "Clear", 12),
    *(Key(f"F{n}", f"F{n}", 111 + n) for n in range(1, 25)),
)  # fmt: skip

# Code, key code, the character without and with Shift.
_PRINTED = (
    *((f"Key{letter}", ord(letter), letter.lower(), letter) for letter in map(chr, range(65, 91))),
    *((f"Digit{n}", 48 + n, str(n), shifted) for n, shifted in enumerate(")!@#$%^&*(")),
    ("Semicolon", 186, ";", ":"), ("Equal", 187, "=", "+"), ("Comma", 188, ",", "<"),
    ("Minus", 189, "-", "_"), ("Period", 190, ".", ">"), ("Slash", 191, "/", "?"),
    ("Backquote", 192, "`", "~"), ("BracketLeft", 219, "[", "{"), ("Backslash", 220, "\\", "|"),
    ("BracketRight", 221, "]", "}"), ("Quote", 222, "'", '"'),
)  # fmt: skip

_BY_CHARACTER = {
    character: Key(character, code, key_code, character)
    for code, key_code, *both in _PRINTED
    for character in both
} | {" ": Key(" ", "Space", 32, " "), "\n": _NAMED[0], "\r": _NAMED[0]}
_SHIFTED = {plain: _BY_CHARACTER[shifted] for _, _, plain, shifted in _PRINTED}


def _plain(written: str) -> str:
    """Return a name without case, spaces, underscores and hyphens."""
    return re.sub(r"[\s_-]", "", written).lower()


_PLATFORM = "Meta" if sys.platform == "darwin" else "Control"
_OTHER_NAMES = {
    "Alt": "option alt_l alt_r opt", "AltGraph": "altgr iso_level3_shift",
    "Control": "ctrl ctl ctrl_l ctrl_r control_l control_r strg",
    "Shift": "shift_l shift_r",
    "Meta": "cmd command super super_l super_r win windows os meta_l meta_r",
    "Enter": "return ret linefeed newline kp_enter numpad_enter",
    "Escape": "esc", " ": "space spacebar", "Backspace": "bksp back_space",
    "Delete": "del", "Insert": "ins", "PageUp": "pgup prior", "PageDown": "pgdn pgdown next",
    "ArrowUp": "up up_arrow", "ArrowDown": "down down_arrow",
    "ArrowLeft": "left left_arrow", "ArrowRight": "right right_arrow",
    "CapsLock": "caps", "PrintScreen": "print prtsc prt_scr", "ContextMenu": "menu apps",
    "Pause": "break",
    "+": "plus add", "-": "minus hyphen subtract dash", ",": "comma", ".": "period dot point",
    "/": "slash forward_slash divide", "\\": "backslash", ";": "semicolon", ":": "colon",
    "=": "equal equals", "'": "quote apostrophe single_quote", '"': "double_quote",
    "`": "backquote grave backtick", "[": "bracket_left left_bracket",
    "]": "bracket_right right_bracket", "*": "asterisk star multiply", "_": "underscore",
    "?": "question question_mark", "!": "exclamation", "@": "at", "#": "hash number_sign",
    "$": "dollar", "%": "percent", "^": "caret", "&": "ampersand", "|": "pipe bar", "~": "tilde",
}  # fmt: skip


def _all_names() -> dict[str, Key]:
    keys = {key.key: key for key in _NAMED} | _BY_CHARACTER
    names = {_plain(key.key): key for key in _NAMED if key.key != " "}
    names |= {_plain(key.code): key for key in _NAMED}
    # Physical names: KeyA, Digit1, BracketLeft.
    names |= {_plain(code): _BY_CHARACTER[plain] for code, _, plain, _ in _PRINTED}
    for name, others in _OTHER_NAMES.items():
        names |= {_plain(other): keys[name] for other in others.split()}
    names |= dict.fromkeys(("controlormeta", "primary", "mod"), keys[_PLATFORM])
    for n in range(10):
        pad = Key(str(n), f"Numpad{n}", 96 + n, str(n), NUMPAD)
        names |= {f"{prefix}{n}": pad for prefix in ("numpad", "kp", "num")}
    return names


_NAMES = _all_names()
CONTROL_OR_META = next(key for key in _NAMED if key.key == _PLATFORM)
ENTER, TAB, BACKSPACE = _NAMED[0], _NAMED[2], _NAMED[4]


def key_named(written: str) -> Key:
    """Return the key that somebody means; raises InvalidRequest when nobody would know it."""
    character = written if len(written) == 1 else written.strip()
    if len(character) == 1:
        # A character that is on no key is still one that can be typed.
        return _BY_CHARACTER.get(character) or Key(character, "", 0, character)
    known = _NAMES.get(_plain(written))
    if known is None:
        raise InvalidRequest(f"keypress: keys: {written[:40]!r} is not a key name")
    return known


def combination(written: list[str]) -> list[Key]:
    """Return the keys of a combination; `ctrl+a` and `ctrl-a` in one string are two keys."""
    return [key_named(name) for item in written for name in _parts(item)]


def _parts(item: str) -> list[str]:
    if len(item.strip()) <= 1 or _plain(item) in _NAMES:
        return [item]
    for separator in "+-":
        head, found, last = item.rpartition(separator)
        if not found:
            continue
        if not last and head.endswith(separator):
            # `ctrl++` is Control and the key with the plus.
            head, last = head[:-1], separator
        parts = [*head.split(separator), last]
        if all(part.strip() for part in parts) and separator == "+":
            return parts
        if all(len(part) == 1 or _plain(part) in _NAMES for part in parts):
            return parts
    return [item]


def press(keys: list[Key]) -> Iterator[Message]:
    """Yield the events that press the keys together: down in order, up in reverse."""
    held = 0
    pressed: list[tuple[Key, int]] = []
    for key in keys:
        if held & _BITS["Shift"] and key.location != NUMPAD:
            key = _SHIFTED.get(key.key, key)
        down = held | _BITS.get(key.key, 0)
        # What a key types is typed with Shift at most; the rest are shortcuts.
        text = "" if down & ~_BITS["Shift"] else key.text
        more: dict[str, Any] = {"text": text, "unmodifiedText": text}
        if sys.platform == "darwin" and down & _BITS["Meta"] and key.key in _MAC_COMMANDS:
            more["commands"] = [_MAC_COMMANDS[key.key]]
        yield _event("keyDown" if text else "rawKeyDown", key, down, **more)
        pressed.append((key, held))
        held = down
    for key, before in reversed(pressed):
        yield _event("keyUp", key, before)


def typed(text: str) -> Iterator[Message]:
    """Yield the events that type a text; what no key has is inserted as it is."""
    for run in re.findall(r"\r\n|[\r\n]|[ -~]|[^ -~\r\n]+", text):
        key = _BY_CHARACTER.get(run[0])
        if key is None:
            yield "Input.insertText", {"text": run}
        else:
            yield from press([key])


def _event(kind: str, key: Key, modifiers: int, **more: Any) -> Message:
    params = {
        "type": kind,
        "key": key.key,
        "code": key.code,
        "windowsVirtualKeyCode": key.key_code,
        "modifiers": modifiers,
        "location": key.location,
        "isKeypad": key.location == NUMPAD,
    }
    return "Input.dispatchKeyEvent", {**params, **more}
