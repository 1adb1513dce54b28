"""What the page may do: run its own script, wear its own style, and ask for nothing."""

import base64
import hashlib

from markupsafe import Markup


def policy(style: str, script: str) -> Markup:
    """The Content-Security-Policy of a page with one style and one script element of these contents.

    An empty script stands for none.
    """
    rules = {
        "default-src": "'none'",
        "style-src": _hash(style),
        "script-src": _hash(script) if script else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return Markup("; ".join(f"{name} {value}" for name, value in rules.items()))


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
