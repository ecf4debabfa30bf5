"""What an action started is waited for and seen; what it did not start costs nothing."""

from collections.abc import AsyncIterator

import pytest

from tests.node.instances.driving import Server, Session, reading, serve_pages
from tests.site_server import Site

pytestmark = pytest.mark.browser

SMALL_CAP_S = 0.6
# A step that ends at its cap may be late by what a loaded machine takes to answer.
SLACK_S = 2.0


@pytest.fixture
async def hasty(server: Server, site: Site) -> AsyncIterator[Session]:
    """A session that settles for a short time only."""
    async with server.leased(site, settle_cap_s=SMALL_CAP_S) as session:
        yield session


async def assert_rests(session: Session, step_image: bytes) -> None:
    """Assert that the page has not changed since the image of a step was taken."""
    assert (await session.step()).image == step_image


# What the action starts.


@pytest.mark.parametrize(
    ("page", "button", "shown", "kind"),
    [
        ("timers.html", "timer-400", "done", "timer"),
        ("timers.html", "timer-chain", "done", "timer"),
        ("fetch.html", "fetch-300", "slow answer", "fetch"),
        ("fetch.html", "fetch-1500", "slow answer", "fetch"),
        ("fetch.html", "fetch-1900", "slow answer", "fetch"),
        ("fetch.html", "fetch-parallel", "3 answers", "fetch"),
        ("fetch.html", "xhr-300", "slow answer", "fetch"),
        ("fetch.html", "fetch-timer-fetch", "second slow answer", "timer"),
        ("fetch.html", "image-500", "image 120x80", "image"),
        ("fetch.html", "script-500", "script ran", "script"),
        ("transition.html", "css-transition", "transitionend", "animation"),
        ("transition.html", "css-animation", "animationend", "animation"),
        ("transition.html", "web-animation", "finished", "animation"),
        ("transition.html", "shadow-animation", "transitionend", "animation"),
        ("react-like.html", "raf", "done", "frame"),
        ("react-like.html", "zero-timers", "done", "timer"),
        ("react-like.html", "mixed", "done", "frame"),
        ("dialogs.html", "alert-timer", "alert closed", "timer"),
        ("dialogs.html", "alert-fetch", "slow answer", "fetch"),
    ],
)
async def test_effect_of_a_click_is_waited_for_and_seen(
    shared: Session, page: str, button: str, shown: str, kind: str
) -> None:
    await shared.visit(page)
    step = await shared.click(button)
    assert step.value == shown
    assert step.reason == "idle"
    assert kind in step.waited_for
    await assert_rests(shared, step.image)


@pytest.mark.parametrize(
    ("page", "button", "shown"),
    [
        ("timers.html", "sync", "done"),
        ("timers.html", "timer-cleared", "cleared"),
        ("react-like.html", "message-channel", "done"),
        ("react-like.html", "microtask", "done"),
        ("transition.html", "smooth-scroll", "scrollend"),
    ],
)
async def test_what_happens_at_once_is_seen_without_waiting(
    shared: Session, page: str, button: str, shown: str
) -> None:
    await shared.visit(page)
    step = await shared.click(button)
    assert (step.value, step.reason, step.waited_for) == (shown, "idle", [])
    await assert_rests(shared, step.image)


@pytest.mark.parametrize("command", ["click_coords", "hover_coords", "page_down", "keypress"])
async def test_page_on_which_nothing_starts_costs_no_wait(shared: Session, command: str) -> None:
    await shared.visit("empty.html")
    arguments = {"page_down": {}, "keypress": {"keys": ["a"]}}.get(command, {"x": 300, "y": 300})
    step = await shared.step(command, **arguments)
    assert (step.reason, step.waited_for) == ("idle", [])


async def test_long_timer_is_the_pages_business(session: Session) -> None:
    await session.visit("timers.html")
    step = await session.click("timer-5000")
    assert (step.value, step.reason, step.waited_for) == ("waiting", "idle", [])


async def test_execute_answers_how_it_settled(session: Session) -> None:
    await session.visit("timers.html")
    answer = await session.execute("click_coords", **await session.centre("timer-400"))
    assert answer["settle"]["reason"] == "idle"
    assert answer["settle"]["waited_for"] == ["timer"]
    assert answer["settle"]["ms"] > 0
    assert await session.text("timer-400-out") == "done"


async def test_typing_and_keys_are_waited_for_too(session: Session) -> None:
    await session.visit("fetch.html")
    await session.evaluate("""document.body.insertAdjacentHTML("afterbegin", "<input id=q>");
      q.oninput = () => setTimeout(async () => {
        document.title = (await (await fetch("/slow?ms=100")).json()).message;
      }, 200)""")
    at = await session.centre("q")
    step = await session.step("fill_coords", **at, value="tea", press_enter=False)
    assert step.metadata["title"] == "slow answer"
    await session.evaluate(
        "onkeydown = () => setTimeout(() => { document.title = 'key'; }, 300); 0"
    )
    assert (await session.step("keypress", keys=["escape"])).metadata["title"] == "key"


async def test_hover_transition_is_waited_for(session: Session) -> None:
    await session.visit("empty.html")
    await session.evaluate("""document.body.innerHTML = `<p id=p>Fade
        <style>p { transition: opacity 400ms } p:hover { opacity: 0.2 }</style>`;
      p.ontransitionend = () => { document.title = "faded"; }; 0""")
    step = await session.step("hover_coords", **await session.centre("p"))
    assert (step.metadata["title"], step.waited_for) == ("faded", ["animation"])


async def test_inserted_style_sheet_is_waited_for(session: Session) -> None:
    await session.visit("empty.html")
    await session.evaluate("""onclick = () => {
      const link = document.createElement("link");
      Object.assign(link, { rel: "stylesheet", href: "/slow-image?ms=300" });
      link.onload = link.onerror = () => { document.title = "styled"; };
      document.head.append(link);
    }; 0""")
    step = await session.step("click_coords", x=5, y=5)
    assert (step.metadata["title"], step.waited_for) == ("styled", ["script"])


async def test_streamed_body_is_waited_for(session: Session) -> None:
    await session.visit("big?mb=1&hidden=1")
    await session.evaluate("""onclick = async () => {
      const reader = (await fetch("/big?mb=3")).body.getReader();
      let size = 0;
      for (let part; !(part = await reader.read()).done;) size += part.value.length;
      document.title = `${size >> 20} MB`;
    }; 0""")
    step = await session.step("click_coords", x=5, y=5)
    assert step.metadata["title"] == "3 MB"


async def test_answer_of_a_worker_and_of_a_socket_is_waited_for(session: Session) -> None:
    await session.visit("empty.html")
    await session.evaluate("""new Promise((resolve) => {
      const code = "onmessage = (e) => setTimeout(() => postMessage(e.data), 150)";
      window.worker = new Worker(URL.createObjectURL(new Blob([code])));
      window.socket = new WebSocket(`ws://${location.host}/ws`);
      worker.onmessage = (e) => { document.title = e.data; };
      socket.onmessage = (e) => { document.title = e.data; };
      socket.onopen = resolve;
    })""")
    await session.evaluate("onclick = () => worker.postMessage('worked'); 0")
    assert (await session.step("click_coords", x=5, y=5)).metadata["title"] == "worked"
    await session.evaluate("onclick = () => socket.send('echoed'); 0")
    assert (await session.step("click_coords", x=5, y=5)).metadata["title"] == "echoed"


async def test_work_of_an_evaluated_expression_is_waited_for(session: Session) -> None:
    await session.visit("timers.html")
    click = "document.getElementById('timer-400').click()"
    step = await session.step("evaluate", expression=click, options=reading("timer-400-out"))
    assert (step.value, step.waited_for) == ("done", ["timer"])


async def test_work_of_a_chosen_option_is_waited_for(session: Session) -> None:
    await session.visit("forms.html")
    await session.evaluate("""document.getElementById("listbox").onchange = () =>
      setTimeout(() => { document.title = "changed"; }, 300); 0""")
    marked = await session.step(options={"interaction_mode": "set_of_marks"})
    regions = marked.fields["marks"]["interactive_regions"]
    label = next(k for k, r in regions.items() if r["aria_name"] == "Olives")
    step = await session.step("select_option", id=label)
    assert step.metadata["title"] == "changed"


async def test_page_that_rewrote_itself_is_still_followed(session: Session) -> None:
    await session.visit("removed.html")
    await session.click("rewrite", shows="log")
    await session.evaluate("onclick = () => setTimeout(() => { document.title = 'late'; }, 300); 0")
    assert (await session.step("click_coords", x=5, y=5)).metadata["title"] == "late"


async def test_scrolling_loads_what_comes_into_view(session: Session) -> None:
    first = await session.visit("lazy.html")
    assert await session.text("log") == "loaded"
    count = int(await session.text("count"))
    assert "fetch" in first.waited_for
    step = await session.step("page_down", amount=100_000, options=reading("count"))
    assert int(step.value) > count
    assert (step.reason, await session.text("log")) == ("idle", "loaded")


# Frames.


FRAMES = {
    "/work": """<body style="margin: 0"><button id=b style="width: 300px; height: 200px">go</button>
        <script>b.onclick = async () => {
          await fetch("/slow");
          b.textContent = "frame done";
          parent.postMessage("done", "*");
        }</script>""",
    "/nested": """<body style="margin: 0"><iframe width=300 height=200></iframe><script>
        document.querySelector("iframe").src = location.href.replace("localhost", "127.0.0.1")
            .replace("nested", "work");
        onmessage = (e) => parent.postMessage(e.data, "*");
        </script>""",
    "/same": "<iframe src=/work></iframe>",
    "/cross": "<iframe data-src=/work></iframe>",
    "/cross-nested": "<iframe data-src=/nested></iframe>",
    "/sandboxed": "<iframe src=/work sandbox=allow-scripts></iframe>",
    "/made": "<script>%s document.body.append(frame);</script>",
    "/touched": """<iframe id=frame></iframe><script>
        frames[0].setTimeout(() => {}, 0); document.getElementById("frame").src = "/work";
        </script>""",
    "/srcdoc": "<iframe srcdoc='%s'></iframe>",
    "/written": """<iframe></iframe><script>
        frames[0].document.write(`%s`); frames[0].document.close();</script>""",
}
TOP = """<title>not told</title><body>%s<script>
  for (const frame of document.querySelectorAll("[data-src]")) {
    frame.src = `http://localhost:${location.port}${frame.dataset.src}`;
  }
  onmessage = (event) => {
    document.body.append(JSON.stringify(event.data));
    setTimeout(() => { document.title = "told"; }, 200);
  };
  const plain = setInterval(() => {}, 100);  // runs all the time, and is nobody's business
</script>"""


@pytest.fixture(scope="module")
async def frames_url(anyio_backend: str) -> AsyncIterator[str]:
    made = "const frame = document.createElement('iframe'); frame.src = '/work';"
    filled = {
        "/made": FRAMES["/made"] % made,
        "/srcdoc": FRAMES["/srcdoc"] % FRAMES["/work"],
        "/written": FRAMES["/written"] % FRAMES["/work"].replace("</script>", "<\\/script>"),
    }
    pages = {
        path: page if path in ("/work", "/nested") else TOP % filled.get(path, page)
        for path, page in FRAMES.items()
    }
    async with serve_pages(pages) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("page", sorted(FRAMES.keys() - {"/work", "/nested"}))
async def test_work_of_a_click_in_a_frame_is_waited_for(
    shared: Session, frames_url: str, page: str
) -> None:
    await shared.visit(f"{frames_url}{page}")
    for _ in range(2):
        await shared.evaluate("document.title = 'not told'")
        step = await shared.step("click_coords", x=60, y=60)
        assert {"fetch", "timer"} <= set(step.waited_for)
        # What the frame told the page by message was waited for as well.
        assert (step.reason, step.metadata["title"]) == ("idle", "told")
        assert "frame done" in (await shared.execute("get_ax_tree"))["ax_tree"]
        await assert_rests(shared, step.image)
    # The page itself never saw how frames and page came to an understanding.
    assert await shared.page_text() == '"done""done"'
    quiet = await shared.step("click_coords", x=700, y=600)
    assert quiet.waited_for == []


async def test_frame_that_is_busy_by_itself_does_not_hold_up_the_page(session: Session) -> None:
    frame = "data:text/html,<script>(function f() { setTimeout(f, 50) })()</script>"
    await session.visit("empty.html")
    await session.evaluate(f"document.body.innerHTML = `<iframe src='{frame}'></iframe>`; 0")
    step = await session.step("click_coords", x=700, y=600)
    assert step.waited_for == []


# Navigations.


@pytest.mark.parametrize(
    ("element", "shown"),
    [
        ("link-plain", "arrived at /landing.html"),
        ("link-slow", "answered after 800 ms"),
        ("link-redirect", "arrived at /landing.html?from=redirect"),
        ("js-300", "arrived at /landing.html?from=timer"),
        ("js-now", "arrived at /landing.html?from=script"),
        ("post-submit", "POST\nfield = posted"),
        ("link-404", "this page has status 404"),
    ],
)
async def test_navigation_is_waited_for_and_seen(shared: Session, element: str, shown: str) -> None:
    await shared.visit("navigate.html")
    step = await shared.click(element, shows="log")
    assert step.value == shown
    assert "navigation" in step.waited_for
    assert step.reason == "idle"
    await assert_rests(shared, step.image)


async def test_navigation_within_the_document_is_seen(session: Session) -> None:
    await session.visit("navigate.html")
    step = await session.click("push-state", shows="location")
    assert step.value == "at /navigate.html?pushed=1"
    assert step.metadata["title"] == "Navigate 1"
    step = await session.click("history-back", shows="location")
    assert step.value == "at /navigate.html"
    step = await session.click("link-hash", shows="location")
    assert step.value == "at /navigate.html#section"
    assert await session.evaluate("scrollY > 0")


async def test_going_back_in_history_by_script_is_waited_for(session: Session) -> None:
    await session.visit("empty.html")
    await session.visit("navigate.html")
    step = await session.click("history-back", shows="log")
    assert step.metadata["title"] == "Nothing to press"


async def test_reload_is_waited_for(session: Session) -> None:
    await session.visit("navigate.html")
    await session.evaluate("document.title = 'old'")
    step = await session.click("reload", shows="log")
    assert step.metadata["title"] == "Navigate"


async def test_meta_refresh_is_not_waited_for(session: Session) -> None:
    step = await session.visit("meta-refresh.html")
    assert step.metadata["title"] == "Meta refresh"
    step = await session.step("sleep", duration=1.5)
    assert step.metadata["title"] == "Landing"


async def test_navigation_that_never_comes_is_given_up(session: Session) -> None:
    await session.visit("navigate.html")
    step = await session.click("link-hang", shows="log", deadline_s=2)
    assert step.reason == "navigation_pending"
    assert step.metadata["title"] == "Navigate"
    assert (await session.click("push-state", shows="log")).value == "pushed 1\n"


async def test_page_that_replaces_itself_for_ever_ends_at_the_cap(hasty: Session) -> None:
    await hasty.visit("empty.html")
    forever = "data:text/html,<title>again</title><script>setTimeout('location.reload()')</script>"
    step = await hasty.visit(forever, deadline_s=4)
    assert step.reason in ("cap", "navigation_pending", "idle")
    assert (await hasty.visit("empty.html")).metadata["title"] == "Nothing to press"


# Caps.


@pytest.mark.parametrize(
    ("page", "button"),
    [("timers.html", "timer-interval"), ("fetch.html", "fetch-5000"), ("fetch.html", "fetch-hang")],
)
async def test_endless_work_of_an_action_ends_at_the_cap(
    hasty: Session, page: str, button: str
) -> None:
    await hasty.visit(page)
    step = await hasty.click(button)
    assert step.reason == "cap"
    assert SMALL_CAP_S <= step.settle_s < SMALL_CAP_S + SLACK_S


@pytest.mark.parametrize("page", ["endless-raf.html", "polling.html"])
async def test_endless_page_ends_at_the_cap_when_it_is_visited(hasty: Session, page: str) -> None:
    step = await hasty.visit(page)
    assert step.reason == "cap"
    assert step.settle_s < SMALL_CAP_S + SLACK_S


@pytest.mark.parametrize("page", ["endless-raf.html", "polling.html", "endless-animation.html"])
async def test_endless_page_does_not_hold_up_a_click(hasty: Session, page: str) -> None:
    await hasty.visit(page)
    for count in ("1", "2", "3"):
        step = await hasty.click("button", shows="log")
        assert (step.value, step.reason, step.waited_for) == (count, "idle", [])


async def test_click_on_a_polling_page_waits_for_its_own_work_only(hasty: Session) -> None:
    await hasty.visit("polling.html")
    step = await hasty.click("timer-400")
    assert (step.value, step.reason, step.waited_for) == ("done", "idle", ["timer"])


async def test_poll_written_with_await_does_not_hold_up_a_click(hasty: Session) -> None:
    await hasty.visit("empty.html")
    await hasty.evaluate("""(() => {
      const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
      const ask = async () => { const answer = await fetch("/slow?ms=5"); return answer.json(); };
      (async () => { for (;;) { await ask(); await pause(10); } })();
      (function xhr() {
        const request = new XMLHttpRequest();
        request.onreadystatechange = () => { if (request.readyState === 4) setTimeout(xhr, 10); };
        request.open("GET", "/slow?ms=5");
        request.send();
      })();
    })()""")
    reasons = [(await hasty.step("click_coords", x=5, y=5)).waited_for for _ in range(8)]
    assert reasons == [[]] * 8


async def test_endless_animation_that_a_click_starts_is_not_waited_for(session: Session) -> None:
    await session.visit("endless-animation.html")
    step = await session.click("start", shows="log")
    assert (step.reason, step.waited_for) == ("idle", [])


async def test_page_that_floods_its_own_queue_ends_at_the_cap(hasty: Session) -> None:
    await hasty.visit("empty.html")
    await hasty.evaluate("""(() => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => port2.postMessage(0);
      onclick = () => port2.postMessage(0);
    })()""")
    step = await hasty.step("click_coords", x=5, y=5)
    assert (step.reason, step.waited_for) == ("cap", ["task"])


async def test_cap_of_zero_does_not_wait(server: Server, site: Site) -> None:
    async with server.leased(site, settle_cap_s=0) as session:
        await session.visit("timers.html")
        step = await session.click("timer-400")
        assert (step.value, step.reason) == ("waiting", "cap")


async def test_settling_leaves_time_for_the_answer(session: Session) -> None:
    await session.visit("fetch.html")
    step = await session.click("fetch-hang", deadline_s=1.5)
    assert (step.value, step.reason) == ("waiting", "cap")


# Visits.


async def test_visit_does_not_wait_for_load(session: Session) -> None:
    step = await session.visit("hang-image.html")
    assert step.reason == "idle"
    assert step.settle_s < 1 + SLACK_S
    assert await session.evaluate("document.readyState") == "interactive"
    step = await session.click("button", shows="log")
    assert (step.value, step.waited_for) == ("1", [])


async def test_visit_waits_for_deferred_scripts(session: Session) -> None:
    page = f"""<title>blank</title>
      <script>window.slowScriptLoaded = () => {{ document.title = "filled"; }}</script>
      <script defer src="{session.site.url}/slow-script?ms=700"></script>"""
    async with serve_pages({"/": page}) as port:
        step = await session.visit(f"http://127.0.0.1:{port}/")
    assert step.metadata["title"] == "filled"
    assert "parse" in step.waited_for


async def test_unfinished_page_is_shown_as_far_as_it_came(session: Session) -> None:
    step = await session.visit("hang-body", deadline_s=3)
    assert step.metadata["title"] == "Unfinished page"
    assert (step.reason, step.waited_for) == ("cap", ["navigation", "parse"])
    assert "beginning of a page" in await session.page_text()
