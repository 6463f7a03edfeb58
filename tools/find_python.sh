#!/usr/bin/env bash
# find_python.sh VERSION DIRECTORY [optimised]: print the path of an interpreter of Python VERSION (such as 3.14; 3.14t is the free-threaded
# build) that can make virtual environments.
# It takes the first of: a python of PATH, a version that pyenv has installed, one that it unpacked before, and Debian's packages, which it
# unpacks into DIRECTORY (nothing outside DIRECTORY changes, except that debootstrap and patchelf are installed).
# With the third word a python that pyenv built without optimisation, as it does by default, comes last: Debian's takes a sixth less
# processor time for the tests.
# Exit status 1: there is none, with the reason.
set -euo pipefail
version=${1:?usage: find_python.sh VERSION DIRECTORY [optimised]}
directory=${2:?usage: find_python.sh VERSION DIRECTORY [optimised]}
wanted=${3:-any}

usable() { # interpreter
  [ -x "$1" ] && "$1" - "$version" <<'PYTHON' >/dev/null 2>&1
import ctypes, ensurepip, sqlite3, ssl, sys, sysconfig, venv
sys.exit(sys.argv[1] != "%d.%d%s" % (*sys.version_info[:2], "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""))
PYTHON
}

optimised() { # interpreter
  "$1" -c 'import sys, sysconfig; sys.exit("pyenv" in sys.base_prefix and "--enable-optimizations" not in (sysconfig.get_config_var("CONFIG_ARGS") or ""))'
}

slow=
for candidate in "$(command -v "python$version" || true)" "$(command -v python3 || true)" "${PYENV_ROOT:-$HOME/.pyenv}/versions/${version%t}".*/bin/python \
  "$directory/python$version/usr/bin/python$version"; do
  if [ -n "$candidate" ] && usable "$candidate"; then
    if [ "$wanted" = any ] || optimised "$candidate"; then
      echo "$candidate"
      exit 0
    fi
    slow=${slow:-$candidate}
  fi
done

fail() { # reason
  if [ -n "$slow" ]; then
    echo "$slow"
    exit 0
  fi
  echo "find_python.sh: $1" >&2
  exit 1
}

case $version in
  3.11) suite=bookworm ;;
  3.13) suite=trixie ;;
  3.14) suite=testing ;;
  *)
    fail "this machine has no Python $version and Debian has no packages of it: install it with pyenv"
    ;;
esac
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  fail "this machine has no Python $version: install it (Debian's packages can be unpacked by root only)"
fi

root=$directory/python$version
interpreter=$root/usr/bin/python$version
mkdir -p "$root"
{
  # One after the other, when several versions are unpacked at once.
  exec 9>"$directory/apt.lock"
  flock 9
  for tool in debootstrap patchelf; do
    command -v "$tool" || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$tool"; }
  done
  exec 9>&-
  debootstrap --download-only --variant=minbase --include="python$version,python$version-venv" "$suite" "$root"
  for package in "$root"/var/cache/apt/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
} >"$directory/python$version.log" 2>&1 || {
  tail -n 20 "$directory/python$version.log" >&2
  fail "Debian $suite did not give a Python $version; see above"
}
# The interpreter uses the C library that it was built with, and the libraries beside it; DT_RPATH also holds for the libraries' own needs.
loader=$(find "$root" -name 'ld-linux-*.so.*' -print -quit)
libraries=$(dirname "$(find "$root" -name 'libc.so.6' -print -quit)")
patchelf --set-interpreter "$loader" --force-rpath --set-rpath "$libraries" "$interpreter"
# Debian's ensurepip looks for pip under an absolute path.
sed -i "s#/usr/share/python-wheels#$root/usr/share/python-wheels#" "$root/usr/lib/python$version"/_sysconfig*
usable "$interpreter" || fail "the Python $version of Debian $suite does not run here"
echo "$interpreter"
