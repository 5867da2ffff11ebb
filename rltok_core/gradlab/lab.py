"""The laboratory: every estimator's gradient against the exact one, as rows of a table.

A row says, for one estimator and setting, at one set of parameters and for one batch size:
    bias               ||E g - grad J|| / ||grad J||
    cosine             of E g and grad J
    rel_variance       E ||g - E g||^2 / ||grad J||^2
    noise_to_signal    the same variance / (length of E g along grad J)^2: what is left of an
                       estimate that is only longer or shorter than another
    standard_error     of E g, over ||grad J||, where noise was sampled
on the policy's parameters (scope "policy") and on the whole network (scope "network"). Rows are
summed by moments.py; the column `exact` says how.

A deterministic estimator (H-Net) has no variance, and no J either: it draws nothing. It gets two
rows, on the policy's parameters: against the derivative of its own loss with the boundaries held
(what its jumps do to the loss is no part of that), and against the gradient of J as if its
probabilities were drawn from ("its stochastic twin").

Shapes: M sequences of a row, B rows, S positions, K rewards of a row, P parameters.
"""

import itertools
from collections.abc import Callable
from pathlib import Path

import torch

from rltok_core.boundaries.contract import Estimator, Proposal
from rltok_core.config.schema import TrainingConfig
from rltok_core.gradlab import draws, moments
from rltok_core.gradlab.config import GradlabConfig
from rltok_core.gradlab.exact import (
    NotEnumerable,
    Sequences,
    all_sequences,
    batch_of,
    exact_gradient,
    flat,
    per_sequence_gradients,
    through_probabilities,
)
from rltok_core.gradlab.moments import Moments
from rltok_core.gradlab.subjects import Subject, short_training, subjects, texts
from rltok_core.model.unet import UNet
from rltok_core.training.objective import objective

COLUMNS = [
    *("estimator", "gamma", "batch", "samples", "params", "scope", "positions", "settings"),
    *("bias", "cosine", "rel_variance", "noise_to_signal", "standard_error"),
    *("forward_passes", "exact"),
]
ENUMERATED = "enumerated"
ALGEBRA = "enumerated, rows by algebra"
JOINT = "enumerated jointly"
OFF_POLICY = ", boundaries drawn at the target rate"
OWN = "own loss, boundaries held"
TWIN = "stochastic twin, enumerated"


def scopes(model: UNet) -> dict[str, torch.Tensor]:
    """bool (P) by scope: which entries of a whole gradient count."""
    policy_P = torch.cat(
        [
            torch.full((p.numel(),), name.startswith("estimator."))
            for name, p in model.named_parameters()
        ]
    )
    return {"policy": policy_P, "network": torch.ones_like(policy_P)}


def compare(found: Moments, exact_P: torch.Tensor) -> dict[str, float | None]:
    """The measures of a row."""
    length = float(exact_P.norm())
    along = float(found.mean_P @ exact_P) / length
    size = float(found.mean_P.norm())
    vanishes = size < 1e-12 * length
    return {
        "bias": float((found.mean_P - exact_P).norm()) / length,
        "cosine": None if vanishes else along / size,
        "rel_variance": max(0.0, found.variance) / length**2,
        "noise_to_signal": None if vanishes else max(0.0, found.variance) / along**2,
        "standard_error": found.error / length,
    }


class Bench:
    """One estimator at one set of parameters.

    Args:
        params: what the table calls the parameters.
        weights: of the U-Net.
        ids_BS: as many rows as the largest batch.
    """

    def __init__(self, subject: Subject, params: str, weights: dict, ids_BS: torch.Tensor):
        self.subject, self.lab, self.params = subject, subject.lab, params
        self.weights, self.ids_BS, self.rate = weights, ids_BS, subject.lab.target_rate
        self.model = subject.model(subject.config(batch_relative=False), weights)
        self.scopes = scopes(self.model)
        self.rows: list[dict] = []

    def measure(self) -> list[dict]:
        """All rows of the estimator.

        Raises:
            NotEnumerable: it draws boundaries in a way that the laboratory can't sum over.
        """
        try:
            self.exact_BP = exact_gradient(self.model, self.ids_BS, self.rate)
        except NotEnumerable:
            self._deterministic()
            return self.rows
        if self.model.estimator.samples > 1:
            self._several_draws()
            return self.rows
        draws = self._draws(self.model, self.ids_BS[0])
        if not moments.is_separate(self.model, self.ids_BS[0], self.rate, draws[0]):
            self._joint(self.model, "")
        elif self.subject.rewarded:
            self._rewarded()
        else:
            self._separate()
            if "batch_relative" in self.subject.given.params:
                config = self.subject.config(batch_relative=True)
                self._joint(self.subject.model(config, self.weights), "batch_relative")
        return self.rows

    def _cases(self) -> list[dict]:
        """Every setting of gamma and the switches that it has, but for batch_relative: that is off,
        and on by algebra; draws likewise."""
        swept = self.subject.swept
        names = [name for name in swept if name not in ("batch_relative", "samples")]
        values = itertools.product(*(swept[name] for name in names))
        return [dict(zip(names, each, strict=True)) for each in values]

    @staticmethod
    def _words(case: dict, baseline: bool = False) -> str:
        """What is switched on, for the table."""
        on = [name for name, value in case.items() if value is True]
        return " + ".join(on + ["batch_relative"] * baseline) or "none"

    def _add(self, found: Moments, exact_P: torch.Tensor, scope: str, exact: str, **columns):
        defaults = {
            "estimator": self.subject.name,
            "gamma": self.subject.given.params.get("gamma"),
            "samples": self.model.estimator.samples,
            "params": self.params,
            "scope": scope,
            "positions": self.lab.positions,
            "settings": "",
            "exact": exact,
        }
        row = defaults | columns
        row["forward_passes"] = row["samples"]  # of all but the byte layers below the token level
        self.rows.append(row | compare(found, exact_P))

    def _rewarded(self) -> None:
        """Sweep gamma, switches and batch sizes from one set of gradients a row."""
        cases = self._cases()
        baselines = [True, False] if "batch_relative" in self.subject.given.params else [False]
        configs = [self.subject.config(batch_relative=False, **case) for case in cases]
        variants = [self.subject.model(config, self.weights).estimator for config in configs]
        tables: dict[tuple[int, str], list[moments.Rewarded]] = {}
        progress, phase = 1.0, ""
        if self._proposal(progress=0.0).drawn_BS is not None:
            progress, phase = 0.0, OFF_POLICY
        for ids_S in self.ids_BS:
            found = per_sequence_gradients(
                self.model, ids_S, self.rate, logits=True, progress=progress
            )
            for place, estimator in enumerate(variants):
                for scope, row in self._rewarded_row(estimator, found).items():
                    tables.setdefault((place, scope), []).append(row)
        for (place, scope), rows in tables.items():
            for batch, baseline in itertools.product(self.lab.batches, baselines):
                self._add(
                    moments.centred(rows[:batch], baseline),
                    self.exact_BP[:batch].mean(0)[self.scopes[scope]],
                    scope,
                    (ALGEBRA if baseline else ENUMERATED) + phase,
                    gamma=cases[place]["gamma"],
                    batch=batch,
                    settings=self._words(cases[place], baseline),
                )

    def _proposal(self, progress: float) -> Proposal:
        ids_S = self.ids_BS[0]
        batch = batch_of(ids_S, all_sequences(len(ids_S))).at(progress)
        with torch.no_grad():
            return self.model(batch, self.rate).proposal

    def _rewarded_row(self, estimator: Estimator, found: Sequences) -> dict[str, moments.Rewarded]:
        """By scope, of one row."""
        map_MSK = moments.reward_map(estimator, found.outcome)
        reward_MK = estimator.reward(found.outcome)[:, :-1]
        rows = {}
        for scope, columns in self.scopes.items():
            T_MKP = moments.unit_gradients(found, map_MSK, columns)
            rows[scope] = moments.rewarded_row(found, T_MKP, reward_MK, columns)
        return rows

    def _several_draws(self) -> None:
        """By enumerating pairs, by the algebra of leave-one-out, or else jointly on a short row."""
        estimator = self.model.estimator
        pairs = estimator.antithetic and estimator.samples == 2
        if not pairs and (estimator.antithetic or not self.subject.rewarded):
            self._joint_draws()
            return
        counts = self.lab.samples if "samples" in self.subject.swept else [estimator.samples]
        tables: dict[tuple[int, int, str], list[Moments]] = {}
        cases = self._cases()
        for ids_S in self.ids_BS:
            found = per_sequence_gradients(self.model, ids_S, self.rate, logits=True)
            for (place, case), count in itertools.product(enumerate(cases), counts):
                model = self.subject.model(self.subject.config(**case, samples=count), self.weights)
                if pairs:
                    rows = draws.paired(model, found, self.rate, self.scopes)
                else:
                    made = self._rewarded_row(model.estimator, found)
                    rows = {scope: draws.leave_one_out(row, count) for scope, row in made.items()}
                for scope, row in rows.items():
                    tables.setdefault((place, count, scope), []).append(row)
        for (place, count, scope), rows in tables.items():
            for batch in self.lab.batches:
                self._add(
                    moments.independent(rows[:batch]),
                    self.exact_BP[:batch].mean(0)[self.scopes[scope]],
                    scope,
                    ENUMERATED,
                    gamma=cases[place].get("gamma"),
                    batch=batch,
                    samples=count,
                    settings=self._words(cases[place]),
                )

    def _joint_draws(self) -> None:
        ids_S = self.ids_BS[0, : self.lab.joint_positions]
        exact_P = exact_gradient(self.model, ids_S[None], self.rate)[0]
        for scope, columns in self.scopes.items():
            found = draws.joint_draws(self.model, ids_S, self.rate, columns)
            self._add(found, exact_P[columns], scope, JOINT, batch=1, positions=len(ids_S))

    def _draws(self, model: UNet, ids_S: torch.Tensor) -> list[Sequences]:
        """One Sequences, or several if the gradient depends on more noise than the boundaries."""
        first = per_sequence_gradients(model, ids_S, self.rate)
        a_MS, p_MS = all_sequences(len(ids_S)), first.outcome.proposal.prob_BS

        def given(v_MS):
            """Gradients with the numbers that are v_MS of the way through what draws a_MS."""
            u_MS = torch.where(a_MS, p_MS * v_MS, p_MS + (1 - p_MS) * v_MS)
            return per_sequence_gradients(model, ids_S, self.rate, u_MS.to(v_MS.dtype))

        middle = given(torch.full(p_MS.shape, 0.5))
        if (first.loss_MP - middle.loss_MP).abs().max() < moments.TOLERANCE:
            return [first]
        generator = torch.Generator().manual_seed(self.lab.seed)
        return [
            given(torch.rand(p_MS.shape, generator=generator, dtype=torch.float64))
            for _ in range(self.lab.noise_samples)
        ]

    def _separate(self) -> None:
        for case in self._cases():
            config = self.subject.config(batch_relative=False, **case)
            model = self.subject.model(config, self.weights)
            rows: dict[str, list[moments.Separate]] = {scope: [] for scope in self.scopes}
            for ids_S in self.ids_BS:
                draws = self._draws(model, ids_S)
                for scope, columns in self.scopes.items():
                    rows[scope].append(moments.separate_row(draws, columns))
            sampled = f"; {len(draws)} draws of the noise for each" if len(draws) > 1 else ""
            for scope, batch in itertools.product(self.scopes, self.lab.batches):
                self._add(
                    moments.separate(rows[scope][:batch]),
                    self.exact_BP[:batch].mean(0)[self.scopes[scope]],
                    scope,
                    ENUMERATED + sampled,
                    gamma=case.get("gamma"),
                    batch=batch,
                    settings=self._words(case) if case else "",
                )

    def _joint(self, model: UNet, settings: str) -> None:
        """Two short rows, every combination: for one that couples rows in a way of its own."""
        ids_BS = self.ids_BS[:2, : self.lab.joint_positions]
        exact_P = exact_gradient(model, ids_BS, self.rate).mean(0)
        size = {"batch": len(ids_BS), "positions": ids_BS.shape[1], "settings": settings}
        for scope, columns in self.scopes.items():
            found = moments.joint(model, ids_BS, self.rate, columns)
            self._add(found, exact_P[columns], scope, JOINT, **size)

    def _deterministic(self) -> None:
        a_MS = all_sequences(self.lab.positions)
        model, count = self.model, len(self.ids_BS)
        for ids_S in self.ids_BS:
            drawn = model(batch_of(ids_S, a_MS), self.rate).proposal
            if not (drawn.boundary_BS == drawn.boundary_BS[0]).all():
                raise NotEnumerable("it draws boundaries, and not position by position")
        batch = batch_of(self.ids_BS, torch.ones(self.ids_BS.shape) > 0)
        training = TrainingConfig(steps=1, lr=1.0, lam_early=0.0)
        parameters = list(model.parameters())
        loss = objective(model, batch, training, self.rate).loss
        g_P = flat(parameters, torch.autograd.grad(loss, parameters, allow_unused=True))
        g_P = g_P * (1 - 1 / self.lab.positions)  # a mean over bytes there, over positions here
        columns = self.scopes["policy"]
        for twin, words in ((False, OWN), (True, TWIN)):
            exact_P = through_probabilities(model, self.ids_BS, self.rate, twin)
            if not exact_P.any():
                raise NotEnumerable("its probabilities are 0 or 1 to the last digit: no gradient")
            found = Moments(g_P[columns], 0.0)
            self._add(found, exact_P[columns], "policy", words, batch=count)


def run(lab: GradlabConfig, configs: Path, say: Callable[[str], None]) -> tuple[list[dict], dict]:
    """Every row of the table, and the estimators that have none with the reason."""
    chosen, left_out = subjects(lab, configs)
    ids_BS = texts(lab, max(lab.batches), 0)
    trained: dict[tuple, dict] = {}
    rows = []
    for subject in chosen:
        start = subject.model(subject.given).state_dict()
        shape = tuple((name, tuple(value.shape)) for name, value in start.items())
        if shape not in trained:
            trained[shape] = short_training(subject)
        for params, weights in (("init", start), ("trained", trained[shape])):
            say(f"{subject.name}, {params}")
            try:
                rows += Bench(subject, params, weights, ids_BS).measure()
            except NotEnumerable as error:
                left_out[subject.name] = str(error)
    return rows, left_out
