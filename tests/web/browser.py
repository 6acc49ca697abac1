"""Chromium, driven as a person would: by what is on the page, never by waiting a while.

Browser.until() asks again until its answer is true and fails with what it saw; a page that needs
longer on a busy machine gets it. The page's own log and every request it made are kept, for they
are what the tests of a quiet page ask about."""

import base64
import json
import os
import shutil
import tempfile
import time

try:
    from selenium import webdriver
    from selenium.common.exceptions import (
        JavascriptException,
        NoSuchElementException,
        StaleElementReferenceException,
        WebDriverException,
    )
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.actions.action_builder import ActionBuilder
    from selenium.webdriver.common.actions.pointer_input import PointerInput
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
except ImportError:  # the tests are collected all the same, and skipped: missing() says why
    webdriver = ActionBuilder = ActionChains = By = Keys = PointerInput = None

PATIENCE = float(os.environ.get("BERTH_PATIENCE", "60"))


def missing():
    """What a browser test lacks on this machine, as a sentence, or None."""
    if webdriver is None:
        return "python3-selenium is not installed (tools/deps.sh test installs it)"
    if not shutil.which("chromium"):
        return "chromium is not installed (tools/deps.sh test installs it)"
    if not shutil.which("chromedriver"):
        return "chromium-driver is not installed (tools/deps.sh test installs it)"
    return None


class Browser:
    """One Chromium without a screen, with a profile of its own. Use as a context manager."""

    def __init__(self, width=1440, height=900, dark=False):
        self.profile = tempfile.mkdtemp(prefix="berth-browser-")
        options = Options()
        options.binary_location = shutil.which("chromium")
        for flag in (
            "--headless=new",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--force-device-scale-factor=1",
            "--hide-scrollbars",
            f"--window-size={width},{height}",
            f"--user-data-dir={self.profile}",
        ):
            options.add_argument(flag)
        if os.geteuid() == 0:  # Chromium's sandbox does not start for root, as CI runs
            options.add_argument("--no-sandbox")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = Service(shutil.which("chromedriver"), log_path=os.devnull)
        try:
            self.driver = webdriver.Chrome(service=service, options=options)
        except WebDriverException:
            shutil.rmtree(self.profile, ignore_errors=True)
            raise
        self.driver.set_page_load_timeout(PATIENCE)
        self.driver.set_script_timeout(PATIENCE)
        self.console, self.network = [], []
        self.size(width, height)
        self.scheme(dark)
        self.leave()  # Chromium's own first page

    def close(self):
        try:
            self.driver.quit()
        finally:
            shutil.rmtree(self.profile, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # -- the window

    def size(self, width, height):
        """The page's own size, whatever the window around it takes."""
        self.cdp(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def scheme(self, dark):
        """What the system asks for: prefers-color-scheme."""
        self.cdp(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )

    def cdp(self, method, **parameters):
        return self.driver.execute_cdp_cmd(method, parameters)

    def screenshot(self):
        """What is to be seen now, as a PNG."""
        return base64.b64decode(self.cdp("Page.captureScreenshot", format="png")["data"])

    def pixels(self, png):
        """(width, height, RGB bytes) of a PNG, decoded by Chromium; leaves the page."""
        self.open("about:blank")
        width, height, data = self.driver.execute_async_script(
            """
            const [source, done] = arguments, image = new Image();
            image.onload = () => {
                const canvas = Object.assign(document.createElement('canvas'), {width: image.width,
                    height: image.height});
                const at = canvas.getContext('2d');
                at.drawImage(image, 0, 0);
                const rgba = at.getImageData(0, 0, image.width, image.height).data,
                    rgb = new Uint8Array(rgba.length / 4 * 3);
                for (let i = 0, j = 0; i < rgba.length; i += 4, j += 3)
                    rgb.set(rgba.subarray(i, i + 3), j);
                const reader = new FileReader();
                reader.onload = () => done([image.width, image.height,
                    reader.result.split(',')[1]]);
                reader.readAsDataURL(new Blob([rgb]));
            };
            image.src = 'data:image/png;base64,' + source;""",
            base64.b64encode(png).decode(),
        )
        return width, height, base64.b64decode(data)

    # -- the page

    def open(self, url):
        self.driver.get(url)

    def leave(self):
        """Away from the page, with nothing left of what it said; its server may be gone already."""
        self.open("about:blank")
        self.forget()

    def js(self, script, *args):
        return self.driver.execute_script(script, *args)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def until(self, question, what, patience=PATIENCE):
        """The first answer of question() that is true. An element that left the page between two
        questions is no answer."""
        end, seen = time.monotonic() + patience, None
        while time.monotonic() < end:
            try:
                seen = question()
                if seen:
                    return seen
            except (
                NoSuchElementException,
                StaleElementReferenceException,
                JavascriptException,
            ) as e:
                seen = type(e).__name__
            time.sleep(0.05)  # between two questions; what is waited for is the answer
        raise AssertionError(f"never came: {what}; last seen: {seen!r}\n{self.said()}")

    def shown(self, selector):
        """The element, when it is there and visible."""

        def look():
            return next((e for e in self.all(selector) if e.is_displayed()), None)

        return self.until(look, f"{selector} on the page")

    def gone(self, selector):
        self.until(
            lambda: not any(e.is_displayed() for e in self.all(selector)), f"{selector} gone"
        )

    def text(self, selector):
        return self.js(
            "const e = document.querySelector(arguments[0]); return e ? e.textContent : ''",
            selector,
        )

    def until_text(self, selector, *parts):
        """Waits until the element's text holds all parts; returns it."""

        def look():
            text = self.text(selector)
            return text if all(p in text for p in parts) else None

        return self.until(look, f"{parts} in {selector}: {self.text(selector)!r}")

    def click(self, selector):
        """Clicks what is there and stays where it is: pictures and rows that come in above it move
        it away under the mouse."""
        last = [None]

        def press():
            e = next((e for e in self.all(selector) if e.is_displayed() and e.is_enabled()), None)
            if not e:
                return False
            self.js("arguments[0].scrollIntoView({block: 'center', inline: 'center'})", e)
            before, last[0] = last[0], (
                e.id,
                self.js(
                    "const r = arguments[0].getBoundingClientRect(); return [r.x, r.y, r.width, "
                    "r.height]",
                    e,
                ),
            )
            if before != last[0]:
                return False
            try:
                e.click()
            except WebDriverException as why:
                if "intercepted" in str(why) or "not interactable" in str(why):
                    return False
                raise
            return True

        self.until(press, f"{selector} to click on")

    def fill(self, selector, value):
        """Types a value into a field, as the keyboard does: what was there goes."""
        e = self.shown(selector)
        e.send_keys(Keys.CONTROL, "a")
        e.send_keys(Keys.DELETE if value == "" else str(value))

    def choose(self, selector, value):
        """An option of a select by its value."""
        self.shown(selector)
        self.until(
            lambda: self.js(
                "const e = document.querySelector(arguments[0]), v = arguments[1];"
                "if (![...e.options].some(o => o.value === v)) return false;"
                "e.value = v; e.dispatchEvent(new Event('input', {bubbles: true}));"
                "e.dispatchEvent(new Event('change', {bubbles: true})); return true",
                selector,
                value,
            ),
            f"{value!r} among the options of {selector}",
        )

    def keys(self, *keys):
        """Keys to whatever has the focus."""
        ActionChains(self.driver).send_keys(*keys).perform()

    def chord(self, *keys):
        """Keys held together: chord(Keys.CONTROL, Keys.ENTER)."""
        chain = ActionChains(self.driver)
        for k in keys[:-1]:
            chain = chain.key_down(k)
        chain = chain.send_keys(keys[-1])
        for k in reversed(keys[:-1]):
            chain = chain.key_up(k)
        chain.perform()

    def drop(self, selector, name, data, mime="application/json"):
        """Drops a file of these bytes on an element: the events a file manager's drag makes."""
        self.js(
            """
            const [at, name, text, mime] = arguments;
            const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
            const files = new DataTransfer();
            files.items.add(new File([bytes], name, {type: mime}));
            const target = document.querySelector(at);
            for (const kind of ['dragenter', 'dragover', 'drop'])
                target.dispatchEvent(new DragEvent(kind, {bubbles: true, cancelable: true,
                    dataTransfer: files}));
        """,
            selector,
            name,
            base64.b64encode(data).decode(),
            mime,
        )

    # -- what the page said and asked for

    def log(self):
        """Messages of the page's console so far, newest last: {level, source, message}."""
        self.console += self.driver.get_log("browser")
        return self.console

    def errors(self):
        return [m for m in self.log() if m["level"] == "SEVERE"]

    def said(self):
        try:
            return "\n".join(f"{m['level']} {m['message']}" for m in self.log()[-20:])
        except WebDriverException as e:
            return f"(no log: {e})"

    def events(self, *methods):
        """What Chromium's network told so far: [(method, parameters)], all tabs, since the start or
        forget()."""
        for entry in self.driver.get_log("performance"):
            m = json.loads(entry["message"])["message"]
            if m["method"].startswith("Network."):
                self.network.append((m["method"], m["params"]))
        return [(m, p) for m, p in self.network if not methods or m in methods]

    def forget(self):
        """From here on: console and network begin anew."""
        self.log()
        self.events()
        self.console, self.network = [], []

    def urls(self):
        """Every address the page asked for, sockets too."""
        asked = [p["request"]["url"] for _, p in self.events("Network.requestWillBeSent")]
        return asked + [p["url"] for _, p in self.events("Network.webSocketCreated")]

    def answers(self):
        """[(status, url)] of everything that was answered."""
        return [
            (p["response"]["status"], p["response"]["url"])
            for _, p in self.events("Network.responseReceived")
        ]

    def transferred(self):
        """Bytes that came over the network, heads included."""
        return sum(p["encodedDataLength"] for _, p in self.events("Network.loadingFinished"))
