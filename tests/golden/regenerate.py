"""Write ``compressors.json`` anew: ``python -m tests.golden.regenerate``, in the repository's root.

Do so only where the wire format changes on purpose, and change ``docs/wire.md`` with it.
"""

import json
from pathlib import Path

from tests.support.conformance import golden

if __name__ == "__main__":
    path = Path(__file__).with_name("compressors.json")
    path.write_text(json.dumps(golden(), indent=1) + "\n")
    print(f"{path}: {len(golden())} messages")
