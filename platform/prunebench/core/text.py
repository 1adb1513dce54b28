"""Text that people read in a terminal or a log."""


def printable(text: str) -> str:
    """The text on one line, control characters spelled out: what a model wrote cannot steer a terminal."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )
