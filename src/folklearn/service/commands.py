"""What can be asked of the writer: each command says which events it is, or why it is refused."""

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from folklearn.errors import FolklearnError
from folklearn.service import events
from folklearn.service.events import Answer, RefusedError, new_id
from folklearn.service.journal import Entry, Journal
from folklearn.service.states import AgentState, ClassifierState, begun, item_of, learned_answer

if TYPE_CHECKING:
    from folklearn.service.limits import Limits
    from folklearn.service.model_host import ModelHost


@dataclass(frozen=True)
class Repeat:
    """A request that was done before: its answer is that of an event."""

    seq: int


class TooEarlyError(Exception):
    """What a command is depends on how events end that are not yet applied."""


Prepared = list[Entry] | Repeat | Answer


@dataclass(frozen=True)
class Command:
    """A request to change a model, as it waits for the writer.

    Attributes
    ----------
    key : under which a repeated request is known.
    size : about how many bytes it takes.
    """

    key: str | None = field(default=None, kw_only=True)
    size: int = field(default=500, kw_only=True)

    def prepare(self, journal: Journal, host: "ModelHost", now: int) -> Prepared:
        """Add the events of the command to the journal; refuse, and add nothing, or repeat."""
        digest = self._digest()
        if self.key is not None:
            found = journal.by_key(host.number, self.key)
            if found is not None:
                if found[1] != digest:
                    raise RefusedError(
                        422,
                        f"the Idempotency-Key {self.key!r} was used for another request: a new "
                        "request needs a new key",
                    )
                return Repeat(found[0])
        return self._events(journal, host, now, digest)

    def _events(
        self, journal: Journal, host: "ModelHost", now: int, digest: bytes | None
    ) -> Prepared:
        raise NotImplementedError

    def _digest(self) -> bytes | None:
        """Return a digest of what is asked for, if it may be repeated."""
        if self.key is None:
            return None
        said = {name: value for name, value in vars(self).items() if name not in ("key", "size")}
        content = msgspec.msgpack.encode([type(self).__name__, said], order="sorted")
        return hashlib.blake2b(content, digest_size=16).digest()


@dataclass(frozen=True)
class Ask(Command):
    """Remember rows that were predicted, under the ids that the answer names."""

    rows: list[tuple[UUID, events.Asked]]

    def _events(self, journal: Journal, host: "ModelHost", now: int, digest: Any) -> Prepared:
        added = []
        for id, asked in self.rows:
            added.append(journal.add(host.number, now, asked, id=id.bytes))
            journal.wait_for(added[-1].seq, host.number, host.due(now))
        return added


@dataclass(frozen=True)
class Label:
    """The label of a row, or of one that was asked for."""

    label: events.Label
    row: events.Row | None
    id: UUID | None
    weight: float = 1.0

    def event(self, journal: Journal, host: "ModelHost") -> events.Learned | Repeat:
        """Return what is to be learned, or that it was learned before."""
        if self.id is None:
            return events.Learned(self.label, self.row, None, self.weight)
        asked, told = _asked(journal, host, self.id, "label")
        wanted = events.Learned(self.label, None, asked, self.weight)
        if told is None:
            return wanted
        return _repeated(journal, told, wanted, f"label of {self.id}", "the model waits no longer")


@dataclass(frozen=True)
class Learn(Command):
    """Learn one label."""

    label: Label

    def _events(self, journal: Journal, host: "ModelHost", now: int, digest: Any) -> Prepared:
        learned = self.label.event(journal, host)
        if isinstance(learned, Repeat):
            return _already(learned)
        for why in host.expect([item_of(learned, journal.entry)]).values():
            if self.key is None:
                raise RefusedError(422, why)
            refused = events.Refused(422, why)  # the key is taken, as by all that it comes with
            return [journal.add(host.number, now, refused, key=self.key, digest=digest)]
        entry = journal.add(host.number, now, learned, key=self.key, digest=digest)
        if learned.of is not None:
            journal.told(learned.of, entry.seq)
        return [entry]


@dataclass(frozen=True)
class LearnMany(Command):
    """Learn labels together; the answer names those that cannot be learned."""

    labels: list[Label]

    def _events(self, journal: Journal, host: "ModelHost", now: int, digest: Any) -> Prepared:
        items: list[events.Learned] = []
        places, refused, asked = [], [], set()
        for place, label in enumerate(self.labels):
            try:
                learned = label.event(journal, host)
                if isinstance(learned, Repeat):
                    continue
                if learned.of in asked:
                    raise RefusedError(409, f"the request has another label of {label.id}")
            except RefusedError as refusal:
                refused.append(events.Left(place, refusal.status, str(refusal)))
                continue
            items.append(learned)
            places.append(place)
            asked |= set() if learned.of is None else {learned.of}
        n_already = len(self.labels) - len(items) - len(refused)
        too_large = host.expect([item_of(item, journal.entry) for item in items])
        if too_large:
            refused += [events.Left(places[at], 422, why) for at, why in too_large.items()]
            left = [at for at in range(len(items)) if at not in too_large]
            items, places = [items[at] for at in left], [places[at] for at in left]
            asked = {item.of for item in items if item.of is not None}
            if not items and self.key is None:
                return learned_answer(host.version, 0, n_already, refused)
        event = events.LearnedMany(
            items, n_already, refused, None if len(items) == len(self.labels) else places
        )
        entry = journal.add(host.number, now, event, key=self.key, digest=digest)
        for of in asked:
            journal.told(of, entry.seq)
        return [entry]


@dataclass(frozen=True)
class Decide(Command):
    """Let an agent choose."""

    context: events.Row

    def _events(self, journal: Journal, host: "ModelHost", now: int, digest: Any) -> Prepared:
        if isinstance(host.state, AgentState):
            host.state.check_context_fits(self.context)  # or else it would wait for a reward
        host.expect_decision()
        entry = journal.add(
            host.number,
            now,
            events.Decided(self.context),
            id=new_id().bytes,
            key=self.key,
            digest=digest,
        )
        journal.wait_for(entry.seq, host.number, host.due(now))
        return [entry]


@dataclass(frozen=True)
class Reward(Command):
    """Tell an agent what came of a decision."""

    id: UUID
    reward: float

    def _events(self, journal: Journal, host: "ModelHost", now: int, digest: Any) -> Prepared:
        decided, told = _asked(journal, host, self.id, "reward")
        wanted = events.Rewarded(decided, self.reward)
        if told is not None:
            what, over = f"reward of {self.id}", "the default was taken"
            return _already(_repeated(journal, told, wanted, what, over))
        entry = journal.add(host.number, now, wanted, key=self.key, digest=digest)
        journal.told(decided, entry.seq)
        return [entry]


@dataclass(frozen=True)
class Expire(Command):
    """Wait no longer for what has not come in time."""

    of: list[int]

    def _events(self, journal: Journal, host: "ModelHost", now: int, digest: Any) -> Prepared:
        expired = events.Expired(self.of)
        if isinstance(host.state, ClassifierState):
            late = host.state.labels_of(expired)
            host.expect([item_of(label, journal.entry) for label in late])
        entry = journal.add(host.number, now, expired)
        for of in self.of:
            journal.told(of, entry.seq)
        return [entry]


@dataclass(frozen=True)
class Delete(Command):
    """End a model; its events stay in the journal, its name is free."""

    def _events(self, journal: Journal, host: "ModelHost", now: int, digest: Any) -> Prepared:
        entry = journal.add(host.number, now, events.Deleted())
        journal.end_model(host.number, entry.seq)
        return [entry]


def created(config: events.Config, limits: "Limits", file: bytes | None) -> Any:
    """Return the first event of a model; refuse one that cannot begin."""
    sizes = {
        "max_classes": limits.classes,
        "max_columns": limits.columns,
        "max_features": limits.features,
        "max_places": limits.places,
        "max_learner": limits.learner,
    }
    event: events.Created | events.Imported = events.Created(config, **sizes)
    if file is not None:
        event = events.Imported(config, file=file, **sizes)
    try:
        begun(event)
    except RefusedError:
        raise
    except (FolklearnError, TypeError) as error:
        raise RefusedError(422, str(error)) from None
    return event


def n_bytes_to_begin(config: events.Config, file: bytes | None) -> int:
    """Return about how much memory a model takes at its beginning."""
    return 8 * _n_numbers_of_agent(config) + (0 if file is None else 2 * len(file))


def _n_numbers_of_agent(config: events.Config) -> int:
    width = 1 + sum(1 if isinstance(kind, str) else len(kind) for kind in config.context.values())
    return len(config.actions) * width**2


def check_large(config: events.Config, limits: "Limits") -> None:
    """Refuse an agent that is too large, and names and labels that no request could hold."""
    n_numbers = _n_numbers_of_agent(config)
    if n_numbers > limits.agent:
        raise RefusedError(
            422,
            f"{len(config.actions):,} actions with this context are too many: their number times "
            f"the square of its width is {n_numbers:,}, and may be {limits.agent:,}",
        )
    names = [*config.roles, *config.context, *config.actions]
    names += [name for pair in config.crosses for name in pair]
    names += [name for kind in config.context.values() if isinstance(kind, list) for name in kind]
    labels = [*config.classes, config.default, *(config.class_weight or ())]
    for what, texts, most in (("name", names, limits.name), ("label", labels, limits.label)):
        longest = max((len(text) for text in texts if isinstance(text, str)), default=0)
        if longest > most:
            raise RefusedError(422, f"a {what} may have {most} letters, and one has {longest:,}")


def standard_answer(entry: Entry) -> Answer | None:
    """Return the answer to an event that was taken in as a whole, if it follows from the event."""
    match entry.event:
        case events.Learned() | events.Rewarded():
            return learned_answer(entry.seq, 1)
        case events.LearnedMany() as many:
            return learned_answer(entry.seq, len(many.items), many.already, many.refused)
    return None


def not_learned(entry: Entry, answer: Answer) -> list[int]:
    """Return the asked events whose label could not be learned: another one may be told."""
    match entry.event:
        case events.Learned(of=int(of)) if answer.status != 200:
            return [of]
        case events.LearnedMany(items=items, places=places):
            own = places or range(len(items))
            refused = {one["item"] for one in answer.body.get("refused", ())}
            lost = refused if answer.status == 200 else set(own)
            both = zip(items, own, strict=True)
            return [item.of for item, at in both if at in lost and item.of is not None]
    return []


def _repeated(journal: Journal, told: int, wanted: events.Event, what: str, over: str) -> Repeat:
    """Return that the same was told before; refuse what came too late, or contradicts it."""
    said = journal.entry(told).event
    if isinstance(said, events.Expired):
        raise RefusedError(410, f"the {what} came too late: {over}")
    together = said.items if isinstance(said, events.LearnedMany) else [said]
    if wanted not in together:
        raise RefusedError(409, f"another {what} was learned before")
    return Repeat(told)


def _already(repeat: Repeat) -> Answer:
    return Answer(200, {"event": repeat.seq, "learned": 0, "already": 1})


def _asked(journal: Journal, host: "ModelHost", id: UUID, what: str) -> tuple[int, int | None]:
    found = journal.by_id(host.number, id.bytes)
    if found is None:
        raise RefusedError(
            404,
            f"nothing waits for the {what} of {id}: it was not issued by this model, or the "
            "prediction was not remembered",
        )
    if found[1] is not None and found[1] > journal.before:
        raise TooEarlyError
    return found
