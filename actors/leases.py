"""Holds this node's slots: leases in Redis, and for each gain a higher epoch in PostgreSQL.

Which slots should be its own follows from the set of live nodes alone (assignment). A node first
gives up what is no longer its own, then takes what is free of what is.

A slot is acted on only while its lease is surely valid by this process's monotonic clock: counted
from before the request was sent, less drift, less a safety margin. Renewals have a loop of their own,
which nothing else holds up. What is lost is given up at once, and taken anew with a higher epoch.
"""

import logging
import random
from collections.abc import Collection, Iterable, Mapping, Sized

import anyio
from redis.exceptions import RedisError

from duly.actors import node_info
from duly.actors.assignment import assign
from duly.actors.context import Context
from duly.actors.messages import Ownership, Refused
from duly.actors.patience import Patience
from duly.actors.runtime import Actor, Mailbox, MailboxClosedError
from duly.actors.takeover import MARGIN_S, TakeOver
from duly.storage import slots, stores
from duly.storage.errors import StoreUnavailableError
from duly.storage.redis import TROUBLE
from duly.wheel.durations import from_us

log = logging.getLogger("duly.leases")

_SILENCE_S = 10.0
_LOOK_SHARE = 0.5  # of the time between renewals: how soon another node's end is noticed
_LOOK_AGAIN_SHARE = 0.25  # while there are slots to take whose leases have not run out
_BELIEVE_SHARE = 2.0  # by then whoever lives has beaten again
_LET_GO_S = 0.3
_TELL_S = 0.2
_NO_MAJORITY = "no majority of the lease servers answers"


class LeaseActor(Actor[Refused]):
    """Renews, takes what is free, and tells the others.

    The last of the node's actors to start and so the first to stop: others own the slots before
    this node has finished what is under way.
    """

    name = "leases"

    def __init__(self, context: Context) -> None:
        super().__init__(context.boxes.leases)
        self._context = context
        self._servers = context.lease_servers
        # Never changed in place: whoever was told of the same one before has nothing to do.
        self._held: dict[int, int] = {}  # slot -> epoch
        self._until: dict[int, float] = {}  # of the same slots; by the monotonic clock
        self._mine: frozenset[int] = frozenset()
        self._doubted = False
        self._believe_at = 0.0
        self._looks: Mailbox[None] = Mailbox("looks", 1)  # a message: look at once
        self._beaten_at = 0.0  # or has tried; by the loop's time
        self._told: Ownership | None = None  # to the dispatcher
        self._told_others: dict[str, Mapping[int, int]] = {}  # mailbox -> the epochs that it took
        self._live: frozenset[str] = frozenset()  # the nodes, and
        self._divided: Collection[int] = ()  # the slots, from which `_mine` follows
        self._take_over = TakeOver(context, self._gained)
        self._members = Patience("registering in Redis", log, context.vitals.redis)
        self._redis = Patience("renewing leases", log, context.vitals.redis)
        # Of no account to readiness: a majority is enough.
        self._all_servers = Patience("using all lease servers", log)
        self._postgres = Patience("letting slots go in PostgreSQL", log)
        self._learning = Patience("reading which slots the store holds", log)
        self._started_at = from_us(context.clock.now_us())

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            for loop in (self._hear_changes, self._hear_refusals, self._keep_beating):
                tasks.start_soon(loop)
            tasks.start_soon(self._keep_renewing)
            tasks.start_soon(self._keep_looking)
            await self.stopping.wait()
            tasks.cancel_scope.cancel()

    async def stopped(self) -> None:
        """Hand over: whoever is left takes these slots at once."""
        owned = len(self._held)
        self._drop(self._held)
        await self._tell()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._leave)
            # Also of what was being taken when the stop came.
            tasks.start_soon(self._let_go, list(range(slots.SLOTS)))
        await self._announce()
        log.info("handed over %d slots", owned)

    # The loops

    async def _keep_looking(self) -> None:
        while True:
            self._looks.handled()
            await self._look()
            await self._looks.receive_batch(1, self._pause_s())

    def _pause_s(self) -> float:
        """Until the next look; with jitter, so that nodes do not ask in step."""
        soon = self._mine - self._held.keys() and not self._redis.failing
        share = _LOOK_AGAIN_SHARE if soon else _LOOK_SHARE
        return self._context.options.lease_renew_s * share * random.uniform(0.8, 1.2)

    async def _keep_beating(self) -> None:
        """Each look begins with a beat; but one that PostgreSQL holds up may outlast our TTL."""
        every_s = self._context.options.lease_renew_s
        self._beaten_at = anyio.current_time()
        while True:
            await anyio.sleep(max(0.0, self._beaten_at + every_s - anyio.current_time()))
            if anyio.current_time() >= self._beaten_at + every_s:
                await self._beat()

    async def _keep_renewing(self) -> None:
        while True:
            await anyio.sleep(self._context.options.lease_renew_s)
            await self._renew()

    async def _hear_changes(self) -> None:
        """Look around at once when another node gave slots up."""
        patience = Patience("listening for free slots", log, self._context.vitals.redis)
        while True:
            try:
                async with self._context.members.changes() as next_message:
                    patience.worked()
                    while True:
                        if await next_message(_SILENCE_S) is not None:
                            self._looks.offer(None)
            except TROUBLE as error:
                await anyio.sleep(patience.failed(error))

    async def _hear_refusals(self) -> None:
        """Look at once which slots are ours when PostgreSQL refused a claim."""
        while True:
            try:
                await self.mailbox.receive()
            except MailboxClosedError:
                return
            self._doubted = True
            self._looks.offer(None)
            self.mailbox.handled()

    # Renewing

    async def _renew(self) -> None:
        asked = self._held
        if asked:
            sent = self._context.clock.monotonic()
            answer = await self._servers.renew(sorted(asked))
            if self._note_answers(answer.servers_answered):
                # Slots may have been given up or gained since the question.
                same = set(asked)
                if self._held is not asked:
                    same = {s for s, epoch in asked.items() if self._held.get(s) == epoch}
                until = sent + answer.valid_s - MARGIN_S
                self._until |= dict.fromkeys(same & answer.slots, until)
                await self._lose(sorted(same - answer.slots))
        await self._tell()

    async def _lose(self, lost: list[int]) -> None:
        if lost:
            log.warning("lost %d slots", len(lost))
            self._count("lost", lost)
            self._drop(lost)
            await self._tell()
            self._looks.offer(None)
            # What a minority still keeps for us; but not what is being taken anew just now.
            await self._servers.release([slot for slot in lost if slot not in self._mine])

    def _note_answers(self, servers: int) -> bool:
        """Whether a majority answered. If not, nothing is lost before its time is over."""
        inside = self._servers.inside_cluster
        if servers < self._servers.majority:
            self._redis.failed(
                TimeoutError(f"{_NO_MAJORITY}; {inside}" if inside else _NO_MAJORITY)
            )
            return False
        self._redis.worked()
        if inside:
            self._all_servers.failed(RedisError(inside))
        else:
            self._all_servers.worked()
        return True

    # Looking around

    async def _look(self) -> None:
        if self._context.layout is not None:
            await self._learn_slots()
        await self._beat()
        if self._doubted:
            await self._verify()
        surplus = self._held.keys() - self._mine
        if surplus:
            await self._give_up(surplus)
        wanted = sorted(self._mine - self._held.keys())
        if wanted:
            answered = await self._take_over.take(wanted)
            if answered is not None:
                self._note_answers(answered)
        if self._ownership() != self._told:  # else the next renewal is soon enough
            await self._tell()

    async def _beat(self) -> None:
        """Show that this node lives, and learn which slots should be its own."""
        self._beaten_at = anyio.current_time()
        try:
            words = node_info.own(self._context, self._started_at, len(self._held))
            live = await self._context.members.beat(words)
        except TROUBLE as error:
            self._members.failed(error)
            return  # without Redis nothing changes
        now = self._context.clock.monotonic()
        if self._members.failing:
            # The others have not been able to beat either: they are not gone yet.
            self._believe_at = now + _BELIEVE_SHARE * self._context.options.lease_renew_s
        self._members.worked()
        words_of_all = self._context.members.words.values()
        self._context.zone_versions.note(words_of_all)
        self._context.feed.note(words_of_all)
        if now < self._believe_at and self._mine:
            return
        if live != self._live or self._context.slots != self._divided:
            self._live, self._divided = live, self._context.slots
            owners = assign(self._divided, live)
            self._mine = frozenset(s for s, node in owners.items() if node == self._context.node_id)

    async def _learn_slots(self) -> None:
        """Of several stores: which slots this one holds now. While it does not answer, nothing changes."""
        context = self._context
        assert context.layout is not None
        try:
            context.layout.learn(context.store, await stores.held(context.db))
        except StoreUnavailableError as error:
            self._learning.failed(error)
        else:
            self._learning.worked()

    async def _verify(self) -> None:
        """Drop what PostgreSQL says is no longer ours, though the lease may be: taken anew below."""
        try:
            states = await slots.states(self._context.db, list(self._held))
        except StoreUnavailableError as error:
            self._postgres.failed(error)
            return
        self._doubted = False
        # Also a lower one: a promotion may have lost our take-over.
        wrong = [s for s in self._held if s in states and self._held[s] != states[s].epoch]
        if wrong:
            log.warning("%d slots have another epoch than ours", len(wrong))
            self._count("lost", wrong)
            self._drop(wrong)
            await self._tell()

    async def _give_up(self, surplus: Iterable[int]) -> None:
        given = sorted(surplus)
        self._count("given_up", given)
        self._drop(given)
        await self._tell()  # before the release: nobody here acts on them any more
        await self._let_go(given)
        await self._announce()
        log.info("gave up %d slots, owning %d", len(given), len(self._held))

    def _gained(self, epochs: dict[int, int], until: float) -> None:
        self._held = {**self._held, **epochs}
        self._until |= dict.fromkeys(epochs, until)
        self._offer()
        self._count("taken", epochs)
        meters = self._context.meters
        meters.epoch = max(meters.epoch, *epochs.values())
        log.info("took %d slots, owning %d", len(epochs), len(self._held))

    def _count(self, change: str, slots_changed: Sized) -> None:
        self._context.meters.lease_changes[change] += len(slots_changed)

    def _drop(self, given: Iterable[int]) -> None:
        left = self._held.keys() - given
        self._held = {slot: epoch for slot, epoch in self._held.items() if slot in left}
        self._until = {slot: until for slot, until in self._until.items() if slot in left}

    async def _let_go(self, given: list[int]) -> None:
        """In PostgreSQL first, as long as that is quick: then the next owner can be sure."""
        with anyio.move_on_after(_LET_GO_S):
            try:
                now = from_us(self._context.clock.now_us())
                await slots.let_go(self._context.db, given, self._context.node_id, now)
                self._postgres.worked()
            except StoreUnavailableError as error:
                self._postgres.failed(error)
        await self._servers.release(given)

    async def _leave(self) -> None:
        try:
            await self._context.members.leave()
        except TROUBLE as error:
            log.info("cannot withdraw from Redis: %s", error)  # the TTL does it

    async def _announce(self) -> None:
        try:
            await self._context.members.announce()
        except TROUBLE as error:
            log.info("cannot announce free slots: %s", error)  # the others look by themselves

    # Telling

    async def _tell(self) -> None:
        """Newest wins, and the dispatcher must not miss one; it alone is told of each renewal."""
        ownership, missed = self._offer()
        if missed:
            with anyio.move_on_after(_TELL_S):
                await self._context.boxes.dispatcher.send(ownership)
                self._told = ownership

    def _ownership(self) -> Ownership:
        """What is held and not over."""
        now = self._context.clock.monotonic()
        until = min(self._until.values(), default=0.0)
        if self._until and until <= now:
            over = [slot for slot, end in self._until.items() if end <= now]
            self._count("lost", over)
            self._drop(over)
            until = min(self._until.values(), default=0.0)
        return Ownership(self._held, until)

    def _offer(self) -> tuple[Ownership, bool]:
        """Tell everyone who has room; answers whether the dispatcher had none."""
        ownership = self._ownership()
        vitals, boxes = self._context.vitals, self._context.boxes
        until = ownership.valid_until
        if vitals.slots != self._held.keys():
            vitals.slots = frozenset(self._held)
        vitals.lease_valid_until = until
        vitals.lease_renewed_at = until + MARGIN_S - self._servers.valid_s
        for box in (boxes.ticker, boxes.prefetcher, boxes.recorder, boxes.reaper):
            # To them only the slots matter; what one had no room for comes again with the next renewal.
            if self._told_others.get(box.name) is not self._held and box.offer(ownership):
                self._told_others[box.name] = self._held
        missed = not boxes.dispatcher.offer(ownership)
        self._told = None if missed else ownership
        return ownership, missed
