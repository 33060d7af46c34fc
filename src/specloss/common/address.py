"""Addresses without their secrets: what is written, printed or logged may be read by others."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

# SQLAlchemy lets a password have a slash, which ends the host everywhere else; a number there is a port
_USER = re.compile(r"(?P<scheme>[\w+.-]*)://(?P<user>[^/?#\s]*(?=@)|[^:/@\s]*:(?!\d{1,5}[/?#])[^@\s]*(?=@))@")
_QUERY = re.compile(
    r"[?&;](?:[\w.-]*[_.-]|ssl|api|access|auth)?"
    r"(password|passwd|pass|pwd|token|secret|key|sig|signature|credentials?)=([^&;#\s]+)",
    re.IGNORECASE,
)
_OF_FILES = ("sslkey=", "sslrootkey=")  # names of files, as PostgreSQL has them
_VARIABLES = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "PGPASSWORD", "PGSSLPASSWORD")
SHORTEST = 3  # characters of a secret that is looked for in a text


def has_secret(text: str) -> bool:
    """Whether a text has an address with a password or token; a user's name alone is none, but for HTTP."""
    users = (match["scheme"].startswith("http") or ":" in match["user"] for match in _USER.finditer(text))
    return any(users) or any(map(_counts, _QUERY.finditer(text)))


def login(address: str) -> tuple[str, str] | None:
    """User and password of an address, if it has a user."""
    match = _USER.search(address)
    user, _, password = match["user"].partition(":") if match else ("", "", "")
    return (unquote(user), unquote(password)) if match else None


def public(text: str) -> str:
    """A text in which no address has a user, a password or a token."""
    text = _USER.sub(lambda match: f"{match['scheme']}://", text)
    return _QUERY.sub(lambda match: match[0].removesuffix(match[2]) + "***" if _counts(match) else match[0], text)


def without_secrets(text: str, address: str) -> str:
    """What somebody says of an address, without its secrets or those of the environment, in whatever form."""
    users = [match["user"] for match in _USER.finditer(address)]
    secrets = [user.partition(":")[2] or user for user in users]
    secrets += [match[2] for match in _QUERY.finditer(address) if _counts(match)]
    secrets += [os.environ.get(name, "") for name in _VARIABLES]
    text = text.replace(address, public(address))
    for secret in sorted({*users, *secrets, *map(unquote, secrets)}, key=len, reverse=True):
        if len(secret) >= SHORTEST:
            text = text.replace(secret, "***")
    return public(text)


def _counts(match: re.Match[str]) -> bool:
    return not match[0][1:].lower().startswith(_OF_FILES)
