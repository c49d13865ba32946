"""Text that others wrote, for people to read."""

__all__ = ["visible"]


def visible(text: str) -> str:
    """The text in one line: what steers a terminal, ends a line or cannot be seen stands as its escape."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
