"""The page in a real browser: from a dropped file to a downloaded plan, and after a restart."""

import re
import shutil
from pathlib import Path

import pytest

from tools.service_process import ROOT, ServiceProcess

pytestmark = pytest.mark.slow

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("no chromium on this machine", allow_module_level=True)

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
WAIT = 60_000  # milliseconds; the machine may be busy
BAKERY = ROOT / "examples/bakery80.vrp"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    service = ServiceProcess(tmp_path_factory.mktemp("jobs"))
    service.start()
    yield service
    service.kill()


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield browser
        browser.close()


@pytest.fixture
def page(browser, service):
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda line: faults.append(line.text) if line.type == "error" else None)
    page.goto(service.url)
    yield page
    context.close()
    # A test that kills the server breaks connections; nothing else may go wrong.
    assert [fault for fault in faults if "net::ERR_" not in fault] == []


def drop_file(page, path: Path) -> None:
    """Drop a file on the page as a mouse does."""
    script = """([name, text]) => {
        const transfer = new DataTransfer();
        transfer.items.add(new File([text], name));
        for (const kind of ["dragover", "drop"])
            document.getElementById("drop").dispatchEvent(
                new DragEvent(kind, {dataTransfer: transfer, bubbles: true, cancelable: true}));
    }"""
    page.evaluate(script, [path.name, path.read_text()])
    page.get_by_text(f"{path.name}, ").wait_for(timeout=WAIT)


def solve(page, seconds: float = 2) -> None:
    page.get_by_label("Seconds").fill(str(seconds))
    page.get_by_role("button", name="Solve").click()


def wait_until_done(page, text: str = "done, verified") -> None:
    page.locator("#status", has_text=text).wait_for(timeout=WAIT)


def cost(page) -> float:
    return float(page.locator("#cost").inner_text().replace(",", ""))


def is_drawn(page, canvas: str) -> bool:
    """Return whether a canvas shows anything."""
    return page.evaluate(
        """(id) => {
            const canvas = document.getElementById(id);
            const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            return pixels.data.some((value) => value > 0);
        }""",
        canvas,
    )


def test_from_a_dropped_file_to_a_downloaded_plan(page, tmp_path) -> None:
    drop_file(page, BAKERY)
    solve(page)
    page.locator("#status", has_text="searching").wait_for(timeout=WAIT)
    wait_until_done(page)
    assert is_drawn(page, "plan")
    assert is_drawn(page, "curve")
    assert re.search(r"\d+ routes, length", page.locator("#plan-note").inner_text())
    with page.expect_download() as download:
        page.get_by_role("link", name="Download plan").click()
    path = tmp_path / "plan.sol"
    download.value.save_as(path)
    assert download.value.suggested_filename == "bakery80.sol"
    import rhumbline
    from rhumbline.files.plans import read_plan

    instance = rhumbline.read(BAKERY)
    assert read_plan(path, instance).cost(instance) == cost(page)
    with page.expect_download() as picture:
        page.get_by_role("link", name="Picture (SVG)").click()
    assert picture.value.suggested_filename == "bakery80.svg"


def test_a_click_on_a_latent_shows_its_plan(page) -> None:
    drop_file(page, BAKERY)
    solve(page)
    wait_until_done(page)
    page.get_by_text("They have 16 dimensions").wait_for(timeout=WAIT)
    canvas = page.locator("#latent-map")
    box = canvas.bounding_box()
    # Points lie around the middle; look for one from there.
    for step in range(200):
        angle, radius = 0.7 * step, 0.6 * step
        x = box["width"] / 2 + radius * (angle % 2 - 1)
        y = box["height"] / 2 + radius * ((angle * 0.7) % 2 - 1)
        canvas.hover(position={"x": x, "y": y})
        if "Latent " in page.locator("#latent-status").inner_text():
            canvas.click(position={"x": x, "y": y})
            break
    page.locator("#caption-a", has_text="built greedily: cost").wait_for(timeout=WAIT)
    assert is_drawn(page, "plan-a")
    canvas.focus()
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("Shift+Enter")
    page.locator("#caption-b", has_text="built greedily: cost").wait_for(timeout=WAIT)
    assert "The two plans differ in" in page.locator("#latent-status").inner_text()


def test_a_search_can_be_watched_again(page) -> None:
    page.locator("#example").select_option(label="Vehicle routes, 60 customers")
    solve(page)
    wait_until_done(page)
    slider = page.get_by_label("Moment of the search")
    slider.wait_for(timeout=WAIT)
    status = page.locator("#latent-status")
    tried = r"([\d,]+) latents tried"
    in_all = re.match(tried, status.inner_text())
    slider.fill("0")
    at_first = re.match(tried, status.inner_text())
    assert int(at_first[1].replace(",", "")) < int(in_all[1].replace(",", ""))
    page.get_by_role("button", name="Replay").click()
    page.get_by_role("button", name="Pause").wait_for(timeout=WAIT)
    page.get_by_role("button", name="Replay").wait_for(timeout=WAIT)  # at its end
    assert re.match(tried, status.inner_text())[1] == in_all[1]


def test_routes_show_their_loads(page) -> None:
    drop_file(page, BAKERY)
    solve(page)
    wait_until_done(page)
    loads = page.locator("#routes li").all_inner_texts()
    import rhumbline

    instance = rhumbline.read(BAKERY)
    assert sum(int(load.replace(",", "")) for load in loads) == sum(instance.demands)
    assert max(int(load.replace(",", "")) for load in loads) <= instance.capacity


def test_the_curve_is_there_after_a_reload(page) -> None:
    drop_file(page, BAKERY)
    solve(page)
    wait_until_done(page)
    page.reload()
    wait_until_done(page)
    assert is_drawn(page, "curve")
    assert page.evaluate("() => document.getElementById('progress').value") == 1


def test_a_search_is_stopped_and_its_plan_survives_a_restart(page, service) -> None:
    drop_file(page, BAKERY)
    solve(page, seconds=60)
    page.locator("#plan-note", has_text="routes").wait_for(timeout=WAIT)
    page.get_by_role("button", name="Stop").click()
    wait_until_done(page, "stopped; this is the best plan so far")
    before = cost(page)
    service.kill()
    service.start()
    page.reload()
    wait_until_done(page, "stopped; this is the best plan so far")
    assert cost(page) == before
    assert is_drawn(page, "plan")


def test_points_can_be_drawn_with_mouse_and_keyboard(page) -> None:
    page.get_by_role("tab", name="Draw").click()
    sketch = page.locator("#sketch")
    for x, y in ((30, 30), (200, 30), (200, 150)):
        sketch.click(position={"x": x, "y": y})
    sketch.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.locator("#sketch-count", has_text="4 points").wait_for(timeout=WAIT)
    solve(page, seconds=1)
    wait_until_done(page)


def test_pasted_lines_are_solved_or_refused_with_their_number(page) -> None:
    page.get_by_role("tab", name="Paste").click()
    area = page.locator("#pasted")
    area.fill("0 0\n0 5\nfive five\n")
    solve(page, seconds=1)
    page.get_by_role("alert").get_by_text("Line 3").wait_for(timeout=WAIT)
    area.fill("0 0\n0 5\n5 5\n5 0\n")
    solve(page, seconds=1)
    wait_until_done(page)
    assert cost(page) == 20


def test_a_name_with_markup_stays_text(page, tmp_path) -> None:
    name = "<img src=x onerror=alert(1)>.tsp"
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    path = tmp_path / name
    text = (ROOT / "examples/harbour100.tsp").read_text()
    path.write_text(re.sub("NAME *:.*", "NAME: <b>bold</b>", text))
    drop_file(page, path)
    solve(page, seconds=1)
    wait_until_done(page)
    assert "<b>bold</b>" in page.locator("#status").inner_text()
    page.locator("#jobs td", has_text="<b>bold</b>").first.wait_for(timeout=WAIT)
    assert page.locator("#file-name").inner_text().startswith("<img")
    assert page.locator("main img, main b").count() == 0


def test_a_job_shop_shows_its_schedule(page) -> None:
    page.locator("#example").select_option(label="Job shop, 10 jobs on 10 machines")
    solve(page)
    wait_until_done(page)
    assert "makespan" in page.locator("#plan-note").inner_text()
    assert is_drawn(page, "plan")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_overflows_on_a_phone(browser, service, scheme) -> None:
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, color_scheme=scheme, device_scale_factor=2
    )
    page = context.new_page()
    page.goto(service.url)
    width = page.evaluate("() => document.documentElement.scrollWidth")
    context.close()
    assert width <= 390


def test_a_thousand_cities_are_drawn_thirty_times_a_second(page) -> None:
    """While they are searched, with a new drawing of everything in each frame."""
    page.locator("#example").select_option(label="Tour of 1,000 cities")
    solve(page, seconds=10)
    page.locator("#plan-note", has_text="Tour of 1000 cities").wait_for(timeout=WAIT)
    frames = page.evaluate(
        """() => new Promise((resolve) => {
            let count = 0;
            const start = performance.now();
            const next = () => {
                window.dispatchEvent(new Event("resize"));  // draws everything again
                count += 1;
                const seconds = (performance.now() - start) / 1000;
                if (seconds < 3) requestAnimationFrame(next);
                else resolve(count / seconds);
            };
            requestAnimationFrame(next);
        })"""
    )
    print(f"{frames:.0f} frames a second")
    assert frames >= 30
