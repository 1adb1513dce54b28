"""Text that people read in a terminal or a log."""

import json
import logging
import re
import unicodedata

STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories of characters that a terminal or an encoder does more with than show them."""
NOT_PLAIN = re.compile(r"[^\n\t -~]")
"""Characters whose category has to be asked: few, in pages of several megabytes."""


def printable(text: str) -> str:
    """The text on one line, control characters spelled out: what a model wrote cannot steer a terminal."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )


def harmless(text: str) -> str:
    """The text with its lines and tabs, and every other character that steers a terminal as JSON writes it.

    JSON stays JSON of the same value.
    """
    return NOT_PLAIN.sub(lambda found: _spelled(found[0]), text)


def _spelled(letter: str) -> str:
    return json.dumps(letter)[1:-1] if unicodedata.category(letter) in STEERING else letter


class HarmlessFormatter(logging.Formatter):
    """Formats records so that nothing a model, a file or a library put into them steers a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's lines."""
        return harmless(super().format(record))
