"""Streams as targets of a job, and the sink through which it writes to them."""

from typing import Literal

from pydantic import Field, field_validator

from bascule.pipeline.model.base import Part

__all__ = ["Sink", "Stream"]


class Stream(Part):
    """A stream of the broker. The result must have the column `value`, and may have `key`, `headers`, `subject`,
    `reply`, `id`, `timestamp`, `origin_time` and `partition`. The streams of a job get each epoch once, together.
    """

    format: Literal["bascule"] = Field(description="a stream")
    stream: str = Field(min_length=1, description="its name; it is created with the first rows")
    name: str = Field(
        default="stream", pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="name of the target within the job"
    )
    partitions: int = Field(default=1, ge=1, le=1000, description="partitions of the stream, when it is created")

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return f"stream {self.stream}"


class Sink(Part):
    """How the job writes to its streams: through one sink, which has the job's name."""

    address: str | None = Field(default=None, description="of the broker; default: that of the source")
    namespace: str | None = Field(default=None, description="of the streams; default: that of the source")
    on_oversize: Literal["fail", "drop"] = Field(
        default="fail", description="if a row is larger than the stream allows: end the job, or leave the row out"
    )
    on_invalid: Literal["fail", "drop"] = Field(
        default="fail", description="if a stream refuses a row for another reason: end the job, or leave the row out"
    )
    on_replay_difference: Literal["fail", "accept"] = Field(
        default="fail",
        description="if an epoch that is written again has other rows than the streams have: end the job, or keep what "
        "they have",
    )
    take_over: str | None = Field(
        default=None,
        description="id of the query whose sink this job continues for ever, as the refusal prints it; for a new "
        "checkpoint",
    )

    @field_validator("address", "namespace", "take_over")
    @classmethod
    def _check_text(cls, value: str | None) -> str | None:
        if value is not None and not value.strip():
            raise ValueError("it is empty")
        return value
