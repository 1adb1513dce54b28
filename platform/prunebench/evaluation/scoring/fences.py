"""From a response to source code: the last fenced block that defines what was asked for."""

import ast
import re
import warnings
from typing import Final

from prunebench.evaluation.scoring.answers import final_part

MAX_SOURCE: Final = 100_000
"""Characters of a program; none of the benchmarks needs a hundredth."""
_FILE = "<program>"
# What a model's code is warned of is nobody's business; a filter for the time of the call is no thread's own.
warnings.filterwarnings("ignore", module=_FILE)
_FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})([^\n`]*)$", re.MULTILINE)


def fenced_blocks(text: str) -> list[str]:
    """The contents of the fenced blocks of a text, in order; one that is not closed ends with the text."""
    blocks = []
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
        elif fence[2].startswith(opened[2]) and not fence[3].strip():
            blocks.append(_content(text, opened, fence.start()))
            opened = None
    if opened is not None:
        blocks.append(_content(text, opened, len(text)))
    return blocks


def parsed(source: str) -> ast.Module | None:
    """The syntax tree of a program that compiles; None for what does not, or is too long."""
    if len(source) > MAX_SOURCE:
        return None
    try:
        tree = ast.parse(source, _FILE)
        compile(source, _FILE, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    return tree


def defines(source: str, name: str) -> bool:
    """Whether a program compiles and its outermost level defines `name`: a function, a class, a variable."""
    tree = parsed(source)
    return tree is not None and any(name in _names(statement) for statement in tree.body)


def program_of(response: str, entry_point: str, prompt: str, before: str) -> str | None:
    """The program that a response gives, or None where it gives no code.

    In this order: the last fenced block of the final part that defines the entry point; the whole final
    part, if that is code; the last block, or the final part, as the body that goes on after the prompt; the
    last block as it is.

    Args:
        response: what the model wrote.
        entry_point: the function that was asked for.
        prompt: the code that the response may be the continuation of; empty where it is none.
        before: what stands above the response's own code: imports and helper functions.
    """
    final = final_part(response)
    blocks = fenced_blocks(final)
    for block in reversed(blocks):
        if defines(block, entry_point):
            return before + block
    if not blocks and defines(final, entry_point):
        return before + final
    body = blocks[-1] if blocks else final
    if prompt and _is_body(body) and defines(whole := f"{prompt.rstrip()}\n{body}", entry_point):
        return whole
    return before + blocks[-1] if blocks and blocks[-1].strip() else None


def _content(text: str, opened: re.Match[str], stop: int) -> str:
    """A block without its fence; one that is indented with its fence is moved to the margin."""
    lines = text[opened.end() + 1 : stop].splitlines(keepends=True)
    indent = opened[1]
    return "".join(line.removeprefix(indent) for line in lines)


def _is_body(text: str) -> bool:
    """Whether the first line that is not blank is indented."""
    return bool(re.match(r"(?:[ \t]*\n)*[ \t]+\S", text))


def _names(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {statement.name}
        case ast.Assign():
            return {target.id for target in statement.targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name() as target) if statement.value is not None:
            return {target.id}
    return set()
