"""Kafka's assignor of streams groups, `sticky` (KIP-1071), as a pure function.

Members keep their active tasks up to their share. The rest go to members that had them as standby
tasks, then to the processes with the least load. Standby tasks likewise: no process has a task
twice. Equal to Kafka's StickyTaskAssignor task by task, also where several choices are as good.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.groups.streams.tasks import NO_TASKS, TaskSets
from tidelog.java_order import LeastFirst, hash_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Task = tuple[str, int]
    """Subtopology and partition."""

__all__ = ["NAME", "Assignee", "TaskCount", "sticky_assignor"]

NAME = "sticky"


class Assignee(NamedTuple):
    """A member that gets tasks."""

    process_id: str
    target: TaskSets = NO_TASKS
    """What the last assignment gave it."""


class TaskCount(NamedTuple):
    """The tasks of a subtopology. A stateful one has changelogs, and so standby tasks."""

    tasks: int
    is_stateful: bool


def sticky_assignor(
    members: Mapping[str, Assignee],
    subtopologies: Mapping[str, TaskCount],
    standby_replicas: int = 0,
) -> dict[str, TaskSets]:
    """Return the target assignment, an entry for each member."""
    if not members:
        return {}
    run = _Run(members, subtopologies, standby_replicas)
    run.assign_active(_tasks(subtopologies.items()))
    if standby_replicas > 0:
        stateful = ((key, each) for key, each in subtopologies.items() if each.is_stateful)
        run.assign_standby(_tasks(stateful), standby_replicas)
    return {
        member_id: TaskSets(
            _grouped(run.process_of[member_id].active[member_id]),
            _grouped(run.process_of[member_id].standby[member_id]),
        )
        for member_id in members
    }


class _Process:
    """An instance of the application: its members, and the tasks that they get."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}  # tasks by member
        self.tasks: set[Task] = set()
        self.active: defaultdict[str, list[Task]] = defaultdict(list)
        self.standby: defaultdict[str, list[Task]] = defaultdict(list)
        self._count = 0
        self._by_load: LeastFirst[str] | None = None

    @property
    def load(self) -> float:
        """Tasks per member."""
        return self._count / len(self.counts)

    def add(self, member_id: str, task: Task, *, is_active: bool) -> int:
        """Give a member a task; return how many it has."""
        self._by_load = None
        return self._add(member_id, task, is_active=is_active)

    def add_to_least_loaded(self, task: Task, *, is_active: bool) -> int:
        """Give the member with the fewest tasks one more; return how many it has."""
        if len(self.counts) == 1:
            return self._add(next(iter(self.counts)), task, is_active=is_active)
        if self._by_load is None:
            self._by_load = LeastFirst(self.counts.__getitem__, hash_order(self.counts))
        member_id = self._by_load.poll()
        count = self._add(member_id, task, is_active=is_active)
        self._by_load.add(member_id)
        return count

    def _add(self, member_id: str, task: Task, *, is_active: bool) -> int:
        self._count += 1
        self.tasks.add(task)
        (self.active if is_active else self.standby)[member_id].append(task)
        self.counts[member_id] += 1
        return self.counts[member_id]


class _Holder(NamedTuple):
    """A member that has had a task."""

    process: _Process
    member_id: str

    @property
    def load(self) -> int:
        """How many tasks it has got in this run."""
        return self.process.counts[self.member_id]


class _Quota:
    """How many tasks a member may keep: an even share of those that full members left."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self._divide()

    def _divide(self) -> None:
        self.per_member = -(-self._tasks // self._members) if self._members else 0

    def note(self, count: int) -> None:
        """Note how many tasks a member has now."""
        if count == self.per_member:
            self._members -= 1
            self._tasks -= count
            self._divide()


class _Run:
    """One computation of an assignment."""

    def __init__(
        self,
        members: Mapping[str, Assignee],
        subtopologies: Mapping[str, TaskCount],
        standby_replicas: int,
    ) -> None:
        active = sum(each.tasks for each in subtopologies.values())
        standby = sum(each.tasks for each in subtopologies.values() if each.is_stateful)
        self._active_quota = _Quota(active, len(members))
        self._quota = _Quota(active + standby * standby_replicas, len(members))
        self.process_of: dict[str, _Process] = {}
        self._was_active: dict[Task, _Holder] = {}
        self._was_standby: defaultdict[Task, list[_Holder]] = defaultdict(list)
        processes: dict[str, _Process] = {}
        for member_id in hash_order(members):
            process_id, target = members[member_id]
            process = processes.setdefault(process_id, _Process())
            process.counts[member_id] = 0
            self.process_of[member_id] = process
            holder = _Holder(process, member_id)
            for task in _listed(target.active.items()):
                self._was_active[task] = holder
            for task in _listed(target.standby.items()):
                self._was_standby[task].append(holder)
        self._processes = [processes[each] for each in hash_order(processes, len(members))]

    def assign_active(self, tasks: Iterable[Task]) -> None:
        """Give each task to one member."""
        left = []
        for task in sorted(tasks, key=_by_partition):
            holder = self._was_active.get(task)
            if holder is None or not self._keep_active(holder, task):
                left.append(task)
        new = []
        for task in left:
            holder = _least_loaded(self._was_standby.get(task, ()), None)
            if holder is None or not self._keep_active(holder, task):
                new.append(task)
        queue = self._queue()
        for task in sorted(new):
            process = queue.poll()
            self._note_active(process.add_to_least_loaded(task, is_active=True))
            queue.add(process)

    def _keep_active(self, holder: _Holder, task: Task) -> bool:
        if holder.load >= self._active_quota.per_member:
            return False
        self._note_active(holder.process.add(holder.member_id, task, is_active=True))
        return True

    def _note_active(self, count: int) -> None:
        self._active_quota.note(count)
        self._quota.note(count)

    def assign_standby(self, tasks: Iterable[Task], replicas: int) -> None:
        """Give each task to as many other processes, as far as there are any."""
        left = []
        for task in sorted(tasks, key=_by_partition, reverse=True):
            kept = 0
            while kept < replicas and self._keep_standby(task):
                kept += 1
            if kept < replicas:
                left.append((task, replicas - kept))
        queue = self._queue()
        for task, missing in sorted(left, reverse=True):
            for _ in range(missing):
                if not self._add_standby(queue, task):
                    break

    def _keep_standby(self, task: Task) -> bool:
        """Leave the task to a member that had it, as an active task or else as a standby one."""
        holder = self._was_active.get(task)
        if holder is not None and task not in holder.process.tasks and self._has_room(holder):
            self._note_standby(holder, task)
            return True
        holder = _least_loaded(self._was_standby.get(task, ()), task)
        if holder is not None and self._has_room(holder):
            self._note_standby(holder, task)
            return True
        return False

    def _has_room(self, holder: _Holder) -> bool:
        return holder.load < self._quota.per_member

    def _note_standby(self, holder: _Holder, task: Task) -> None:
        self._quota.note(holder.process.add(holder.member_id, task, is_active=False))

    def _add_standby(self, queue: LeastFirst[_Process], task: Task) -> bool:
        """Give the task to the process with the least load that does not have it."""
        passed = []
        is_added = False
        while queue and not is_added:
            process = queue.poll()
            passed.append(process)
            if task not in process.tasks:
                self._quota.note(process.add_to_least_loaded(task, is_active=False))
                is_added = True
        for process in reversed(passed):
            queue.add(process)
        return is_added

    def _queue(self) -> LeastFirst[_Process]:
        return LeastFirst(lambda process: process.load, self._processes)


def _least_loaded(holders: Sequence[_Holder], task: Task | None) -> _Holder | None:
    """Return the holder with the least load whose process does not have the task yet.

    Of the first holder's process that is asked last, and for whichever holder was found, as in
    Kafka.
    """
    if not holders:
        return None
    best = first = holders[0]
    for each in holders[1:]:
        is_free = task is None or task not in each.process.tasks
        if is_free and each.process.load < best.process.load and each.load < best.load:
            best = each
    return best if task is None or task not in first.process.tasks else None


def _by_partition(task: Task) -> tuple[int, str]:
    return task[1], task[0]


def _tasks(subtopologies: Iterable[tuple[str, TaskCount]]) -> Iterator[Task]:
    return ((key, n) for key, each in subtopologies for n in range(each.tasks))


def _listed(tasks: Iterable[tuple[str, frozenset[int]]]) -> Iterator[Task]:
    return ((key, n) for key, each in tasks for n in each)


def _grouped(tasks: Iterable[Task]) -> dict[str, frozenset[int]]:
    found: defaultdict[str, set[int]] = defaultdict(set)
    for key, partition in tasks:
        found[key].add(partition)
    return {key: frozenset(found[key]) for key in sorted(found)}
