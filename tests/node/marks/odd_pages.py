"""Bodies of pages on which boxes and what is in them are hard to tell apart."""

FRAME = 'srcdoc="<button>in a frame</button> <a href=#x>link</a>"'
LINKS = " ".join(f"<a href=#{n}>a link of words {n}</a>" for n in range(12))
ODD = {
    "zoomed root": "<style>:root { zoom: 1.5 }</style><button>a</button><a href=#b>b</a>",
    "zoomed part": "<div style='zoom: 0.6'><button>a</button><p><a href=#b>b</a></p></div>",
    "turned root": "<style>:root { rotate: 3deg }</style><button>a</button><a href=#b>b</a>",
    "perspective": """<div style="perspective: 300px; width: 300px"><div style="transform:
      rotateY(40deg) rotateX(20deg)"><button>a</button> <button>b</button></div></div>""",
    "deep transforms": f"""<div style="rotate: -8deg; scale: 1.3 0.8; padding: 60px"><div
      style="transform: skewY(6deg) translate(30px, 20px)"><iframe {FRAME} style="rotate: 14deg;
      border: 5px solid; padding: 3px 9px"></iframe></div></div>""",
    "frame in a frame": """<iframe style="scale: 0.8; height: 300px" srcdoc="<p>up</p><iframe
      style='rotate: 10deg' srcdoc='<button>inner</button>'></iframe>"></iframe>""",
    "scrolled frame": f"""<div style="overflow: auto; width: 200px; height: 90px" id="scroller"><p
      style="height: 20px"></p><iframe {FRAME} style="height: 150px"></iframe></div>""",
    "frame without a mouse": f"""<iframe {FRAME} style="pointer-events: none"></iframe>
      <button>a</button>""",
    "sticky header": """<div style="position: sticky; top: 0; height: 60px; background: gold;
      z-index: 1"><button>top</button></div>
      <div style="margin-top: -40px"><button>half under</button></div>
      <button style="margin-top: -70px">under</button>""",
    "pieces": """<button style="width: 300px; height: 60px">a</button><div style="position:
      absolute; left: 20px; top: 0; width: 60px; height: 200px; background: gold"></div>
      <div style="position: absolute; left: 120px; top: 20px; width: 400px; height: 20px;
      background: teal"></div>""",
    "rounded": """<button style="width: 90px; height: 90px; border-radius: 50%">a</button><button
      style="width: 90px; height: 90px; clip-path: polygon(0 0, 100% 0, 0 100%)">b</button>""",
    "details": """<details open><summary>open</summary><button>a</button></details>
      <details><summary>closed</summary><button>b</button></details>""",
    "inert part": "<div inert><button>a</button></div><button>b</button>",
    "skipped content": """<div style="content-visibility: hidden"><button>a</button></div>
      <div style="content-visibility: auto"><button>b</button></div>""",
    "contents": "<button style='display: contents'>a <b>bold</b></button><button>b</button>",
    "columns": f"<div style='columns: 3; width: 500px; height: 70px'>{LINKS}</div>",
    "right to left": """<div dir=rtl style="width: 3000px"><button>far</button></div>
      <button>a</button>""",
    "media": "<video controls width=300 height=150></video><audio controls></audio>",
    "vertical": "<p style='writing-mode: vertical-rl'><a href=#v>a vertical link</a></p>",
    "picture": """<svg width=300 height=80><a href=#s><circle cx=30 cy=40 r=25 /></a><a href=#t>
      <path d="M90 5 h180 v70 h-180 z M100 15 v50 h160 v-50 z" fill-rule=evenodd /></a></svg>""",
    "float": """<a href=#f><span style="float: left; width: 90px; height: 40px">floats</span></a>
      <a href=#p style="position: relative"><i style="position: absolute; left: 90px; top: 60px;
      width: 50px; height: 40px">away</i></a>""",
    "nested controls": """<div role=button tabindex=0 style="padding: 20px; width: 200px">outer
      <button>inner</button></div><label style="cursor: pointer">label <input></label>""",
    "table": "<table><tr onclick=1><td>row</td><td><button>cell</button></td></tr></table>",
}
