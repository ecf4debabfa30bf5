"""Looking at the page: text, metadata, images, expressions."""

import base64
import struct
from typing import Any

import pytest

from omniboxes.errors import InvalidRequest, ScriptFailed
from tests.node.instances.driving import Server, Session
from tests.site_server import Site

pytestmark = pytest.mark.browser

MAGIC = {"png": b"\x89PNG", "jpeg": b"\xff\xd8\xff", "webp": b"RIFF"}


def png_size(image: bytes) -> tuple[int, int]:
    assert image.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", image[16:24])
    return width, height


async def test_metadata_is_title_address_and_size(session: Session) -> None:
    await session.visit("shop.html")
    assert await session.call("GET", "/metadata") == {
        "title": "Corner Shop",
        "url": f"{session.site.url}/shop.html",
        "width": 1280,
        "height": 768,
    }


async def test_page_metadata_has_json_ld_microdata_and_meta_tags(session: Session) -> None:
    await session.visit("empty.html")
    await session.evaluate("""document.head.insertAdjacentHTML("beforeend",
      `<meta name="description" content="About tea"><meta property="og:type" content="product">
       <script type="application/ld+json">{"@type": "Product", "name": "Tea"}</script>`)""")
    await session.evaluate("""document.body.insertAdjacentHTML("beforeend",
      `<p itemscope itemtype="https://schema.org/Offer"><b itemprop="price">3</b></p>`)""")
    assert await session.execute("get_page_metadata") == {
        "title": "Nothing to press",
        "url": f"{session.site.url}/empty.html",
        "meta_tags": {"description": "About tea", "og:type": "product"},
        "jsonld": {"@type": "Product", "name": "Tea"},
        "microdata": [{"itemType": "https://schema.org/Offer", "price": "3"}],
    }


async def test_page_metadata_of_a_plain_page_is_title_and_address(session: Session) -> None:
    await session.visit("no-title.html")
    url = f"{session.site.url}/no-title.html"
    assert await session.execute("get_page_metadata") == {"title": "", "url": url}


async def test_title_hidden_behind_an_element_of_that_name_is_still_found(session: Session) -> None:
    await session.visit("empty.html")
    hide = "document.body.insertAdjacentHTML('beforeend', '<form name=title></form>')"
    step = await session.step("evaluate", expression=hide)
    assert step.metadata["title"] == "Nothing to press"
    assert (await session.call("GET", "/metadata"))["title"] == "Nothing to press"


async def test_text_is_what_is_visible_without_blank_lines(session: Session) -> None:
    await session.visit("empty.html")
    assert await session.page_text() == "Nothing to press\nThis page has text only."
    first = await session.execute("get_webpage_text", n_lines=1)
    assert first == {"text": "Nothing to press"}


@pytest.mark.parametrize("page", ["doc.xml", "picture.svg", "plain.txt", "no-title.html"])
async def test_documents_that_are_no_pages_can_be_looked_at(shared: Session, page: str) -> None:
    step = await shared.visit(page)
    assert step.metadata["url"].endswith(page)
    assert png_size(step.image) == (1280, 768)
    marked = await shared.step(options={"interaction_mode": "set_of_marks"})
    assert png_size(marked.image) == (1280, 768)
    for command in ("get_webpage_text", "get_page_metadata", "get_ax_tree"):
        await shared.execute(command)


@pytest.mark.parametrize("mode", ["coordinates", "set_of_marks"])
@pytest.mark.parametrize("image_format", ["png", "jpeg", "webp"])
async def test_screenshot_is_the_viewport_in_the_format_asked_for(
    shared: Session, image_format: str, mode: str
) -> None:
    await shared.visit("timers.html")
    params = {"interaction_mode": mode, "format": image_format}
    image = await shared.call("GET", "/screenshot", params=params)
    assert image.startswith(MAGIC[image_format])
    step = await shared.step(options=params)
    assert step.fields["format"] == image_format
    assert step.image.startswith(MAGIC[image_format])
    size = await shared.evaluate(f"""new Promise((resolve) => {{
      const image = new Image();
      image.onload = () => resolve(`${{image.naturalWidth}}x${{image.naturalHeight}}`);
      image.src = "data:image/{image_format};base64,{base64.b64encode(image).decode()}";
    }})""")
    assert size == "1280x768"


@pytest.mark.parametrize("image_format", ["jpeg", "webp"])
async def test_quality_makes_the_image_smaller(shared: Session, image_format: str) -> None:
    await shared.visit("shop.html")
    sizes = [
        len((await shared.step(options={"format": image_format, "quality": quality})).image)
        for quality in (5, 95)
    ]
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize(
    "options",
    [{"format": "gif"}, {"quality": 0}, {"quality": 101}, {"interaction_mode": "marks"}],
)
async def test_unknown_image_options_are_refused_by_name(
    shared: Session, options: dict[str, Any]
) -> None:
    (name,) = options
    with pytest.raises(InvalidRequest, match=name):
        await shared.step(options=options)
    with pytest.raises(InvalidRequest, match=name):
        await shared.call("GET", "/screenshot", params=options)


async def test_screenshot_command_takes_the_labels_only(session: Session) -> None:
    await session.visit("shop.html")
    assert await session.execute("screenshot") == {"status": "screenshot_taken"}
    info = await session.execute("get_screenshot_info")
    assert info["visible_rects"]
    plain = await session.execute("screenshot", interaction_mode="coordinates")
    assert plain == {"status": "screenshot_taken"}


async def test_step_answers_json_with_the_image_on_request(session: Session) -> None:
    await session.visit("empty.html")
    async with session.server.client.post(
        "/step",
        params={"instance_id": session.id},
        json={"interaction_mode": "coordinates"},
        headers={"accept": "application/json"},
    ) as answer:
        fields = await answer.json()
    assert png_size(base64.b64decode(fields["image"])) == (1280, 768)
    assert fields["metadata"]["title"] == "Nothing to press"


async def test_step_without_a_command_just_looks(session: Session) -> None:
    await session.visit("empty.html")
    step = await session.step(options={"interaction_mode": "set_of_marks", "expression": "1 + 1"})
    assert step.fields["status"] == "success"
    assert step.value == 2
    assert step.fields["marks"]["visible_rects"] == []


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 1", 2),
        ("'text'", "text"),
        ("null", None),
        ("undefined", None),
        ("({ a: [1, { b: true }] })", {"a": [1, {"b": True}]}),
        ("new Promise((resolve) => setTimeout(resolve, 50, 'later'))", "later"),
        ("NaN", "NaN"),
        ("10n", "10n"),
        ("document.body", {}),
        ("'lone \\ud800 surrogate'", "lone \ufffd surrogate"),
        ("'👩‍💻'", "👩‍💻"),
    ],
)
async def test_evaluate_returns_the_value(shared: Session, expression: str, value: Any) -> None:
    await shared.visit("empty.html")
    answer = await shared.execute("evaluate", expression=expression)
    assert answer["value"] == value
    assert (await shared.step(options={"expression": expression})).value == value


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("throw new TypeError('no tea')", "TypeError: no tea"),
        ("throw 'a string'", "a string"),
        ("throw ''", "evaluate: "),
        ("noSuchName", "noSuchName is not defined"),
        ("1 +", "SyntaxError"),
        ("Promise.reject(new Error('later'))", "Error: later"),
        ("window", "cannot be returned"),
        ("(() => { const a = {}; a.a = a; return a; })()", "cannot be returned"),
    ],
)
async def test_expression_that_fails_is_422_with_its_reason(
    shared: Session, expression: str, reason: str
) -> None:
    await shared.visit("empty.html")
    with pytest.raises(ScriptFailed, match=reason):
        await shared.execute("evaluate", expression=expression)
    with pytest.raises(ScriptFailed, match=reason):
        await shared.step(options={"expression": expression})
    assert await shared.evaluate("1") == 1


async def test_expression_whose_page_goes_away_is_422(session: Session) -> None:
    await session.visit("empty.html")
    with pytest.raises(ScriptFailed, match="replaced"):
        await session.execute(
            "evaluate", expression="location.href = 'landing.html'; new Promise(() => {})"
        )
    assert (await session.step()).metadata["title"] == "Landing"


async def test_page_that_broke_its_own_builtins_can_be_used(session: Session) -> None:
    await session.visit("timers.html")
    await session.evaluate("""(() => {
      Set.prototype.add = Array.prototype[Symbol.iterator] = () => { throw new Error("broken"); };
      window.Promise = window.Set = window.Map = window.setTimeout = undefined;
      window.requestAnimationFrame = window.performance = window.scheduler = undefined;
    })()""")
    step = await session.step("click_coords", x=5, y=5)
    assert step.metadata["title"] == "Timers"


async def test_evaluate_is_refused_where_the_server_does_not_enable_it(site: Site) -> None:
    disabled = {"OMNIBOX_ENABLE_EVALUATE": "0"}
    async with Server.running(1, disabled) as server, server.leased(site) as session:
        with pytest.raises(InvalidRequest, match="OMNIBOX_ENABLE_EVALUATE"):
            await session.execute("evaluate", expression="1")
        with pytest.raises(InvalidRequest, match="OMNIBOX_ENABLE_EVALUATE"):
            await session.step(options={"expression": "1"})
        assert (await session.visit("empty.html")).metadata["title"] == "Nothing to press"


async def test_sleep_lets_the_page_go_on(session: Session) -> None:
    await session.visit("timers.html")
    await session.evaluate("setTimeout(() => { document.title = 'later'; }, 700)")
    step = await session.step("sleep", duration=0.8)
    assert step.metadata["title"] == "later"


@pytest.mark.parametrize("duration", [-1, 61, "long", None])
async def test_sleep_of_no_sensible_length_is_refused(shared: Session, duration: object) -> None:
    with pytest.raises(InvalidRequest, match="duration"):
        await shared.execute("sleep", duration=duration)


@pytest.mark.parametrize(
    "action", ["document.documentElement.requestFullscreen()", "resizeTo(300, 300)"]
)
@pytest.mark.parametrize("size", [(1280, 768), (900, 700)])
async def test_screenshot_has_its_size_whatever_the_page_does_to_its_window(
    server: Server, site: Site, size: tuple[int, int], action: str
) -> None:
    width, height = size
    async with server.leased(site, viewport={"width": width, "height": height}) as session:
        await session.visit("shop.html")
        await session.evaluate(f"onclick = () => {{ {action}; }}; 0")
        await session.step("click_coords", x=5, y=5)
        step = await session.step("sleep", duration=0.2)
        assert png_size(step.image) == size
        assert (step.metadata["width"], step.metadata["height"]) == size


async def test_page_with_a_strict_policy_is_used_like_any_other(session: Session) -> None:
    await session.visit("csp.html")
    assert (await session.click("button", shows="count")).value == "1"
    assert (await session.click("try-fetch", shows="log")).value == "fetch refused"
    marked = await session.step(options={"interaction_mode": "set_of_marks"})
    assert len(marked.fields["marks"]["visible_rects"]) == 5
    assert "Strict content" in await session.page_text()
