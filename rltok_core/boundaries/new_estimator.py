"""`rltok new-estimator NAME [--folder DIR]`: a new estimator that works, to be changed into yours.

Writes one class and one YAML: with --folder both there (a plugin folder); without it into the
checkout that the command runs in, rltok_core/boundaries and configs/estimators.
"""

import argparse
import keyword
import re
from pathlib import Path

from rltok_core.errors import UserError

VALID = re.compile(r"[a-z][a-z0-9_]*")
SHIPPED = Path(__file__).resolve().parents[2] / "configs/estimators"

CODE = '''"""NAME: say here what it does and what it follows (a paper, its equation).

As it stands: p_i = sigmoid(w x_i + b + logit(target)), a_i ~ Bernoulli(p_i), and a score-function
gradient on what each position's own prediction gains over the early exit.

Shapes: B rows, S positions (bytes, with bos first), D model width.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from rltok_core.boundaries.contract import Estimator, LossTerm, Outcome, Proposal, forced_BS
from rltok_core.data.batch import Batch


@dataclass(frozen=True)
class Params:
    """The keys of NAME.yaml's params."""

    weight: float

    def __post_init__(self):
        if self.weight < 0:
            raise ValueError(f"weight must not be negative, got {self.weight}")


class CLASS(Estimator):
    """One line for a reader of the tables."""

    causal = True  # boundaries up to i use bytes up to i only: the shared tests check it
    learned = True  # it has a rate to steer: curriculum and controller apply
    # hint = "prepared"  # if it needs something made beforehand: see prepare() in the contract

    def __init__(self, params: dict, d_model: int, target_rate: float, seq_len: int):
        super().__init__(params, d_model, target_rate, seq_len)
        self.params = Params(**params)
        self.policy = nn.Linear(d_model, 1)

    def propose(self, x_BSD: torch.Tensor, batch: Batch, target_rate: float) -> Proposal:
        """Where the boundaries go. All randomness comes from batch.stream."""
        with torch.autocast(x_BSD.device.type, enabled=False):
            # at least float32: a bf16 logit would quantise the probabilities
            wide_BSD = x_BSD.to(torch.promote_types(x_BSD.dtype, torch.float32))
            logit_BS = self.policy(wide_BSD).squeeze(-1)
        rate = min(max(target_rate, 1e-4), 1 - 1e-3)  # a curriculum asks for up to 1
        logit_BS = logit_BS + math.log(rate / (1 - rate)) + self.rate_bias
        forced = forced_BS(batch)
        u_BS = batch.stream.uniform(batch.ids_BS.shape[1])
        boundary_BS = ((u_BS < torch.sigmoid(logit_BS.detach())) | forced) & batch.valid_BS
        free_BS = batch.valid_BS & ~forced
        prob_BS = torch.where(free_BS, torch.sigmoid(logit_BS), boundary_BS.to(logit_BS.dtype))
        return Proposal(boundary_BS, prob_BS, free_BS, logit_BS)

    # to_tokens and to_bytes: select and distribute, unless you write your own

    def losses(self, outcome: Outcome) -> dict[str, LossTerm]:
        """What is added to the loss, by name; empty where the network's own loss is enough."""
        proposal, batch = outcome.proposal, outcome.batch
        gain_BS = (outcome.logp_BS - outcome.logp_early_BS).detach()
        advantage_BS = (gain_BS - gain_BS.sum() / batch.scored_BS.sum().clamp(min=1)).where(
            batch.scored_BS, 0.0
        )
        sign_BS = 1.0 - 2.0 * proposal.boundary_BS.to(proposal.logit_BS.dtype)
        logpi_BS = -F.softplus(sign_BS * proposal.logit_BS) * proposal.free_BS
        policy = -(advantage_BS * logpi_BS).sum() / batch.valid_BS.sum()
        return {"policy": LossTerm(self.params.weight, policy)}
'''

YAML = """# Say in one line what it is, and after whom. Every parameter, with its default.
class: MODULE:CLASS
params:
  weight: 0.01           # of the policy's term in the loss
"""


def write(name: str, folder: Path | None) -> tuple[Path, Path]:
    """Write the class and the YAML of a new estimator; returns their paths.

    Args:
        name: lower case letters, digits and underscores: the file's, the row's in tables.
        folder: a plugin folder, made if need be; None: the checkout in the current folder.

    Raises:
        UserError: no valid name, one that is taken, a file that exists, or no checkout here.
    """
    if not VALID.fullmatch(name) or keyword.iskeyword(name):
        raise UserError(
            f"{name!r} can't be a name: lower case letters, digits and _, a letter first, and no "
            "word of Python's own"
        )
    code_folder = yaml_folder = folder
    module = f"{name}.py"
    if folder is None:
        code_folder, yaml_folder = Path("rltok_core/boundaries"), Path("configs/estimators")
        module = f"rltok_core.boundaries.{name}"
        for each in (code_folder, yaml_folder):
            if not each.is_dir():
                raise UserError(f"no folder {each} here: run it in a checkout, or give --folder")
    code, config = code_folder / f"{name}.py", yaml_folder / f"{name}.yaml"
    for path in (code, config):
        if path.exists():
            raise UserError(f"{path} exists; nothing was written")
    if (SHIPPED / f"{name}.yaml").exists():
        raise UserError(f"estimator {name!r} is there already, in {SHIPPED}; take another name")
    words = {"NAME": name, "CLASS": name.title().replace("_", ""), "MODULE": module}
    code_folder.mkdir(parents=True, exist_ok=True)
    for path, text in ((code, CODE), (config, YAML)):
        path.write_text(re.sub("|".join(words), lambda word: words[word[0]], text), "utf-8")
    return code, config


def main(argv: list[str]) -> int:
    """Write the files and say what comes next."""
    parser = argparse.ArgumentParser(
        prog="rltok new-estimator", description=__doc__.splitlines()[0].partition(": ")[2]
    )
    parser.add_argument("name", help="lower case letters, digits and _")
    parser.add_argument("--folder", type=Path, help="a plugin folder instead of this checkout")
    args = parser.parse_args(argv)
    code, config = write(args.name, args.folder)
    test = f'python -m pytest tests/boundaries/test_every_estimator.py -k "[{args.name}]"'
    if args.folder:
        test = f"RLTOK_PLUGINS={args.folder} {test}"
    print(f"{code}\n{config}\nTest it: {test}\nHow to go on: docs/adding-an-estimator.md")
    return 0
