"""Text that others wrote, for people to read."""

__all__ = ["visible", "without_credentials"]


def visible(text: str) -> str:
    """The text in one line: what steers a terminal, ends a line or cannot be seen stands as its escape."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def without_credentials(url: str, shown: str = "") -> str:
    """The URL as logs and people may see it: `shown` stands for what comes before the last `@`, or nothing does."""
    begin, at, host = url.rpartition("@")
    if not at:
        return url
    scheme, separator, _ = begin.partition("://")
    kept = f"{scheme}{separator}" if separator else ""
    return f"{kept}{shown}{at if shown else ''}{host}"
