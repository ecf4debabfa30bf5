"""Key names people write, mapped to the names Playwright's keyboard knows."""

from __future__ import annotations

from omniboxes.errors import InvalidRequest

_ALIASES = {
    "alt": "Alt", "option": "Alt", "altgraph": "AltGraph",
    "ctrl": "Control", "control": "Control", "ctl": "Control",
    "shift": "Shift",
    "cmd": "Meta", "command": "Meta", "meta": "Meta", "super": "Meta", "win": "Meta",
    "windows": "Meta", "controlormeta": "ControlOrMeta",
    "enter": "Enter", "return": "Enter", "ret": "Enter",
    "esc": "Escape", "escape": "Escape",
    "tab": "Tab", "space": " ", "spacebar": " ",
    "backspace": "Backspace", "back_space": "Backspace", "bksp": "Backspace",
    "delete": "Delete", "del": "Delete", "insert": "Insert", "ins": "Insert",
    "home": "Home", "end": "End",
    "pageup": "PageUp", "page_up": "PageUp", "pgup": "PageUp",
    "pagedown": "PageDown", "page_down": "PageDown", "pgdn": "PageDown", "pgdown": "PageDown",
    "up": "ArrowUp", "down": "ArrowDown", "left": "ArrowLeft", "right": "ArrowRight",
    "arrowup": "ArrowUp", "arrowdown": "ArrowDown", "arrowleft": "ArrowLeft",
    "arrowright": "ArrowRight", "arrow_up": "ArrowUp", "arrow_down": "ArrowDown",
    "arrow_left": "ArrowLeft", "arrow_right": "ArrowRight",
    "capslock": "CapsLock", "caps_lock": "CapsLock", "numlock": "NumLock",
    "scrolllock": "ScrollLock", "pause": "Pause", "printscreen": "PrintScreen",
    "contextmenu": "ContextMenu", "menu": "ContextMenu",
    "plus": "+", "minus": "-", "comma": ",", "period": ".", "dot": ".", "slash": "/",
    "backslash": "\\", "semicolon": ";", "equal": "=", "equals": "=", "quote": "'",
    "backquote": "`", "bracketleft": "[", "bracketright": "]",
}  # fmt: skip

_FUNCTION_KEYS = {f"f{n}": f"F{n}" for n in range(1, 25)}
_NUMPAD = {f"numpad{n}": f"Numpad{n}" for n in range(10)}
_NAMES = _ALIASES | _FUNCTION_KEYS | _NUMPAD

MODIFIERS = frozenset({"Alt", "AltGraph", "Control", "Shift", "Meta", "ControlOrMeta"})


def key_name(written: str) -> str:
    """Return Playwright's name for a key; raises InvalidRequest when nobody would know it."""
    if len(written) == 1:
        return written
    trimmed = written.strip()
    known = _NAMES.get(trimmed.lower().replace("-", "_"))
    if known is not None:
        return known
    if len(trimmed) == 1:
        return trimmed
    # Physical key names: KeyA, Digit1.
    if len(trimmed) == 4 and trimmed.startswith("Key") and trimmed[3].isupper():
        return trimmed
    if len(trimmed) == 6 and trimmed.startswith("Digit") and trimmed[5].isdigit():
        return trimmed
    raise InvalidRequest(f"keypress: keys: {written!r} is not a key name")


def key_names(written: list[str]) -> list[str]:
    """Return the keys of a combination; `ctrl+a` in one string is two keys."""
    names: list[str] = []
    for item in written:
        parts = item.split("+") if len(item) > 1 and item != "++" else [item]
        if item.endswith("++"):
            parts = [*item[:-2].split("+"), "+"]
        names.extend(key_name(part) for part in parts if part)
    if not names:
        raise InvalidRequest("keypress: keys: names no key")
    return names
