"""``python -m examples.api_proxy_tutorial.stage1_pass_through CLIENTS``: serve the proxy of this stage."""

from __future__ import annotations

from examples.api_proxy_tutorial.stage1_pass_through.program import main
from examples.api_proxy_tutorial.stage1_pass_through.proxy import PassThrough

if __name__ == "__main__":
    main(PassThrough)
