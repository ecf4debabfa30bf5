"""Write the tables of docs/ that the code knows best: settings, endpoints, commands, errors.

python tools/generate_docs.py          write them
python tools/generate_docs.py --check  fail when a table is not what the code says
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pydantic import BaseModel, SecretStr

from omniboxes.common.commands import BY_NAME
from omniboxes.common.settings import ENV_PREFIX, Settings
from omniboxes.errors import BY_CODE
from omniboxes.master.server import create_app

DOCS = Path(__file__).parent.parent / "docs"


def settings_table() -> str:
    """Return a row per setting."""
    rows = ["| variable | default | meaning |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = "" if field.default in (None, "") else f"`{field.default}`"
        secret = field.annotation in (SecretStr, SecretStr | None)
        note = " No flag." if secret else ""
        rows.append(f"| `{ENV_PREFIX}{name.upper()}` | {default} | {field.description}{note} |")
    return "\n".join(rows)


def endpoints_table() -> str:
    """Return a row per route of the master."""
    paths = create_app(Settings(), []).openapi()["paths"]
    rows = ["| route | what it does | errors |", "|---|---|---|"]
    for path, methods in paths.items():
        for method, operation in methods.items():
            statuses = ", ".join(sorted(s for s in operation["responses"] if s >= "400"))
            summary = operation["description"].splitlines()[0]
            rows.append(f"| `{method.upper()} {path}` | {summary} | {statuses} |")
    return "\n".join(rows)


def commands_table() -> str:
    """Return a row per command."""
    rows = ["| command | arguments | what it does |", "|---|---|---|"]
    for name, model in sorted(BY_NAME.items()):
        rows.append(f"| `{name}` | {_arguments(model)} | {(model.__doc__ or '').strip()} |")
    return "\n".join(rows)


def _arguments(model: type[BaseModel]) -> str:
    parts = []
    for name, field in model.model_fields.items():
        default = "" if field.is_required() else f" = {field.default!r}"
        parts.append(f"`{name}{default}`")
    return ", ".join(parts)


def errors_table() -> str:
    """Return a row per error."""
    rows = ["| status | code | retryable | meaning |", "|---|---|---|---|"]
    for code, cls in sorted(BY_CODE.items(), key=lambda item: (item[1].status, item[0])):
        retryable = "yes" if cls.retryable else ""
        meaning = (cls.__doc__ or "").strip()
        rows.append(f"| {cls.status} | `{code}` | {retryable} | {meaning} |")
    return "\n".join(rows)


TABLES = {
    "configuration.md": {"settings": settings_table},
    "api.md": {
        "endpoints": endpoints_table,
        "commands": commands_table,
        "errors": errors_table,
    },
}


def rendered(name: str) -> str:
    """Return a document with its tables as the code says."""
    text = (DOCS / name).read_text(encoding="utf-8")
    for marker, make in TABLES[name].items():
        pattern = rf"(<!-- {marker}: [^\n]*-->\n).*?(<!-- /{marker} -->)"
        text, count = re.subn(
            pattern, lambda m, make=make: f"{m[1]}{make()}\n{m[2]}", text, flags=re.DOTALL
        )
        if count != 1:
            raise SystemExit(f"docs/{name} has no place for the table '{marker}'")
    return text


def main() -> None:
    """Write or check all tables."""
    stale = [n for n in TABLES if (DOCS / n).read_text(encoding="utf-8") != rendered(n)]
    if "--check" in sys.argv[1:]:
        if stale:
            raise SystemExit(f"out of date: {', '.join(stale)}; run tools/generate_docs.py")
        return
    for name in stale:
        (DOCS / name).write_text(rendered(name), encoding="utf-8")


if __name__ == "__main__":
    main()
