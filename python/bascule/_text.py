"""Formats text for messages: counts, foreign text, URLs."""

__all__ = ["counted", "host_port", "visible", "without_credentials"]


def counted(count: int, one: str) -> str:
    """A count with its noun: 1 record, 2,000 records."""
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def visible(text: str) -> str:
    """The text on one line: control characters, line ends and invisible characters are escaped."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def without_credentials(url: str, shown: str = "") -> str:
    """The URL for logs and messages: the part before the last `@` is replaced by `shown`, or removed."""
    begin, at, host = url.rpartition("@")
    if not at:
        return url
    scheme, separator, _ = begin.partition("://")
    kept = f"{scheme}{separator}" if separator else ""
    return f"{kept}{shown}{at if shown else ''}{host}"


def host_port(host: str, port: int) -> str:
    """`host:port`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
