"""Types that all packages share."""

from __future__ import annotations

from typing import Any

#: An object of the API as ``json.loads`` returns it.
JSONObject = dict[str, Any]

#: Any value of a JSON document as ``json.loads`` returns it.
JSONValue = Any
