"""YAML as these files write and read it."""

from typing import Any

import yaml

from prunebench.cluster.job import Job
from prunebench.errors import InputError


class _Dumper(yaml.SafeDumper):
    """Lists stand deeper than their key, and no anchors: what is equal is written twice."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        return super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401 (whatever is dumped)
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def dumped(data: dict[str, Any], comment: str) -> str:
    """YAML of `data` under a comment."""
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    body = yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)
    return head + body


def mapping(text: str, what: str) -> dict[str, Any]:
    """The one mapping that a YAML file holds.

    Raises:
        InputError: no YAML, or something else.
    """
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"{what} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise InputError(f"{what} has to be a mapping")
    return data


def versions(job: Job) -> str:
    """What has to be installed wherever the job runs."""
    return f"Ray {job.ray_version} and Python {'.'.join(job.python_version.split('.')[:2])}"
