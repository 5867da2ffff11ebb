"""What the laboratory is told: configs/gradlab.yaml, strict."""

from typing import Annotated

from pydantic import Field

from rltok_core.config.schema import EstimatorEntry, ModelConfig, Rate
from rltok_core.config.sources import PlantedSource
from rltok_core.config.strict import Strict


class ShortTraining(Strict):
    """AdamW at a constant rate on fresh text, with the estimator's own YAML."""

    steps: int = Field(ge=1)
    batch_size: int = Field(ge=1)
    lr: float = Field(gt=0)
    lr_policy: float = Field(gt=0, description="of the estimator's parameters")
    lr_of: dict[str, float] = Field({}, description="the same, by an estimator's name")


class GradlabConfig(Strict):
    """See configs/gradlab.yaml for what each means."""

    estimators: list[str]
    beside: list[EstimatorEntry]
    plugins: list[str]
    model: ModelConfig
    positions: int = Field(ge=4, le=14)
    batches: list[Annotated[int, Field(ge=1)]] = Field(min_length=1)
    target_rate: Rate
    gammas: list[Annotated[float, Field(ge=0, le=1)]] = Field(min_length=1)
    samples: list[Annotated[int, Field(ge=2)]] = Field(min_length=1)
    switches: list[str]
    neutral: dict[str, float]
    noise_samples: int = Field(ge=2)
    joint_positions: int = Field(ge=3, le=6)
    language: PlantedSource
    training: ShortTraining
    seed: int = Field(ge=0)
