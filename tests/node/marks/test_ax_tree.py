"""The accessibility tree as text: compact, with what is visible, frames in their places."""

import pytest

from tests.node.marks.driving import MarkedSession

pytestmark = pytest.mark.browser


async def tree(session: MarkedSession, page: str, **more: int) -> list[str]:
    await session.visit(page)
    text: str = (await session.execute("get_ax_tree", **more))["ax_tree"]
    return text.splitlines()


def stripped(lines: list[str]) -> list[str]:
    return [line.strip() for line in lines]


async def test_fields_with_their_names_values_and_states(session: MarkedSession) -> None:
    lines = stripped(await tree(session, "forms.html"))
    assert 'RootWebArea "Forms"' in lines[0]
    assert "textbox \"Text\" value='preset'" in lines
    assert 'checkbox "Newsletter" checked' in lines
    assert 'radio "Medium" checked' in lines
    assert any(line.startswith("combobox \"Colour\" value='Red'") for line in lines)
    assert any(line.startswith('button "Disabled" disabled') for line in lines)
    assert any(line.startswith("slider \"Volume\" value='50'") for line in lines)


async def test_frames_are_where_they_stand_in_the_page(session: MarkedSession) -> None:
    lines = await tree(session, "frames.html", max_chars=100_000)
    order = [line.strip() for line in lines if line.strip().startswith('button "')]
    assert order[0] == 'button "Button of the top page"'
    assert order[-1] == 'button "Accept"'
    for name in ("same", "cross", "nested-inner", "cross-nested-inner", "srcdoc", "below"):
        assert f'button "Click {name}"' in order
    # What is in a frame is deeper than the frame.
    frame = next(n for n, line in enumerate(lines) if "Frame cross at localhost" in line)
    top = next(line for line in lines if "Button of the top page" in line)
    assert len(lines[frame]) - len(lines[frame].lstrip()) > len(top) - len(top.lstrip())


async def test_shadow_roots_of_all_kinds(session: MarkedSession) -> None:
    lines = stripped(await tree(session, "shadow.html"))
    for name in ("Light button", "Inner button", "Closed button", "Slotted button"):
        assert f'button "{name}"' in lines
    assert not any("Never shown" in line for line in lines)


async def test_visible_text_stands_once(session: MarkedSession) -> None:
    lines = stripped(await tree(session, "shop.html", max_chars=1_000_000))
    assert lines.count('heading "All products" level=1') == 1
    assert lines.count("Rated 3.1 by 40 customers.") == 1
    assert lines.count('button "Add to cart"') == 200
    assert 'link "Oak Lamp 1"' in lines
    assert not any("InlineTextBox" in line or "generic" in line for line in lines)


async def test_tree_is_cut(session: MarkedSession) -> None:
    whole = "\n".join(await tree(session, "shop.html", max_chars=1_000_000))
    cut = "\n".join(await tree(session, "shop.html", max_chars=2000))
    assert len(cut) <= 2000
    assert cut.endswith("… (cut)")
    assert whole.startswith(cut.removesuffix("… (cut)"))


async def test_long_text_is_cut_too(session: MarkedSession) -> None:
    await session.visit("empty.html")
    await session.evaluate("document.body.textContent = 'word '.repeat(100_000), 0")
    text = (await session.execute("get_ax_tree", max_chars=1000))["ax_tree"]
    assert len(text) <= 1000
    assert "word word" in text
