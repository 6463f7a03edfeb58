"""Conditions and weights of routes as ``map`` and ``split_clients`` blocks: a variable that names the location of a request.

Each condition is a variable with ``1`` or ``0``. A map over all of them has one regular expression for each route, in order.
"""

from __future__ import annotations

from collections.abc import Sequence

from examples.ingress_nginx.model.configuration import Condition, Source
from examples.ingress_nginx.nginx.parts import ConfigurationParts, digest
from examples.ingress_nginx.nginx.quoting import header_name, map_regex, pcre_literal
from examples.ingress_nginx.nginx.upstreams import cookie_map

#: Names of locations with their weights. Without a positive weight no request gets there.
Weighted = Sequence[tuple[str, int]]
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def choose_location(choices: Sequence[tuple[Sequence[str], Weighted, str]], otherwise: str, parts: ConfigurationParts) -> str:
    """Return a variable with the name of the location for a request.

    Args:
        choices: For each route, in order: the variables of its conditions, its locations with their weights, and the key of ``split``.
        otherwise: Name of the location where no route's conditions hold.
        parts: Gets the blocks.
    """
    variables = list(dict.fromkeys(variable for conditions, _, _ in choices for variable in conditions))
    lines = []
    for conditions, weighted, key in choices:
        pattern = "".join("1" if variable in conditions else "." for variable in variables)
        lines.append(f"{map_regex('^' + pattern)} {split(weighted, parts, key) or otherwise};")
    text = f"{{ default {otherwise}; {' '.join(lines)} }}"
    source = f'"{"".join(f"${variable}" for variable in variables)}"'
    name = f"kubeloop_route_{digest(source, text)}"
    parts.http[f"map {source} ${name} {text}"] = None
    return f"${name}"


def split(weighted: Weighted, parts: ConfigurationParts, key: str = "") -> str:
    """Return the name of a location, or a variable that has each of the names for its share of the requests; empty: no weight.

    Args:
        weighted: The locations.
        parts: Gets the blocks.
        key: Variable that is equal for the requests of a client, which then all get the same location; empty: chance decides.
    """
    shares = [(name, weight) for name, weight in weighted if weight > 0]
    if len(shares) < 2:
        return shares[0][0] if shares else ""
    total = sum(weight for _, weight in shares)
    lines = []
    done = 0
    for index, (name, _) in enumerate(shares[:-1]):
        # Shares in hundredths of a percent, which is split_clients' precision, rounded so that their sum is exact.
        upto = round(10000 * sum(weight for _, weight in shares[: index + 1]) / total)
        if (share := upto - done) > 0:
            lines.append(f"{share / 100:.2f}% {name};")
        done = upto
    text = f"{{ {' '.join(lines)} * {shares[-1][0]}; }}" if done < 10000 else f"{{ {' '.join(lines)} }}"
    variable = f"kubeloop_split_{digest(text, key)}"
    parts.http[f'split_clients "{variable}{key or "$request_id"}" ${variable} {text}'] = None
    return f"${variable}"


def condition_variable(condition: Condition, parts: ConfigurationParts) -> str:
    """Return the variable that is ``1`` for requests that fulfil a condition; raises UnsafeText."""
    name = f"kubeloop_if_{digest(condition)}"
    value, negate = condition.value, condition.negate
    literal = pcre_literal(value)
    match condition.source:
        case Source.HEADER:
            source = f"$http_{header_name(condition.name).lower().replace('-', '_')}"
        case Source.COOKIE:
            source = f"$kubeloop_cookie_{digest(condition.name)}"
            parts.http[cookie_map(condition.name, source[1:])] = None
        case Source.QUERY:
            # NGINX does not decode parameters: the expression allows both forms of each character.
            source = f"$kubeloop_query_{digest(condition.name)}"
            parts.http[f'map $args {source} {{ default ""; {map_regex(f"(?:^|&){_encoded(condition.name)}=([^&]*)")} $1; }}'] = None
            literal = _encoded(value)
        case Source.METHOD:
            source = "$request_method"
    # NGINX has the empty text for an absent header, which an expression such as ".*" must not match.
    pattern = map_regex(rf"^(?=.)(?:{value})\z" if condition.regex else rf"^{literal}\z")
    parts.http[f"map {source} ${name} {{ default {int(negate)}; {pattern} {int(not negate)}; }}"] = None
    return name


def path_variable(pattern: str, parts: ConfigurationParts, *, ignore_case: bool) -> str:
    """Return the variable that is ``1`` for requests whose path matches."""
    name = f"kubeloop_path_{digest(pattern, ignore_case)}"
    parts.http[f"map $uri ${name} {{ default 0; {map_regex(pattern, ignore_case=ignore_case)} 1; }}"] = None
    return name


def _encoded(text: str) -> str:
    """Return an expression for a text of a query, with or without percent-encoding."""
    pieces = []
    for letter in text:
        octets = "".join(f"%{octet:02x}" for octet in letter.encode(errors="surrogatepass"))
        plain = pcre_literal(letter)
        plus = r"|\+" if letter == " " else ""
        pieces.append(letter if letter in _UNRESERVED and letter.isalnum() else f"(?:(?i:{octets})|{plain}{plus})")
    return "".join(pieces)
