"""A mirror of made-up rows for lm-eval's tasks, in the columns of the real datasets.

Among them: choices of unequal number, labels that are digits, letters of several bytes, endings with
brackets, spaces at the ends, and articles longer than a tiny model's context.
"""

from pathlib import Path

from mirrors import write_rows

TASKS = (
    "arc_easy",
    "arc_challenge",
    "hellaswag",
    "winogrande",
    "boolq",
    "openbookqa",
    "rte",
    "copa",
    "race",
    "piqa",
    "mathqa",
)
WORDS = (
    *("river", "stone", "über", "lamp", "日本", "garden", "slowly", "paper"),
    *("Zug", "north", "apple", "café", "seven", "window", "rain"),
)


def words(start: int, count: int) -> str:
    return " ".join(WORDS[(start * 7 + i * (start % 3 + 1)) % len(WORDS)] for i in range(count))


def arc(i: int) -> dict:
    count = (4, 3, 5)[i % 3]
    labels = list("12345" if i % 4 == 3 else "ABCDE")[:count]
    return {
        "id": f"q{i}",
        "question": f"Which {words(i, 4)}?" + " " * (i % 2),
        "choices": {"text": [words(i + j, 1 + (i + j) % 4) for j in range(count)], "label": labels},
        "answerKey": labels[i % count],
    }


def openbookqa(i: int) -> dict:
    row = arc(4 * i + (i % 4 == 3))
    return {"id": row["id"], "question_stem": f"{words(i, 5)} is", **row}


def hellaswag(i: int) -> dict:
    return {
        "ind": i % 2,
        "activity_label": f"Doing {words(i, 1)}",
        "ctx_a": f"[header] {words(i, 6)}. [title] {words(i + 1, 3)}.",
        "ctx_b": words(i + 2, 2),
        "ctx": "",
        "endings": [f"{words(i + j, 3 + j)}  [step] {words(j, 2)}." for j in range(4)],
        "source_id": f"s{i}",
        "split": "val",
        "split_type": "indomain",
        "label": str(i % 4),
    }


def winogrande(i: int) -> dict:
    sentence = f"The {WORDS[i % 5]} was near the {WORDS[i % 7]}, so the _ {words(i, 3)}."
    return {"sentence": sentence, "option1": words(i, 1), "option2": words(i + 1, 2), "answer": "12"[i % 2]}


def boolq(i: int) -> dict:
    return {
        "question": f"is {words(i, 3)}",
        "passage": f"{WORDS[i % 9]} -- {words(i, 12)}.",
        "idx": i,
        "label": i % 2,
    }


def copa(i: int) -> dict:
    return {
        "premise": f"The {words(i, 3)}.",
        "choice1": f"The {words(i + 1, 3)}.",
        "choice2": f"A {words(i + 2, 4)}.",
        "question": ("cause", "effect")[i % 2],
        "idx": i,
        "label": (i // 2) % 2,
    }


def rte(i: int) -> dict:
    return {
        "sentence1": f"{words(i, 9)}.",
        "sentence2": f"{words(i + 1, 4)}.\n" + " " * (i % 3),
        "label": i % 2,
        "idx": i,
    }


def race(i: int) -> dict:
    problems = [
        {"question": f"What {words(i, 3)}?", "answer": "B", "options": [words(i + j, 2) for j in range(4)]},
        {"question": f"The {words(i, 2)}  _  .", "answer": "D", "options": [words(j, 1) for j in range(4)]},
        {
            "question": f"Why {words(i, 3)}?",
            "answer": "ABCD"[i % 4],
            "options": [words(j, 2) for j in range(4)],
        },
    ]
    return {"article": words(i, 8 + 10 * (i % 3)), "problems": str(problems)}


def piqa(i: int) -> dict:
    return {
        "goal": f"To {words(i, 3)}",
        "sol1": f"{words(i, 4)}.",
        "sol2": f"{words(i + 1, 5)}.",
        "label": i % 2,
    }


def mathqa(i: int) -> dict:
    letters = "abcde"
    return {
        "Problem": f"what is {i} + {3 * i} ?",
        "Rationale": "",
        "options": " , ".join(f"{letter} ) {4 * i + j}" for j, letter in enumerate(letters)),
        "correct": letters[i % 5],
        "annotated_formula": "",
        "linear_formula": "",
        "category": "",
    }


def gsm8k(i: int) -> dict:
    return {
        "question": f"Ann has {i} {words(i, 2)} and buys {1000 * i}. How many?",
        "answer": f"{i} + {1000 * i} = {1001 * i}\n#### {1001 * i:,}",
    }


def lambada(i: int) -> dict:
    return {"text": words(i, 9)}


SPLITS = (
    ("allenai/ai2_arc/ARC-Easy", "test", arc, 0),
    ("allenai/ai2_arc/ARC-Easy", "train", arc, 50),
    ("allenai/ai2_arc/ARC-Challenge", "test", arc, 20),
    ("allenai/ai2_arc/ARC-Challenge", "train", arc, 70),
    ("Rowan/hellaswag/default", "validation", hellaswag, 0),
    ("Rowan/hellaswag/default", "train", hellaswag, 50),
    ("allenai/winogrande/winogrande_xl", "validation", winogrande, 0),
    ("allenai/winogrande/winogrande_xl", "train", winogrande, 50),
    ("aps/super_glue/boolq", "validation", boolq, 0),
    ("aps/super_glue/boolq", "train", boolq, 50),
    ("allenai/openbookqa/main", "test", openbookqa, 0),
    ("allenai/openbookqa/main", "train", openbookqa, 50),
    ("nyu-mll/glue/rte", "validation", rte, 0),
    ("nyu-mll/glue/rte", "train", rte, 50),
    ("aps/super_glue/copa", "validation", copa, 0),
    ("aps/super_glue/copa", "train", copa, 50),
    ("EleutherAI/race/high", "test", race, 0),
    ("baber/piqa/default", "validation", piqa, 0),
    ("baber/piqa/default", "train", piqa, 50),
    ("regisss/math_qa/default", "test", mathqa, 0),
    ("regisss/math_qa/default", "train", mathqa, 50),
    ("openai/gsm8k/main", "test", gsm8k, 1),
    ("openai/gsm8k/main", "train", gsm8k, 50),
    ("EleutherAI/lambada_openai/default", "test", lambada, 0),
)
UNREAD = {
    "allenai/ai2_arc/ARC-Easy": ("validation",),
    "allenai/ai2_arc/ARC-Challenge": ("validation",),
    "allenai/openbookqa/main": ("validation",),
    "regisss/math_qa/default": ("validation",),
}
"""Splits that only lm-eval's own loading asks for."""
DOCUMENTS = 7
EXAMPLES = 9


def write_lm_eval_mirror(mirror: Path) -> Path:
    """Every split, without a manifest."""
    for source, split, make, first in SPLITS:
        count = EXAMPLES if split == "train" else DOCUMENTS
        write_rows(mirror, source, split, [make(first + i) for i in range(count)])
    return mirror
