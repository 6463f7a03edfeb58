"""``python -m examples.api_proxy_tutorial.stage6_tables CLIENTS``: serve the proxy of this stage."""

from __future__ import annotations

from examples.api_proxy_tutorial.stage1_pass_through.program import main
from examples.api_proxy_tutorial.stage6_tables.proxy import TableProxy

if __name__ == "__main__":
    main(TableProxy)
