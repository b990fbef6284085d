"""A learner with everything around it that a stream of raw rows needs."""

import math
import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folklearn import persist, problem, registry
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.learners.contract import Certificate, Learner, Progress
from folklearn.persist import Record
from folklearn.streams.scaler import OnlineScaler
from folklearn.streams.table import Table, listed

Array = NDArray[np.float64]


class StreamModel:
    """A scaler, a learner, and the names of columns and labels: raw rows in, losses out.

    Parameters
    ----------
    learner : any fresh learner of ``len(columns) + 1`` features (the scaler appends a
        constant) and ``len(labels)`` classes.
    columns : names of the raw features, in the order of the columns of X.
    target : name of the column that holds the labels.
    labels : text of every class; its position is the class number.

    Attributes
    ----------
    n_rounds, loss, n_mistakes : rounds, total (weighted) log loss in nats, and rounds in which
        the most likely class was wrong, since the first round of its life.
    total_weight : what to divide the loss by for an average: the number of rounds, unless
        examples were weighted.

    Examples
    --------
    >>> from folklearn import Folklore
    >>> learner = Folklore(n_features=2, n_classes=2)
    >>> model = StreamModel(learner, columns=["size"], target="kind", labels=["cat", "dog"])
    >>> P, losses = model.run_block([[30.0], [70.0], [28.0]], [0, 1, 0])
    >>> model.labels[model.predict([66.0]).argmax()]
    'dog'
    """

    def __init__(
        self,
        learner: Learner,
        *,
        columns: Sequence[str],
        target: str,
        labels: Sequence[str],
    ) -> None:
        expected = (len(columns) + 1, len(labels))
        if (learner.n_features, learner.n_classes) != expected:
            raise InvalidInputError(
                f"the learner takes {learner.n_features} features and {learner.n_classes} "
                f"classes; {len(columns)} columns and a constant, and {len(labels)} labels, "
                f"need {expected[0]} and {expected[1]}"
            )
        self.learner = learner
        self.columns = tuple(columns)
        self.target = target
        self.labels = tuple(labels)
        self.n_rounds = 0
        self.loss = 0.0
        self.n_mistakes = 0
        self.total_weight = 0.0
        self._scaler = OnlineScaler(len(columns))

    def predict(self, x: ArrayLike) -> Array:
        """Return the class probabilities of raw features: (d,) in, (K,) out, or (T, d).

        Every row is predicted as if it came next; nothing is learned.
        """
        return self.learner.predict(self._scaler.transform(x))

    def run_block(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        weight: ArrayLike | None = None,
        progress: Progress = False,
    ) -> tuple[Array, Array]:
        """Predict, then learn, raw rows X (T, d) with class numbers y (T,), one by one.

        Returns the predictions (T, K), each made before its label was learned, and their
        log losses (T,), unweighted. Weights (T,) count in learning and in the total loss; the
        scaling of the features does not know them.
        """
        X, _ = problem.contexts(X, len(self.columns))
        y, soft = problem.labels(y, len(X), len(self.labels))
        if len(soft):
            raise InvalidInputError("y must hold class numbers, not soft labels")
        weights = problem.weights(weight, len(X))
        self._refuse_too_heavy(float(weights.max(initial=0.0)))
        # Checked above, so that the scaler and the learner move together or not at all.
        scaled = self._scaler.learn_transform(X)
        given = None if weight is None else weights
        P = self.learner.run(scaled, y, weight=given, progress=progress)
        smallest = np.finfo(np.float64).tiny  # a probability may underflow; its loss is finite
        losses: Array = -np.log(np.maximum(P[np.arange(len(y)), y], smallest))
        self.n_rounds += len(y)
        self.loss += float(losses.sum() if weight is None else weights @ losses)
        self.total_weight += float(weights.sum())
        self.n_mistakes += int((P.argmax(axis=1) != y).sum())
        return P, losses

    def certificate(self) -> Certificate | None:
        """Return the learner's certificate, or None if it is of a kind that carries none."""
        if not hasattr(self.learner, "certificate"):
            return None
        certificate: Certificate = self.learner.certificate()
        return certificate

    def _refuse_too_heavy(self, weight: float) -> None:
        limit = getattr(self.learner, "max_weight", math.inf)
        if weight > limit:
            raise InvalidInputError(
                f"an example has the weight {weight:g}, and this model was made for weights of at "
                f"most {limit:g}: divide the weights, or learn all examples anew"
            )

    def refuse_unless_it_fits(self, table: Table) -> None:
        """Raise if a table has other columns, or labels that this model does not know.

        A column that does not occur in a sparse table is 0 there.
        """
        found, known = set(table.columns), set(self.columns)
        missing = [column for column in self.columns if column not in found and not table.sparse]
        extra = [column for column in table.columns if column not in known]
        differences = [
            f"{verb}: {listed(names)}"
            for verb, names in (("it lacks", missing), ("the model does not know", extra))
            if names
        ]
        if differences:
            raise InvalidInputError(
                f"the columns of {table.name} are not those of the model; " + "; ".join(differences)
            )
        self.refuse_unknown_labels(table)
        if table.weights is not None:
            self._refuse_too_heavy(table.weights.largest)

    def refuse_unknown_labels(self, table: Table) -> None:
        """Raise if a table has labels that this model does not know."""
        unknown = [
            (line, label) for label, line in table.first_lines.items() if label not in self.labels
        ]
        if unknown:
            line, label = min(unknown)
            raise InvalidInputError(
                f"{table.unit} {line} of {table.name} has the label {label!r}, which the model "
                f"does not know; its labels are: {listed(self.labels)}"
            )

    def to_record(self) -> Record:
        """Return the full state as a record; the learner's and the scaler's lie inside."""
        learner, learner_arrays = persist.nest("learner", self.learner.to_record())
        scaler, scaler_arrays = persist.nest("scaler", self._scaler.to_record())
        config = {
            "columns": list(self.columns),
            "target": self.target,
            "labels": list(self.labels),
            "n_rounds": self.n_rounds,
            "loss": self.loss.hex(),
            "n_mistakes": self.n_mistakes,
            "total_weight": self.total_weight.hex(),
            "learner": learner,
            "scaler": scaler,
        }
        return Record("StreamModel", config, learner_arrays | scaler_arrays)

    @classmethod
    def from_record(cls, record: Record) -> "StreamModel":
        """Rebuild a model that goes on exactly where the recorded one stopped."""
        config = record.config
        try:
            learner = registry.revive(persist.unnest("learner", config["learner"], record.arrays))
            model = cls(
                learner, columns=config["columns"], target=config["target"], labels=config["labels"]
            )
            model.n_rounds = config["n_rounds"]
            model.loss = float.fromhex(config["loss"])
            model.n_mistakes = config["n_mistakes"]
            # Files written before there were weights do not have it.
            weight = config.get("total_weight")
            model.total_weight = float(model.n_rounds) if weight is None else float.fromhex(weight)
            scaler = persist.unnest("scaler", config["scaler"], record.arrays)
        except KeyError as error:
            raise StateFileError(f"a StreamModel state needs {error.args[0]}") from None
        model._scaler = OnlineScaler.from_record(scaler)
        return model

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the full state to a safetensors file; `folklearn.load` resumes exactly."""
        persist.write(path, self.to_record())

    def __repr__(self) -> str:
        return f"StreamModel({self.learner!r}, target={self.target!r})"
