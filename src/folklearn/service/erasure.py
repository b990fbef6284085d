"""A person is forgotten: rows are erased from journal, archives, snapshots and the model.

Another process finds the events and rewrites the archives. Then, in one transaction of the writer,
the state without the rows becomes the base, and the events are removed. Before it nothing but
archives has changed; after it only files have to go, which a new start does too.
"""

import asyncio
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from folklearn import serialization
from folklearn.errors import FolklearnError
from folklearn.model import roles
from folklearn.readers.convert import format_cell
from folklearn.service import events, states
from folklearn.service.archive import Archive, ArchivedEvent, list_archives, write_archive
from folklearn.service.events import Answer, EraseRequest, LabelEvent, RefusedError, Row
from folklearn.service.hosts import ModelHost
from folklearn.service.journal import Base, Entry, Journal, hash_id, hash_key, replace_file
from folklearn.service.retention import Work, alone_in, base_path
from folklearn.service.states import ClassifierState, ModelState, restore_state

if TYPE_CHECKING:
    from folklearn.service.service import Service
    from folklearn.service.store import ModelStore

_MAX_TAIL = 2_000  # events that the writer looks through itself
_MAX_SEARCHES = 5  # while rows that are to be erased keep coming
_ERASED = "erased"
_REMOVED = events.RemovedEvent()
_CLEAN_SECONDS = 0.1  # between two looks whether files are clean


class Matcher:
    """Tells what may stay of events: in their order, so that ids lead from rows to labels.

    `rows` and `labels` count what was erased, `categories` are values of erased rows by column.
    """

    def __init__(
        self, request: EraseRequest, ids: Collection[UUID] = (), columns: Collection[str] = ()
    ) -> None:
        self._column, self._value, self._columns = request.column, request.value, {*columns}
        self.ids = {*request.ids, *ids}
        self.rows = self.labels = 0
        self.categories: set[tuple[str, str]] = set()

    def rest(self, event: Any, id: UUID | None = None) -> Any:
        """Return what may stay of an event: itself, another one, or a `RemovedEvent`.

        No sentence of a refusal stays: it may quote any value of a row that is not kept.
        """
        match event:
            case events.PredictionEvent() | events.DecisionEvent() if self._is_erased(event, id):
                return _REMOVED
            case LabelEvent() if self._is_erased(event, event.id):
                return _REMOVED
            case events.LabelsEvent(items=items, refused=refused):
                kept = [
                    None if one is None or self._is_erased(one, one.id) else one for one in items
                ]
                if (refused or kept != items) and not any(kept):
                    return _REMOVED
                rest = msgspec.structs.replace(event, items=kept, refused=_without_details(refused))
                return event if rest == event else rest
            case events.RewardEvent(id=decision) if decision in self.ids:
                self.labels += 1
                return _REMOVED
            case events.ExpiryEvent(ids=late) if not self.ids.isdisjoint(late):
                return events.ExpiryEvent([one for one in late if one not in self.ids])
            case events.RefusalEvent():
                return _REMOVED
        return event

    def _is_erased(self, event: Any, id: UUID | None) -> bool:
        """Tell whether a label, or what waits for one, has to go, and count it then."""
        rows = [*_rows_in(event)]
        if id not in self.ids and not any(map(self._has, rows)):
            return False
        if id is not None:
            self.ids.add(id)
        self.rows += min(1, len(rows))
        self.labels += isinstance(event, LabelEvent)
        for row in rows:
            self.categories.update(_cells(row, self._columns))
        return True

    def _has(self, row: Row) -> bool:
        if self._column is None or (cell := row.get(self._column)) is None:
            return False
        text = format_cell(self._value)  # 17 is "17" too
        return cell == self._value if text is None else format_cell(cell) == text


def _without_details(refused: list[Any]) -> list[Any]:
    return [one | {"detail": _ERASED} for one in refused]


def _cells(row: Row, columns: Collection[str]) -> Iterator[tuple[str, str]]:
    for column in columns:
        if (text := format_cell(row.get(column))) is not None:
            yield column, text


def _rows_in(event: Any) -> Iterator[Row]:
    match event:
        case events.PredictionEvent(row=row) | LabelEvent(row=row) if row is not None:
            yield row
        case events.DecisionEvent(context=context, actions=actions):
            yield context
            yield from actions.values() if isinstance(actions, dict) else ()
        case events.LabelsEvent(items=items):
            yield from chain.from_iterable(map(_rows_in, items))


def find(folder: Path, model: int, request: Any, columns: list[str]) -> dict[str, Any]:
    """Find the events of rows, rewrite archives without them, and rebuild the model if asked to.

    Returns, with events and ids, up to which event was searched, values in these columns that no
    other row has, and how many rows and labels are gone from archives.
    """
    request = msgspec.convert(request, EraseRequest)
    with alone_in(folder) as journal:
        first = Matcher(request, columns=columns)
        archives = [Archive(path) for _, path in list_archives(folder, model)]
        stored: Any  # in an archive or not
        for stored in chain(*archives, journal.entries(model=model)):
            first.rest(stored.event, stored.id)
        matcher, categories = Matcher(request, first.ids), first.categories
        for archive in archives:
            _rewrite(archive, matcher, categories)
        gone = {"rows": matcher.rows, "labels": matcher.labels}
        state = restore_state(journal.begin(model)[0]) if request.rebuild else None
        upto, seqs = 0, list[int]()
        while upto == 0 or journal.last - upto > _MAX_TAIL:
            after, upto = upto, journal.last
            for entry in journal.entries(after=after, upto=upto, model=model):
                rest = matcher.rest(entry.event, entry.id)
                if rest is not entry.event or _has_sentence(entry, journal):
                    seqs.append(entry.seq)
                _discard(categories, rest)
                if state is not None:
                    _apply_rest(state, journal, entry, rest)
            journal.read_last()
        if state is not None:
            replace_file(base_path(folder, model), serialization.as_bytes(state.to_record()))
    has_more = (matcher.rows, matcher.labels) != (first.rows, first.labels)
    return {
        "events": seqs, "upto": upto, "has_more": has_more, "ids": [*matcher.ids],
        "categories": [*categories], **gone,
    }  # fmt: skip


def _has_sentence(entry: Entry, journal: Journal) -> bool:
    """Tell whether the answer of an event, or why it was left out, may quote what is erased."""
    answer = journal.answer(entry.seq) or b""
    n_details = answer.count(b'"detail":') - answer.count(b'"detail":"%s"' % _ERASED.encode())
    return n_details > 0 or entry.skipped not in (None, _ERASED)


def _discard(categories: set[tuple[str, str]], event: Any) -> None:
    """Keep of categories those that the rows of an event do not have."""
    if categories:
        columns = {column for column, _ in categories}
        for row in _rows_in(event):
            categories.difference_update(_cells(row, columns))


def _rewrite(archive: Archive, matcher: Matcher, categories: set[tuple[str, str]]) -> None:
    n_changed = 0

    def kept() -> Iterator[ArchivedEvent]:
        nonlocal n_changed
        for one in archive:
            rest = matcher.rest(one.event, one.id)
            _discard(categories, rest)
            skipped = one.skipped and _ERASED
            n_changed += rest is not one.event or skipped != one.skipped
            if rest is not _REMOVED:
                yield msgspec.structs.replace(one, event=rest, skipped=skipped)

    write_archive(archive.path, archive.header, kept())
    if n_changed:
        sys.audit("folklearn.after_archive")


def _apply_rest(state: ModelState, journal: Journal, entry: Entry, rest: Any) -> None:
    """Apply what stays of an event; a label that was refused may have been told again later."""

    def was_told(id: UUID) -> bool:
        waiting = journal.find_waiting(entry.model, id)
        return waiting is not None and waiting[1] == entry.seq

    match rest:
        case LabelEvent(id=UUID() as id) if not was_told(id):
            return
        case events.LabelsEvent(items=items):
            told = [
                one if one is None or one.id is None or was_told(one.id) else None for one in items
            ]
            rest = msgspec.structs.replace(rest, items=told)
        case events.ExpiryEvent(ids=ids):
            rest = events.ExpiryEvent([*filter(was_told, ids)])
        case events.EraseEvent():
            return
    if entry.skipped is None:
        with suppress(FolklearnError):  # refused, as it was, or because others are not there
            state.apply(entry._replace(event=rest), journal.entry)


def begin(store: "ModelStore", host: ModelHost, request: EraseRequest) -> Work:
    """Begin the search, in the writer's thread; raise if what is asked for cannot be done."""
    retention, journal = store.retention, store.journal
    if host.why_held:
        raise RefusedError(503, host.why_held, retry_after=60)
    if request.rebuild and (reason := _why_not_rebuilt(journal, host)):
        hint = "erase without rebuild, and it keeps what it learned, in sums and weights"
        raise RefusedError(409, f"the model cannot be rebuilt, because {reason}: {hint}")
    if retention.is_erasing:
        raise RefusedError(503, "something else is being erased: try again", retry_after=5)
    retention.stop()
    with journal.transaction():
        pass  # what became of labels is read by the search
    encoder = host.state.model.encoder if isinstance(host.state, ClassifierState) else None
    roles_of_columns = {} if encoder is None else encoder.roles
    columns = [column for column, role in roles_of_columns.items() if role == roles.CATEGORY]
    task = {"model": host.number, "request": msgspec.to_builtins(request), "columns": columns}
    work = retention.launch(find, store.folder, **task)
    retention.is_erasing = True
    return work


def _why_not_rebuilt(journal: Journal, host: ModelHost) -> str | None:
    if not isinstance(host.state, ClassifierState):
        return "without some of its decisions an agent would have made others later"
    if journal.entry(host.row.first).event.file is not None:
        return "it began as a file, which may hold these rows"
    if journal.find("SELECT kept_since FROM model WHERE number = ?", host.number):
        return "its first events were removed, by age or size"
    return None


def complete(
    store: "ModelStore", host: ModelHost, request: EraseRequest, found: Any, *, is_last: bool
) -> Answer | None:
    """Erase what was found; return None if more of it has come since, unless it is the last try."""
    journal, retention = store.journal, store.retention
    if store.hosts.get((host.row.tenant, host.row.name)) is not host:
        raise RefusedError(404, f"the model {host.row.name} was deleted")
    matcher = Matcher(request, [UUID(id) for id in found["ids"]])
    categories = {(column, text) for column, text in found["categories"]}
    if request.column is not None and (text := format_cell(request.value)) is not None:
        categories.add((request.column, text))  # also of rows whose events are not there any more
    pairs, tail, upto = [], [], found["upto"]
    later = journal.entries(after=upto, model=host.number)
    n_found = 0, 0  # rows and labels
    for entry in chain(map(journal.entry, found["events"]), later):
        rest = matcher.rest(entry.event, entry.id)
        if rest is not entry.event or _has_sentence(entry, journal):
            pairs.append((entry, rest))
        if entry.seq > upto:
            _discard(categories, rest)
            tail.append((entry, rest))
        else:
            n_found = matcher.rows, matcher.labels
    has_more = found["has_more"] or n_found != (matcher.rows, matcher.labels)
    if has_more and not is_last:
        return None  # other rows may have the same values
    decisions = [one.seq for one, _ in pairs if isinstance(one.event, events.DecisionEvent)]
    rows, positions = found["rows"] + matcher.rows, list[int]()
    if request.rebuild:
        state = restore_state(host.created, base_path(store.folder, host.number).read_bytes())
        for entry, rest in tail:
            _apply_rest(state, journal, entry, rest)
    else:
        state = restore_state(host.created, host.state.to_record())
        if isinstance(state, ClassifierState):
            for category in sorted(categories):
                while (position := state.model.find_category(*category)) is not None:
                    state.model.forget_categories([position])
                    positions.append(position)
        erasing = Entry(0, 0, 0, events.EraseEvent(rows, positions, decisions))
        state.apply(erasing, journal.entry)
    record = serialization.as_bytes(state.to_record())
    sys.audit("folklearn.before_erase")
    with journal.transaction():
        event = events.EraseEvent(rows, positions, decisions, request.rebuild)
        erased = journal.add(host.number, store.clock(), event)
        for entry, rest in pairs:
            _change(journal, erased.seq, entry, rest)
        journal.put_base(host.number, Base(erased.seq, erased.time, record))
        journal.note_erasure()
    sys.audit("folklearn.after_erase")
    host.take(state, erased)
    retention.to_clean[host.number] = erased.seq
    with suppress(FileNotFoundError):
        base_path(store.folder, host.number).unlink()
    labels = found["labels"] + matcher.labels
    words = "the model keeps what it learned of them, in sums and weights, and no row"
    if request.rebuild:
        words = "the model has learned again all labels that are left"
    return Answer(200, {"event": erased.seq, "rows": rows, "labels": labels, "words": words})


def _change(journal: Journal, seq: int, entry: Entry, rest: Any) -> None:
    """Write what stays of an event; its key and id, as hashes, are answered 410."""
    key, id, answer = entry.key, entry.id, journal.answer(entry.seq)
    if rest is _REMOVED:
        journal.bury(entry.seq, key and hash_key(key), None if id is None else hash_id(id))
        journal.db.execute("UPDATE asked SET told = ? WHERE seq = ?", (seq, entry.seq))
        return
    if key is not None and answer is None and isinstance(entry.event, events.LabelsEvent):
        answer = msgspec.json.encode(states.labels_answer(entry.seq, entry.event))
    if answer is not None:
        status, body = msgspec.json.decode(answer)
        if "refused" in body:
            body["refused"] = _without_details(body["refused"])
        if "detail" in body:
            body["detail"] = _ERASED
        answer = msgspec.json.encode(Answer(status, body))
    journal.rewrite(entry.seq, rest)
    found = "UPDATE event SET answer = ?, skipped = ? WHERE seq = ?"
    journal.db.execute(found, (answer, entry.skipped and _ERASED, entry.seq))


async def erase(service: "Service", host: ModelHost, request: EraseRequest) -> Answer:
    """Erase rows of a model; the answer comes when no file of the folder has them."""
    store, submit, answer = service.store, service.writer.submit, None
    for n in range(_MAX_SEARCHES):
        work = await submit(lambda: begin(store, host, request))
        try:
            found = await asyncio.to_thread(work.result)
            is_last = n == _MAX_SEARCHES - 1
            work_on = partial(complete, store, host, request, found, is_last=is_last)
            answer = await submit(work_on)
        except RefusedError:
            raise
        except FolklearnError as error:
            raise RefusedError(503, f"nothing was erased: {error}", retry_after=10) from None
        finally:
            work.stop()
            store.retention.is_erasing = False
        if answer is not None:
            break
    while True:
        with suppress(RefusedError):  # the queue is long
            if await submit(store.retention.clean):
                assert answer is not None
                return answer
        await asyncio.sleep(_CLEAN_SECONDS)
