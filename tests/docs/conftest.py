"""Says at the end what the documents' commands came to; nobody should have to guess what was left
out."""

from collections import Counter

COUNTS: Counter = Counter()


def pytest_terminal_summary(terminalreporter):
    if COUNTS:
        skipped = {k: n for k, n in COUNTS.items() if k != "run"}
        terminalreporter.write_line(
            f"docs: {COUNTS['run']} commands run, {sum(skipped.values())} not run"
            + "".join(f"; {n} {why}" for why, n in sorted(skipped.items()))
        )
