"""A readable difference of two trees, for messages that refuse a change: a unified diff of indented JSON.

Source: apimachinery pkg/util/diff. Upstream prints Go's internal field names; these are the names of the API.
"""

from __future__ import annotations

import difflib
import json
from typing import Any


def difference(old: Any, new: Any) -> str:
    before, after = (json.dumps(one, indent=1, ensure_ascii=False).splitlines(keepends=True) for one in (old, new))
    # Two header lines name files, of which there are none.
    return "".join(list(difflib.unified_diff(before, after))[2:])
