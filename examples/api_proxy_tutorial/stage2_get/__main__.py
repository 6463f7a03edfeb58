"""``python -m examples.api_proxy_tutorial.stage2_get CLIENTS``: serve the proxy of this stage."""

from __future__ import annotations

from examples.api_proxy_tutorial.stage1_pass_through.program import main
from examples.api_proxy_tutorial.stage2_get.proxy import GetProxy

if __name__ == "__main__":
    main(GetProxy)
