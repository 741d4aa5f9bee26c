"""Runs the parts of the campaign, or those named on the command line, and writes ``docs/campaign.md``."""

from __future__ import annotations

import sys
import time

from campaign import coverage, forks, golden, memory, mutation, suites, versions
from campaign.document import DOCUMENT, section, write

PARTS = [*suites.PARTS, golden.PART, versions.PART, forks.PART, memory.PART, coverage.PART, mutation.PART]


def main() -> int:
    """Runs the parts one after the other; the document is written after each, so that a long run loses nothing."""
    known = {part.name: part for part in PARTS}
    names = sys.argv[1:] or list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no such part: {', '.join(unknown)} (there are: {', '.join(known)})", file=sys.stderr)
        return 2
    failed = []
    for name in names:
        part = known[name]
        print(f"{part.title} ...", flush=True)
        start = time.monotonic()
        figures = part.run()
        write(PARTS, {name: section(part, figures, time.monotonic() - start)})
        if not figures.good:
            failed.append(name)
    print(f"Wrote {DOCUMENT.name}." + (f" Missed: {', '.join(failed)}." if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
