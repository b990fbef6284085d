"""Columns and labels by name around an `OnlinePipeline`: what of a model only predicts."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Self

import numpy as np

from folklearn import validation
from folklearn.arrays import Array
from folklearn.batch.sparse_fit import ColumnModel
from folklearn.errors import InvalidInputError, StateFileError
from folklearn.evaluate.prediction_sets import COVERAGE, PredictionSets
from folklearn.kernels.blas import OWN
from folklearn.learners import catalogue
from folklearn.learners.sparse_sgd import SparseSgd
from folklearn.model import roles as known_roles
from folklearn.model.dataset import ModelDataset, UnlearnedValues
from folklearn.model.encoder import EncodedBatch, TableEncoder, as_pairs
from folklearn.model.labels import Costs, LabelEncoder, plain, unplain
from folklearn.model.pipeline import TERMS, OnlinePipeline
from folklearn.model.run import Score
from folklearn.readers.open import as_table
from folklearn.readers.table import MissingValues, Table, slice_rows, table_from_records
from folklearn.serialization import Record, Serializable
from folklearn.sparse import is_sparse

_ONLY_PREDICTS = (
    "a model that was saved with inference=True only predicts: learn with one saved without it"
)


class FixedPipeline(OnlinePipeline):
    """An `OnlinePipeline` that only predicts: it holds no rows and no evidence."""

    @classmethod
    def of(cls, pipeline: OnlinePipeline) -> Self:
        fixed = object.__new__(cls)
        fixed.__dict__.update(pipeline.copy_to_predict().__dict__)
        fixed.evidence.n_classes = pipeline.n_classes
        if isinstance(fixed.batch_fit, ColumnModel) and isinstance(fixed.learner, SparseSgd):
            fixed.learner = type(fixed.learner)(**fixed.learner._sizes)  # the fit predicts
        return fixed

    def learn_row(self, x: Array, y: Any, weight: float = 1.0) -> tuple[Array, float]:
        raise InvalidInputError(_ONLY_PREDICTS)

    def run_checked(self, *rows: Any, **late: Any) -> tuple[Array, Array]:
        raise InvalidInputError(_ONLY_PREDICTS)

    def grow(self, **sizes: Any) -> None:
        raise InvalidInputError(_ONLY_PREDICTS)

    def _release_rows(self) -> None:
        """It holds none."""


class TableClassifier(Serializable):
    """Labels, columns and their roles by name; numbers are the business of the pipeline.

    `Model` lets it learn and counts what came of that; its parameters are those of `Model`.
    """

    def __init__(
        self,
        learner: str = "auto",
        *,
        roles: Mapping[str, str] | None = None,
        crosses: Iterable[Sequence[str]] = (),
        classes: Iterable[Any] = (),
        class_weight: Mapping[Any, float] | str | None = None,
        scale: bool = True,
        intercept: bool = True,
        windows: bool = False,
        terms: str = "auto",
        missing: Iterable[str | float] | str | float | None = None,
        coverage: float | Iterable[float] = COVERAGE,
        coverage_by: str = "all",
        device: str | None = None,
        **settings: Any,
    ) -> None:
        self.learner_name = learner
        self.terms = validation.choice("terms", terms, TERMS)
        self.device = OWN if device is None else device
        if isinstance(classes, str):
            raise InvalidInputError(f"classes must be a list of labels, got {classes!r}")
        for label, weight in class_weight.items() if isinstance(class_weight, Mapping) else ():
            validation.number(f"class_weight of {label!r}", weight, 0.0, validation.MAX_WEIGHT)
        # As asked for; what a source decides is forgotten with what was learned from it.
        self._asked = dict(settings), class_weight, list(classes)
        self.missing = MissingValues(missing).asked
        self.scale, self.intercept = bool(scale), bool(intercept)
        self.has_window_bounds = bool(windows)
        self.asked_roles = dict(roles or {})
        self.crosses = as_pairs(crosses)
        self.sets = PredictionSets(coverage, by=coverage_by)
        for name, role in self.asked_roles.items():
            known_roles.check_known(role, name)
        self._forget()

    def _forget(self) -> None:
        """Forget what was learned; roles that were asked for, classes and settings stay."""
        settings, class_weight, classes = self._asked
        self.settings: dict[str, Any] = dict(settings)
        self.encoder: TableEncoder | None = None
        self.pipeline: OnlinePipeline | None = None
        self.label_encoder, self.is_open = LabelEncoder(class_weight), True
        self.sets.forget()
        self.declare(classes)
        sizes = 1, max(2, len(self.label_encoder))
        smallest = catalogue.make(self.learner_name, *sizes, settings, self.device)  # checks them
        self.max_weight = smallest.max_weight

    def to(self, device: str) -> Self:
        """Move the sums of the learner to a device, or back to the "cpu", and return the model."""
        catalogue.make(self.learner_name, 1, 2, {}, device)  # checks the device
        self.device = device
        if self.pipeline is not None:
            self.pipeline.to(device)
        return self

    def declare(
        self, classes: Any = (), *, counts: Sequence[int] = (), max_weight: float = 1.0
    ) -> None:
        """Make classes known that no row has brought; if all are, none is "unseen".

        With `counts`, how often each class will come, "balanced" weights are decided, and the
        learner is made for rows of up to `max_weight`.
        """
        labels, pipeline = self.label_encoder, self.pipeline
        numbers, new, _ = labels.encode(classes)
        if counts:
            every = [*labels.kept, *new]
            heaviest = labels.balance({every[k]: n for k, n in zip(numbers, counts, strict=True)})
            if pipeline is None and "max_weight" in catalogue.settings_of(self.learner_name):
                heaviest *= max(1.0, max_weight)
                self.max_weight = self.settings.setdefault("max_weight", heaviest)
            if pipeline is not None and self.is_open:
                return
        if new and pipeline is not None:
            pipeline.grow(n_classes=len(labels) + len(new))
        elif new and not labels:
            self.is_open = False
        labels.admit(new)

    @property
    def labels(self) -> tuple[Any, ...]:
        """The classes known so far."""
        return tuple(self.label_encoder.kept)

    @property
    def roles(self) -> dict[str, str]:
        """The role of every column so far."""
        return dict(self.asked_roles if self.encoder is None else self.encoder.roles)

    @property
    def n_rounds(self) -> int:
        """The number of rows learned."""
        return 0 if self.pipeline is None else self.pipeline.n_rounds

    @property
    def unseen_probability(self) -> float:
        """The probability that the next row is of a class that was never seen."""
        if not self.is_open:
            return 0.0
        return 1.0 if self.pipeline is None else self.pipeline.unseen_probability

    def predict_proba_one(self, x: Mapping[Any, Any]) -> dict[Any, float]:
        """Return the probabilities of the classes seen, for a row whose label comes soon.

        They sum to 1; that it is none of them has the probability `unseen_probability`. Before the
        first class there are none.
        """
        pipeline, encoder, labels = self.pipeline, self.encoder, self.label_encoder.kept
        if pipeline is None or encoder is None:
            return dict.fromkeys(labels, 1.0 / max(1, len(labels)))
        row, p = encoder.encode_row(x), None
        if row is not None:
            with suppress(InvalidInputError):  # the table below names the column
                p = pipeline.predict_row(row)
        if p is None:
            values = {name: x[name] for name in x if str(name) in encoder.roles}
            X = encoder.encode_known(table_from_records([values], [1]))
            p = pipeline.predict_next(X)[0] if pipeline.sparse else pipeline.predict_row(X[0])
        return dict(zip(labels, p.tolist()))  # noqa: B905 - a fifth of the time here

    def predict_next(self, rows: Any) -> Array:
        """Return what `predict_proba_one` gives of every row (T, K), one not knowing the others."""
        table, K = as_table(rows), len(self.label_encoder)
        if self.pipeline is None or self.encoder is None:
            return np.full((len(table), K), 1.0 / max(1, K))
        return self.pipeline.predict_next(self.encoder.encode_known(table))

    def predict_one(self, x: Mapping[Any, Any], *, costs: Costs | None = None) -> Any:
        """Return the most likely label of a row whose label comes soon, None before any class.

        With `costs`, see `Model.predict`, it is the label of least expected cost.
        """
        p = self.predict_proba_one(x)
        if costs is not None and p:
            P = np.array([[*p.values()]])
            decided = self.label_encoder.decide(P, costs, may_come=self.is_open)
            return self.label_encoder.kept[decided[0]]
        return max(p, key=p.__getitem__) if p else None

    def predict_proba(self, source: Any, **options: Any) -> Array:
        """Return the probabilities (T, K) of `labels` for rows that the model will not follow."""
        pipeline, encoder = self._check_learned()
        unlearned, parts = UnlearnedValues(self), [np.empty((0, len(self.label_encoder)))]
        if isinstance(source, Table | np.ndarray) or is_sparse(source):
            whole = as_table(source)
            tables, dataset = (whole.take(rows) for rows in slice_rows(whole)), None
        else:
            dataset = ModelDataset(self, source, **{"known_only": True, **options})
            tables = (labelled.table for labelled in dataset.rows())
        for table in tables:
            unlearned.count(table)
            parts.append(pipeline.predict(encoder.encode_known(table)))
        if dataset is not None:
            dataset.warn_of_left_out()
            dataset.warn_of_missing()
        unlearned.warn()
        return np.concatenate(parts)

    def predict(self, source: Any, *, costs: Costs | None = None, **options: Any) -> list[Any]:
        """Return the most likely label of every row, or that of least expected cost.

        `costs` are of mistakes, 1 for those that are not named: ``{"fraud": 50}`` of predicting a
        fraud as anything else, ``{("fraud", "theft"): 5}`` of predicting it as a theft. Of two
        classes these are a threshold: "fraud" from a probability of 1/51. `class_weight` is undone.
        """
        P = self.predict_proba(source, **options)
        decided = self.label_encoder.decide(P, costs)
        return [self.label_encoder.kept[k] for k in decided.tolist()]

    def predict_set(self, source: Any, coverage: float = 0.9, **options: Any) -> Any:
        """Return the labels that a row may have, the most probable first; of a table a list.

        `source` is a mapping, or what `predict_proba` takes; the coverage one that was declared.
        Sets miss the label as often as `sets` says, on any sequence of rows whose labels are
        learned: one by one, or by `ask` and `tell`. To rows that the model does not follow that
        applies only if they are like those that it learned. A class that was never seen is in the
        set if `unseen_probability` is as large as the probability of a class in it must be.
        """
        if isinstance(source, Mapping):
            P = np.array([[*self.predict_proba_one(source).values()]])
        else:
            P = self.predict_proba(source, **options)
        named = self.sets.choose(P * (1.0 - self.unseen_probability), self.labels, coverage)
        return named[0] if isinstance(source, Mapping) else named

    def score(
        self, source: Any, target: str | None = None, *, costs: Costs | None = None, **options: Any
    ) -> Score:
        """Return the `Score` of the model as it stands on labelled rows; nothing is learned.

        With `costs`, see `predict`, error, recall and precision are of what they decide for, and
        `Score.cost` is what that costs.
        """
        self._check_learned()
        options = {"known_only": True, **options}
        dataset = ModelDataset(self, source, target, one_pass=True, **options)
        score = Score(dataset.model, costs=costs)
        for rows in dataset.rows():
            score.add(rows, dataset.predict(rows, costs))
        if not score.n_rows:
            asked = "" if dataset.target is None else f" in the column {dataset.target!r}"
            raise InvalidInputError(f"no row of {dataset.reader.name} has a label{asked}")
        dataset.warn()
        return score

    def _make_pipeline(self, encoder: TableEncoder, batch: EncodedBatch) -> OnlinePipeline:
        n_places, dense = max(1, len(encoder.keys), batch.n_first), None
        if encoder.dense is not None and batch.dense is not None:
            dense = self._make_pipeline(encoder.dense, batch.dense)
        # A learner that was asked for by name is used as it is.
        terms = "none" if self.terms == "auto" and self.learner_name != "auto" else self.terms
        pipeline = OnlinePipeline(
            self.learner_name, self.settings, n_features=n_places, terms=terms,
            n_numbers=len(batch.X.slots) if encoder.sparse else 0, n_classes=len(self.labels),
            scale=self.scale, intercept=self.intercept, sparse=encoder.sparse, dense=dense,
            windows=self.has_window_bounds, device=self.device,
        )  # fmt: skip
        numeric = encoder.are_numbers([*encoder.keys, *batch.keys], batch.roles)[:n_places]
        pipeline.evidence.numeric = numeric + [True] * (n_places - len(numeric))
        return pipeline

    def _check_learned(self) -> tuple[OnlinePipeline, TableEncoder]:
        if self.pipeline is None or self.encoder is None:
            raise InvalidInputError(
                "the model has learned nothing yet: `learn_one`, `run` or `fit`"
            )
        return self.pipeline, self.encoder

    def find_category(self, column: str, value: Any) -> int | None:
        """Return the position of a category that is known by name; None if no name has it."""
        return None if self.encoder is None else self.encoder.find_category(column, value)

    def forget_categories(self, positions: Sequence[int]) -> None:
        """Forget the names of categories, and of their crosses; their weights stay, without names.

        `positions` are from `find_category`. Rows that are kept have it until `release_rows`.
        """
        if self.encoder is not None:
            self.encoder.forget_categories(positions)

    def copy_to_predict(self) -> Self:
        """Return a copy that stays as it is while the model goes on, and must not learn."""
        copied = self._shallow()
        copied.label_encoder = self.label_encoder.copy()
        copied.encoder, copied.sets = copy.deepcopy(self.encoder), self.sets.copy()
        copied.pipeline = None if self.pipeline is None else self.pipeline.copy_to_predict()
        return copied

    PARAMS = (
        "learner", "settings", "class_weight", "scale", "intercept", "windows", "roles",
        "crosses", "terms", "missing",
    )  # fmt: skip
    STATE: ClassVar[Mapping[str, Any]] = {
        "is_open": bool,
        "encoder": TableEncoder,
        "pipeline": OnlinePipeline,
        "sets": PredictionSets,
    }

    def _word(self, word: str) -> Any:
        weights = self.label_encoder.class_weight
        if word == "class_weight" and isinstance(weights, Mapping):
            return [[plain(label), float(weight)] for label, weight in weights.items()]
        if word == "class_weight":
            return weights
        if word == "roles":
            return list(self.asked_roles.items())
        names = {"learner": "learner_name", "windows": "has_window_bounds"}
        return getattr(self, names.get(word, word))

    @classmethod
    def _construct(cls, **words: Any) -> Self:
        if isinstance(words["class_weight"], list):
            words["class_weight"] = {unplain(label): w for label, w in words["class_weight"]}
        words["roles"] = dict(words["roles"])
        return cls(words.pop("learner"), **words.pop("settings"), **words)

    def to_record(self) -> Record:
        record = super().to_record()
        record.config["labels"] = list(map(plain, self.labels))
        if self.pipeline is None:
            record.config.pop("encoder", None)
        return record

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        self.label_encoder = LabelEncoder(self.label_encoder.class_weight)
        self.label_encoder.admit(map(unplain, record.word("labels")))
        if len(self.label_encoder.numbers) < len(self.label_encoder):
            raise StateFileError("two classes of a Model state have the same label")
