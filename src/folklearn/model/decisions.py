"""Decisions for rows as people have them: actions by name, rewards that may come later."""

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from folklearn import serialization, validation
from folklearn.arrays import TINY, Array
from folklearn.bandits.agent import MAX_PENDING, Decision, DecisionMaker, action_name
from folklearn.bandits.rewards import RULES, RegretCertificate, why_unproven
from folklearn.errors import InvalidInputError
from folklearn.kernels.exploration import draw_action, most_regret
from folklearn.model import roles as known_roles
from folklearn.model.encoder import EncodedBatch, TableEncoder, as_pairs
from folklearn.model.labels import plain_row
from folklearn.model.pipeline import TERMS, OnlinePipeline
from folklearn.readers.table import not_a_row_error, table_from_records
from folklearn.scaler import OnlineScaler
from folklearn.serialization import Record
from folklearn.utils import count_of, join_names

Name = str | int  # of an action or of a decision
Row = Mapping[Any, Any]
Actions = Iterable[Name] | Mapping[Name, Row] | None
Menu = dict[Name, Row | None]  # features of actions by name, None for each if they are only names

ACTION = "action"  # the column of its name, where actions have features
_UNKNOWN_LOSS = 0.5  # expected of an action that has brought no reward yet
_MAX_ACTIONS = 10_000
_SETTINGS = {"worst_case": False}  # a third faster, for every action of a decision


class _Pending(NamedTuple):
    decision: Decision
    number: int  # of the decision, in their order
    loss: float  # 1 minus the share of the reward that was expected of the action
    explored: float  # the most that the decision could cost beyond `eta` times its excess log loss
    eta: float


class DecisionModel(DecisionMaker):
    r"""Choose actions for rows as people have them, and learn from the rewards of what was chosen.

    Use it where you act on a row, a dictionary as for `folklearn.Model`, and learn only what came
    of it: an offer, a headline, a route. Rewards may come later, in any order, by the id of the
    decision. For arrays there are the agents of `folklearn.bandits`.

    Where actions are only names, each has a regression of its reward of its own, and actions may
    come and go: a new one is expected to bring the middle of the range of rewards until it has
    brought some. Where actions have features, one regression of row, features and name together
    learns from all of them, so that it knows something of an action that was never played. An
    action is drawn by the gaps between the expected rewards, as `bandits.RewardAgent` says. Time of
    a decision and its reward: a prediction for each action, and one row learned.

    Guarantee: `regret_certificate`, if every reward comes before the next decision.

    Parameters
    ----------
    actions : names, or features by name, of the actions of a decision that lists none itself.
    context : what a row holds, if that is to be declared: "number", or the list of the values of
        a category, by column, those of features too, and "action" if its name is to count there.
        Other columns are then refused, and other values count as missing.
    roles, crosses, terms : as for `folklearn.Model`.
    exploration, strength : how expected rewards are played, see `bandits.RewardAgent`.
    reward_range : the least and the largest reward.
    default_reward : what a decision gets that expires (`expire`); by default it is dropped.
    wait : decisions after which one without a reward expires, at least 1; by default never.
    max_pending : decisions that may wait for a reward, at least 1; beyond, the oldest expires.
    max_actions : actions that are remembered; beyond, that which was offered least recently is not.
    seed : an integer, or a NumPy Generator, which is then used and advanced.

    Attributes
    ----------
    actions : the names of the actions that are remembered, those offered last at the end.
    roles : the role of every column so far.
    n_decisions, n_rewards : decisions, and rewards learned; of these n_expired were the default.
    n_dropped, n_forgotten : decisions that were dropped without a reward, and actions that were
        forgotten after they had brought some.

    Examples
    --------
    >>> import folklearn
    >>> model = folklearn.DecisionModel(["tea", "coffee"])
    >>> for hour in [8, 21] * 200:
    ...     decision = model.decide({"hour": hour, "country": "PE"})
    ...     model.reward(decision.id, decision.action == ("coffee" if hour < 12 else "tea"))
    >>> expected = model.expected_rewards({"hour": 9, "country": "PE"})
    >>> max(expected, key=expected.get)
    'coffee'
    """

    PARAMS = (
        "actions", "context", "roles", "crosses", "terms", "exploration", "strength",
        "reward_range", "default_reward", "wait", "max_pending", "max_actions",
    )  # fmt: skip
    COUNTERS = ("n_decisions", "n_rewards", "n_expired", "n_dropped", "n_late", "n_forgotten")
    ARRAYS = ("regret",)
    STATE: ClassVar = {"has_features": bool, "encoder": TableEncoder}

    def __init__(
        self,
        actions: Actions = (),
        *,
        context: Mapping[str, str | Sequence[str]] | None = None,
        roles: Mapping[str, str] | None = None,
        crosses: Iterable[Sequence[str]] = (),
        terms: str = "auto",
        exploration: str = "fastcb",
        strength: float = 5.0,
        reward_range: Sequence[float] = (0.0, 1.0),
        default_reward: float | None = None,
        wait: int | None = None,
        max_pending: int = MAX_PENDING,
        max_actions: int = _MAX_ACTIONS,
        seed: int | np.random.Generator = 0,
    ) -> None:
        self.context = None if context is None else dict(context)
        self.asked_roles, self.crosses = dict(roles or {}), as_pairs(crosses)
        for name, role in self.asked_roles.items():
            known_roles.check_known(role, name)
        self.terms = validation.choice("terms", terms, TERMS)
        self.exploration = validation.choice("exploration", exploration, tuple(RULES))
        self._rule = RULES[exploration]
        self.strength = validation.positive("strength", strength)
        self.reward_range = _check_reward_range(reward_range)
        self.default_reward = default_reward
        if default_reward is not None:
            self._outcome(default_reward, "default_reward")
        self.max_pending = validation.count("max_pending", max_pending, 1)
        self._start(seed, default_reward, wait)
        self.max_actions = validation.count("max_actions", max_actions, 1)
        self.has_features: bool | None = None  # whether actions have; None before any came
        self.encoder: TableEncoder | None = None
        if self.context is not None:
            self.encoder = TableEncoder.of_context(self.context, self.crosses)
        self.menu = self._read_actions(actions)
        if self.menu:
            self.has_features = isinstance(actions, Mapping)
        self.regressions: dict[Name | None, OnlinePipeline] = {}  # by action, None for all of them
        self._losses: dict[Name | None, float] = {}  # the log loss of each
        # Number and sum of the rewards of each action; those that were offered last at the end.
        self._totals = OrderedDict.fromkeys(self.menu, (0, 0.0))
        self._regret = np.zeros(2)  # the sum of what was explored, and the largest eta
        self.n_rewards = self.n_late = self.n_forgotten = 0

    def decide(self, row: Row, actions: Actions = None, *, id: Name | None = None) -> Decision:
        """Choose an action for a row; its reward goes to `reward`, at any later time.

        `actions` are the names of those that may be chosen, or their features by name; by default
        those that the model was made with. `id` is a name of your own for the decision, such as
        that of your event; by default its number, 0, 1, 2, ...
        """
        menu, rows = self._offer(row, actions)
        id = self.n_decisions if id is None else action_name(id, "the id of a decision")
        if id in self._pending:
            raise InvalidInputError(f"decision {id!r} waits for its reward: give another id")
        X = self._encode(rows, admit=True)
        self.has_features = None not in menu.values()
        self._expire_old()
        P, losses, gamma = self._play(menu, X)
        played = int(draw_action(P, self._rng.random()))
        # Probabilities are sums, which may round to above 1.
        name, propensity = [*menu][played], min(float(P[played]), 1.0)
        decision = Decision(id, name, propensity, plain_row(rows[played % len(rows)]))
        loss, eta = float(losses[played]), self._rule.price * gamma
        explored = float(most_regret(P, losses, eta))
        self._pending[id] = _Pending(decision, self.n_decisions, loss, explored, eta)
        self.n_decisions += 1
        self._remember(menu)
        return decision

    def reward(self, decision: Decision | Name, reward: float) -> None:
        """Learn the reward of a decision, or of the decision of this id, once."""
        pending, share = self._find(decision), self._outcome(reward)
        self._absorb(pending, share)
        n, total = self._totals.get(pending.decision.action, (0, 0.0))
        self._totals[pending.decision.action] = n + 1, total + float(reward)

    def release_rows(self) -> None:
        """Let go of every row: decisions that wait `expire`, and the regressions keep none."""
        for id in [*self._pending]:
            self.expire(id)
        self.regressions = {key: each.without_rows() for key, each in self.regressions.items()}

    def learn_logged(
        self, row: Row, action: Name, reward: float, features: Row | None = None
    ) -> None:
        """Learn what an action brought that another policy chose, however likely it was there."""
        menu, rows = self._offer(row, [action] if features is None else {action: features})
        share, X = self._outcome(reward), self._encode(rows, admit=True)
        self.has_features = features is not None
        self._learn(action, X, float(self._expect_losses(menu, X)[0]), share)
        self._remember(menu)
        self.n_late += len(self._pending)  # played by what was expected before

    def check_row(self, row: Row, actions: Actions = None) -> None:
        """Raise if `decide` would refuse a row."""
        self._encode(self._offer(row, actions)[1])

    def policy(self, row: Row, actions: Actions = None) -> dict[Name, float]:
        """Return the probabilities with which `decide` would choose now, by action."""
        menu, rows = self._offer(row, actions)
        P, _, _ = self._play(menu, self._encode(rows))
        return dict(zip(menu, P.tolist(), strict=True))

    def expected_rewards(self, row: Row, actions: Actions = None) -> dict[Name, float]:
        """Return the reward that is expected of every action."""
        menu, rows = self._offer(row, actions)
        low, high = self.reward_range
        rewards = high - (high - low) * self._expect_losses(menu, self._encode(rows))
        return dict(zip(menu, rewards.tolist(), strict=True))

    @property
    def actions(self) -> tuple[Name, ...]:
        return tuple(self._totals)

    @property
    def roles(self) -> dict[str, str]:
        return dict(self.asked_roles if self.encoder is None else self.encoder.roles)

    @property
    def rewards(self) -> dict[Name, tuple[int, float | None]]:
        """The number of rewards of each action, and their mean, None without any."""
        return {name: (n, total / n if n else None) for name, (n, total) in self._totals.items()}

    @property
    def mean_reward(self) -> float | None:
        """The mean of these rewards, None without any."""
        n_rewards = sum(n for n, _ in self._totals.values())
        return sum(total for _, total in self._totals.values()) / n_rewards if n_rewards else None

    @property
    def n_bytes(self) -> int:
        """About how much memory the regressions, the encoder and what waits take."""
        n_bytes = 0 if self.encoder is None else self.encoder.n_bytes
        n_bytes += sum(pipeline.n_bytes for pipeline in self.regressions.values())
        return n_bytes + len(self._pending) * self.n_bytes_of_decision

    @property
    def n_bytes_of_decision(self) -> int:
        return 1_000 + 100 * len(self.roles)

    def regret_certificate(self, *, B: float = 10.0) -> RegretCertificate:
        """Return what is proven about the expected regret so far, for models of norm at most B."""
        is_open = any(each.number == self.n_decisions - 1 for each in self._pending.values())
        n_missing = self.n_dropped + self.n_expired + len(self._pending) - is_open
        regression, reason = 0.0, why_unproven(n_missing, self.n_late)
        if self.n_forgotten:
            reason = reason or f"what {count_of(self.n_forgotten, 'action')} brought was forgotten"
        words = "the columns" if self.encoder is None else f"the columns ({self.encoder.in_words})"
        explored, eta = self._regret.tolist()
        for key, pipeline in self.regressions.items():
            if proven := pipeline.certificate(self._losses[key], words):
                reason = reason or proven.reason
                regression += max(0.0, proven.loss - proven.at_norm(math.sqrt(2.0) * B))
        words = words.format(by="the first rewards of each action")
        return RegretCertificate(self.n_rewards, explored, eta, regression, B, words, reason)

    def _read_actions(self, actions: Actions) -> Menu:
        if isinstance(actions, str) or not isinstance(actions, Iterable):
            raise InvalidInputError(f"actions are a list of names, or a dictionary: {actions!r}")
        features: Mapping[Name, Any] | None = actions if isinstance(actions, Mapping) else None
        if self.has_features not in (None, features is not None):
            what, wanted = "are only names", "a list of names"
            if self.has_features:
                what, wanted = "have features", "a dictionary of them by name"
            raise InvalidInputError(f"the actions of this model {what}: give {wanted}")
        menu: Menu = {}
        for name in map(action_name, actions):
            if name in menu:
                raise InvalidInputError(f"two actions have the same name, {name!r}")
            menu[name] = None if features is None else features[name]
            if features is not None and not isinstance(menu[name], Mapping):
                raise not_a_row_error(menu[name], f"what action {name!r} has")
        if len(menu) > self.max_actions:
            n, most = len(menu), self.max_actions
            raise InvalidInputError(f"{n:,} actions are more than max_actions, {most:,}")
        return menu

    def _offer(self, row: Row, actions: Actions) -> tuple[Menu, list[Row]]:
        """Return the actions of a decision, and the rows to predict: one if they are only names."""
        if not isinstance(row, Mapping):
            raise not_a_row_error(row)
        menu = self.menu if actions is None else self._read_actions(actions)
        if not menu:
            raise InvalidInputError('there is no action to choose from: decide(row, ["a", "b"])')
        if self.context is not None:
            columns = set(row).union(*filter(None, menu.values()))
            if unknown := sorted(map(str, columns - self.context.keys())):
                raise InvalidInputError(
                    f"{join_names(unknown)} is not in the context of this model, which is: "
                    f"{join_names(list(self.context))}"
                )
        rows: list[Row] = []
        for name, features in menu.items():
            if features is None:
                return menu, [row]
            merged = {**row, **features, ACTION: str(name)}
            if len(merged) < len(row) + len(features) + 1:
                raise InvalidInputError(
                    f"the row and the features of action {name!r} have a column in common, or one "
                    f"that is called {ACTION!r}: rename it"
                )
            if self.context is not None and ACTION not in self.context:
                del merged[ACTION]
            rows.append(merged)
        return menu, rows

    def _remember(self, menu: Menu) -> None:
        """Note which actions were offered last; forget those beyond `max_actions`."""
        for name in menu:
            self._totals.setdefault(name, (0, 0.0))
            self._totals.move_to_end(name)
        while len(self._totals) > self.max_actions:
            name, _ = self._totals.popitem(last=False)
            if self.regressions.pop(name, None) is not None:
                del self._losses[name]
                self.n_forgotten += 1

    def _encode(self, rows: Sequence[Row], *, admit: bool = False) -> Any:
        """Return rows as numbers (T, d), or sparse; `admit` opens places for what is new."""
        encoder = self.encoder
        encoded = [] if encoder is None else [encoder.encode_row(row) for row in rows]
        dense = [x for x in encoded if x is not None]
        if len(dense) == len(rows):
            for x in dense:
                OnlineScaler.check_usable(x)
            return np.array(dense)
        table = table_from_records(rows, range(1, len(rows) + 1))
        if encoder is None:
            inferred = known_roles.of_first_values(table)
            if isinstance(rows[0].get(ACTION), str):  # a name, whatever it looks like
                inferred[ACTION] = known_roles.CATEGORY
            roles = {**inferred, **self.asked_roles}
            is_wide = known_roles.WORDS in roles.values()
            encoder = TableEncoder(roles, self.crosses, sparse=is_wide)
        batch = encoder.encode(table)
        if self.context is not None or not admit:
            batch = EncodedBatch(encoder.encode_known(table))
        validation.check_contexts(batch.X.numbers if encoder.sparse else batch.X, gaps=True)
        if admit:
            encoder.admit(batch.keys, batch.roles)
            self.encoder = encoder
        return batch.X

    def _expect_losses(self, names: Iterable[Name], X: Any) -> Array:
        losses = []
        for i, name in enumerate(names):
            pipeline = self.regressions.get(None if self.has_features else name)
            row = i % len(X)
            if pipeline is None:
                losses.append(_UNKNOWN_LOSS)
            elif pipeline.sparse:
                x = X[row : row + 1].of_slots(pipeline.n_features)
                losses.append(float(pipeline.predict_next(x)[0, 0]))
            else:  # places that came later say nothing yet
                x = X[row, : pipeline.n_features]
                losses.append(float(pipeline.predict_row(x)[0]))
        return np.array(losses)

    def _play(self, menu: Menu, X: Any) -> tuple[Array, Array, float]:
        """Return the probabilities (K,) of actions, their expected losses, and gamma."""
        losses = self._expect_losses(menu, X)
        gamma = self.strength * math.sqrt(len(menu) * (self.n_decisions + 1))
        return self._rule.play(losses, gamma), losses, gamma

    def _learn(self, name: Name, X: Any, loss: float, share: float) -> None:
        """Learn one row (1, d) with a reward, of which `loss` was expected to be missing."""
        key, encoder = None if self.has_features else name, self.encoder
        assert encoder is not None
        y: Any = int(share) if share in (0.0, 1.0) else np.array([1.0 - share, share])
        pipeline = self.regressions.get(key)
        if pipeline is None:
            n_places = X.shape[1]
            pipeline = OnlinePipeline(
                "auto", _SETTINGS, n_features=n_places, n_classes=2, terms=self.terms,
                n_numbers=len(X.slots) if encoder.sparse else 0, sparse=encoder.sparse,
            )  # fmt: skip
            numeric = encoder.are_numbers(encoder.keys)
            pipeline.evidence.numeric = numeric + [True] * (n_places - len(numeric))
        if encoder.sparse or X.shape[1] > pipeline.n_features:
            late = EncodedBatch(X, encoder.keys[pipeline.n_features :])
            pipeline.run(X, np.asarray(y)[None], **encoder.describe_late(late))
        else:
            pipeline.learn_row(X[0], y)
        self.regressions[key] = pipeline
        log_loss = -share * math.log(max(1.0 - loss, TINY))
        log_loss -= (1.0 - share) * math.log(max(loss, TINY))
        self._losses[key] = self._losses.get(key, 0.0) + log_loss

    def _absorb(self, pending: _Pending, share: float) -> None:
        """Learn the reward of a decision that waits; everything unchanged if it raises."""
        decision = pending.decision
        self._learn(decision.action, self._encode([decision.x]), pending.loss, share)
        del self._pending[decision.id]
        self.n_rewards += 1
        self.n_late += pending.number < self.n_decisions - 1
        self._regret[:] = self._regret[0] + pending.explored, max(self._regret[1], pending.eta)

    def _learn_default(self, decision: Decision | Name) -> None:
        self._absorb(self._find(decision), self._default)

    def _number_of(self, pending: _Pending) -> int:
        return pending.number

    def _outcome(self, reward: Any, name: str = "reward") -> float:
        low, high = self.reward_range
        expected = f"a number from {low:g} to {high:g}"
        if not isinstance(reward, bool | int | float | np.bool_ | np.number):
            raise InvalidInputError(f"{name} must be {expected}, got {reward!r}")
        return (validation.number(name, reward, low, high, expected) - low) / (high - low)

    def _word(self, word: str) -> Any:
        if word == "actions":
            return [[name, plain_row(features)] for name, features in self.menu.items()]
        if word in ("roles", "context"):
            pairs = self.asked_roles if word == "roles" else self.context
            return None if pairs is None else [*pairs.items()]  # in their order
        return super()._word(word)

    @classmethod
    def _construct(cls, **words: Any) -> Self:
        menu = dict(words["actions"])
        words["actions"] = [*menu] if None in menu.values() else menu
        words["context"] = None if words["context"] is None else dict(words["context"])
        words["roles"] = dict(words["roles"])
        return cls(words.pop("actions"), **words)

    def to_record(self) -> Record:
        record = super().to_record()
        config = record.config
        config["generator"] = serialization.generator_state(self._rng)
        config["totals"] = [[name, *total] for name, total in self._totals.items()]
        config["losses"] = [*self._losses.items()]
        serialization.put_inside(record, "regressions", [*self.regressions.values()])
        config["pending"] = [
            [decision.id, decision.action, decision.propensity, decision.x, *facts]
            for decision, *facts in self._pending.values()
        ]
        return record

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        self._rng = serialization.generator_from(record.word("generator"))
        self._totals = OrderedDict(
            (action_name(name), (validation.count("rewards", n, 0), float(total)))
            for name, n, total in record.word("totals")
        )
        self._losses = {key: float(loss) for key, loss in record.word("losses")}
        regressions = record.inner("regressions", list[OnlinePipeline])
        self.regressions = dict(zip(self._losses, regressions, strict=True))
        encoder, n_columns, last = self.encoder, max(1, len(self.encoder or ())), -1
        for pipeline in regressions:
            kind = pipeline.sparse, pipeline.n_classes
            if encoder is None or kind != (encoder.sparse, 2) or pipeline.n_features > n_columns:
                raise record.error("has a regression that does not fit its columns")
        for id, action, propensity, row, number, loss, explored, eta in record.word("pending"):
            decision = Decision(
                action_name(id), action_name(action),
                validation.probability("propensity", propensity, certain=True), dict(row),
            )  # fmt: skip
            limits = last + 1, self.n_decisions - 1
            last = validation.count("the number of a decision", number, *limits)
            loss = validation.fraction("loss", loss, 1.0)
            self._pending[decision.id] = _Pending(decision, last, loss, float(explored), float(eta))

    def __repr__(self) -> str:
        actions = count_of(len(self.actions), "action")
        names = join_names([*map(str, self.actions)])
        decisions = f"{count_of(self.n_decisions, 'decision')}, {self.n_rewards} with rewards"
        mean = "" if self.mean_reward is None else f", {self.mean_reward:.4g} on average"
        return f"DecisionModel({actions}: {names}), {decisions}{mean}"


def _check_reward_range(reward_range: Sequence[float]) -> tuple[float, float]:
    low, high = map(float, reward_range)
    if not (low < high and math.isfinite(high - low)):
        raise InvalidInputError(
            f"rewards must lie between two numbers, the lower one first; got {low} and {high}"
        )
    return low, high
