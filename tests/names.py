"""Names of streams in tests that share a broker."""

import re
import uuid
from typing import Final

MOST: Final = 60
"""Characters of a test's name that its stream keeps."""


def fresh(test: str) -> str:
    """A name, with a test's name in it, that nothing else uses: nor the same test when it gets its second try."""
    name = re.sub(r"\W+", "-", test)[:MOST].strip("-")
    return f"{name}-{uuid.uuid4().hex[:8]}"
