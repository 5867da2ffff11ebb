"""The LM Evaluation Harness's view of a finished run (an optional extra: rltok[downstream]).

    rltok lm-eval run --model rltok --model_args run=DIR,prepared=DIR --tasks lambada_bytes \
        --include_path configs/downstream

Importing this module registers the model "rltok"; `rltok lm-eval` does that and hands over to
lm_eval's own command line.
"""

import sys
from pathlib import Path

from rltok_core.errors import UserError
from rltok_core.evaluation.continuation import Continuations
from rltok_core.evaluation.subject import load_trained
from rltok_core.evaluation.text import open_hints
from rltok_core.training.trainer import set_up_device

try:
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
except ImportError as missing:
    raise UserError(
        f"the LM Evaluation Harness isn't installed ({missing}): pip install -e '.[downstream]'"
    ) from None

MAX_BYTES = 256  # generated where a task doesn't say


@register_model("rltok")
class RunLM(LM):
    """A run folder as an lm_eval model; requests are text, all inside is bytes (UTF-8).

    Args:
        run: the folder of a finished run.
        data, prepared: its data folder and what `rltok prepare` made, where boundaries need them.
        batch_size: rows at a time ("auto": 16); the results don't depend on it.
        on: "cpu" or "cuda"; None: the run's own device.
        device, max_batch_size: lm_eval's, not looked at: it says cuda:0 where there is no GPU too.
    """

    def __init__(
        self,
        run: str,
        data: str | None = None,
        prepared: str | None = None,
        batch_size: int | str | None = 16,
        on: str | None = None,
        device: str | None = None,
        max_batch_size: int | None = None,
    ):
        super().__init__()
        subject = load_trained(Path(run))
        if on is not None:
            subject = subject.on(on)
        set_up_device(subject.run)
        self.subject, folders = subject, [p and Path(p) for p in (data, prepared)]
        rows = int(batch_size) if str(batch_size).isdigit() else 16
        reader = open_hints(subject.run, *folders)
        self.continuations = Continuations(subject, reader, max(1, rows))
        self.cut = 0  # contexts that were cut to fit, so far

    @property
    def tokenizer_name(self) -> str:
        return f"bytes of {self.subject.id}"

    def loglikelihood(self, requests, disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """(nats, greedy) of each (context, continuation). Raises UserError on an empty one."""
        pairs = [tuple(text.encode() for text in request.args) for request in requests]
        found = self.continuations.score(pairs)
        self.cut += sum(item.cut > 0 for item in found)
        for request, item in zip(requests, found, strict=True):
            answer = (item.nats, item.greedy)
            self.cache_hook.add_partial("loglikelihood", request.args, answer)
        return [(item.nats, item.greedy) for item in found]

    def loglikelihood_rolling(self, requests, disable_tqdm: bool = False) -> list[float]:
        """Nats of each whole text, windows as in `rltok evaluate` (they don't overlap)."""
        found = self.continuations.rolling([request.args[0].encode() for request in requests])
        for request, nats in zip(requests, found, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, nats)
        return found

    def generate_until(self, requests, disable_tqdm: bool = False) -> list[str]:
        """Greedy text up to the first of `until`. Raises UserError where sampling is asked for."""
        groups: dict[int, list[int]] = {}
        for i, request in enumerate(requests):
            wanted = request.args[1]
            if wanted.get("do_sample") or wanted.get("temperature"):
                raise UserError("generate_until: greedy decoding alone, without a temperature")
            limit = min(MAX_BYTES, self.continuations.longest // 2)
            groups.setdefault(int(wanted.get("max_gen_toks", limit)), []).append(i)
        texts = [""] * len(requests)
        for at_most, group in groups.items():
            contexts = [requests[i].args[0].encode() for i in group]
            until = [_until(requests[i].args[1].get("until")) for i in group]
            found = self.continuations.write(contexts, until, at_most)
            for i, text in zip(group, found, strict=True):
                texts[i] = text.decode(errors="replace")
                self.cache_hook.add_partial("generate_until", requests[i].args, texts[i])
        return texts


def _until(value: str | list[str] | None) -> list[bytes]:
    stops = [value] if isinstance(value, str) else value or []
    return [stop.encode() for stop in stops if stop]


def main(argv: list[str]) -> int:
    """`rltok lm-eval ...`: lm_eval's own command line, which knows the model "rltok"."""
    from lm_eval.__main__ import cli_evaluate

    sys.argv = ["lm-eval", *argv]
    cli_evaluate()
    return 0
