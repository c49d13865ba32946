"""Projects of Spark Declarative Pipelines over streams: a template, and a launcher with the settings that they need."""

from bascule.spark.declarative.launcher import Refresh, run_project
from bascule.spark.declarative.project import create_project

__all__ = ["Refresh", "create_project", "run_project"]
