"""Script: dequantise a GGUF file and save it as a bfloat16 safetensors checkpoint with its tokenizer.

Run in a process of its own, so that the float32 weights never weigh on the caller:
`convert.py FILE.gguf FOLDER`.
"""

import json
import sys
from pathlib import Path
from typing import Final

LOADING: Final = ("is_local", "local_files_only", "name_or_path")


def convert(source: Path, target: Path) -> None:
    """Write the checkpoint of `source` to the folder `target`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        source.parent,
        gguf_file=source.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.to(torch.bfloat16).save_pretrained(target)
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    assert tokenizer is not None
    tokenizer.save_pretrained(target)
    # How this process happened to load the tokenizer is saved with it, and would change its hash.
    settings = target / "tokenizer_config.json"
    kept = {key: value for key, value in json.loads(settings.read_text()).items() if key not in LOADING}
    settings.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
