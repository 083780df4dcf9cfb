"""Training: the step and the loop, callbacks, checkpoints, files of weights, averages in place of weights."""

from pytensor_cl.train.callbacks import Checkpoint, CSVLog, EarlyStopping, Plot, ReduceOnPlateau
from pytensor_cl.train.data_parallel import DistributedStep, WorkerLost, distribute
from pytensor_cl.train.files import load, read_metadata, save
from pytensor_cl.train.history import History
from pytensor_cl.train.loop import fit
from pytensor_cl.train.run import Run
from pytensor_cl.train.steps import Step, TrainingStep, step
from pytensor_cl.train.swap import swapped

__all__ = [
    "CSVLog",
    "Checkpoint",
    "DistributedStep",
    "EarlyStopping",
    "History",
    "Plot",
    "ReduceOnPlateau",
    "Run",
    "Step",
    "TrainingStep",
    "WorkerLost",
    "distribute",
    "fit",
    "load",
    "read_metadata",
    "save",
    "step",
    "swapped",
]
