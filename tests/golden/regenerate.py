"""Add new messages to ``compressors.json``: ``python -m tests.golden.regenerate``, in the repository's root.

Messages that are there are not changed.  Where the wire format changes on purpose, delete the file first, and
change ``docs/wire.md`` with it.
"""

import json
from pathlib import Path

from tests.support.conformance import golden

if __name__ == "__main__":
    path = Path(__file__).with_name("compressors.json")
    now, before = golden(), json.loads(path.read_text()) if path.exists() else {}
    if changed := [name for name, message in before.items() if now.get(name) != message]:
        raise SystemExit(f"{path} keeps other bytes, or has lost a compressor: {', '.join(changed)}")
    path.write_text(json.dumps(now, indent=1) + "\n")
    print(f"{path}: {len(now) - len(before)} messages added to {len(before)}")
