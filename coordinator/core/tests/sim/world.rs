//! The world of one run: an event queue over coordinators, the log, the controller, doors and clients, with faults drawn
//! from the seed. After the faults everything heals, and the groups must come to rest.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use coordinator_core::{
    Append, AppendOutcome, Attempt, ClaimOutcome, Completion, Config, Effect, Epoch, GroupReply,
    GroupRequest, Lease, LoadedRecord, Now, Owned, RequestContext, ShardOwner, Token, Topic, TopicImage,
};
use kafka_wire_core::sample::Sampler;
use kafka_wire_core::{ApiKey, ErrorCode};
use uuid::Uuid;

use crate::client::{Client, PARTITIONS, Phase, TOPIC, TOPIC_ID, error_of};
use crate::controller::{Acknowledgement, Controller, Heartbeat, SESSION_MS};
use crate::ghost::Ghost;
use crate::invariants::{
    g1_commit_durable, g2_exclusive, g3_converges, g4_static_unique, g5_stale_rejected, g6_single_writer,
    g7_after_high_watermark, g8_replay_equivalent,
};
use crate::log::{ModelLog, Verdict};

/// Wall clock at the beginning of a run.
const WALL: i64 = 1_700_000_000_000;
/// Faults end here.
const HEAL_AT: i64 = 25_000;
/// Groups must have come to rest by here: the longest session, rebalance and time-out of a request fit in between.
const END_AT: i64 = HEAL_AT + 35_000;

/// Events that a failed run shows.
const RECENT: usize = 80;
/// One in so many turns of an owner is followed by a comparison of its state with its log.
const COMPARED: usize = 40;

/// How often what goes wrong, of a thousand; drawn per seed.
#[derive(Clone, Copy, Debug)]
struct Faults {
    client_loss: usize,
    inner_loss: usize,
    long_delay: usize,
    pause_coordinator: usize,
    pause_between: usize,
    crash_coordinator: usize,
    move_shard: usize,
    lose_leader: usize,
    stall_commit: usize,
    crash_client: usize,
    pause_client: usize,
    leave: usize,
    resubscribe: usize,
    compact: usize,
}

struct Image;

impl TopicImage for Image {
    fn by_name(&self, name: &str) -> Option<Topic> {
        (name == TOPIC).then(|| Topic { name: TOPIC.into(), id: TOPIC_ID, partitions: PARTITIONS })
    }

    fn by_id(&self, id: Uuid) -> Option<Topic> {
        (id == TOPIC_ID).then(|| Topic { name: TOPIC.into(), id: TOPIC_ID, partitions: PARTITIONS })
    }
}

/// Who asked: client, its incarnation, number of the request, door.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Asker {
    client: usize,
    incarnation: u64,
    number: u64,
    door: usize,
}

#[derive(Clone, Debug)]
struct Forwarded {
    asker: Asker,
    api: ApiKey,
    version: i16,
    body: bytes::Bytes,
}

#[derive(Clone, Debug)]
enum Report {
    Claimed(Attempt, ClaimOutcome),
    Loaded(Attempt, Vec<LoadedRecord>, i64),
    LoadFailed(Attempt),
    Appended(Attempt, i64, AppendOutcome),
}

#[derive(Clone, Debug)]
enum Event {
    ClientWakes(usize, u64),
    AtDoor(Forwarded),
    AtCoordinator(usize, Forwarded),
    BackAtDoor(Asker, Epoch, i16, GroupReply, bool),
    AtClient(Asker, i16, GroupReply, bool),
    /// A coordinator carries out what it decided before it was paused.
    Resumes(usize),
    ClaimAtLog(usize, u64, Attempt, Epoch, Epoch),
    LoadAtLog(usize, u64, Attempt, i64, i64),
    AppendAtLog(usize, u64, Attempt, Append, Epoch),
    Committed(u64),
    Reported(usize, u64, Epoch, Report),
    CoordinatorTicks(usize, u64),
    SendHeartbeat(usize, u64),
    HeartbeatAtController(Heartbeat),
    Acknowledged(usize, u64, Acknowledgement),
    ControllerTicks,
    ImageAtDoor(usize, Option<(usize, Epoch)>),
    Mishap,
}

struct Coordinator {
    incarnation: u64,
    paused_until: i64,
    lease: Lease,
    owner: Option<ShardOwner>,
    released: Epoch,
    last_acknowledged: i64,
    tick_at: Option<i64>,
    /// What it decided and was paused before it could do.
    decided: Option<(Epoch, Vec<Effect>)>,
}

/// Waits at the log for the high watermark.
struct Pending {
    end: i64,
    coordinator: usize,
    incarnation: u64,
    epoch: Epoch,
    report: Report,
}

pub(crate) struct World {
    rng: Sampler,
    now: i64,
    sequence: u64,
    queue: BTreeMap<(i64, u64), Event>,
    faults: Faults,
    config: Arc<Config>,
    log: ModelLog,
    /// Counts leaders of the log: what the earlier ones would have committed, they do not.
    leader: u64,
    pending: Vec<Pending>,
    controller: Controller,
    coordinators: Vec<Coordinator>,
    doors: Vec<Option<(usize, Epoch)>>,
    /// The newest epoch that each door has heard of.
    newest_seen: Vec<Epoch>,
    clients: Vec<Client>,
    /// What each token asks, for the checks.
    tokens: Vec<(Asker, GroupRequest, bool)>,
    /// Messages in order between a door and a coordinator.
    last_arrival: BTreeMap<(usize, usize), i64>,
    pub(crate) ghost: Ghost,
    commits_at_heal: Vec<u64>,
    /// Whether events are written down, which takes longer than the events.
    traced: bool,
    recent: VecDeque<String>,
}

impl World {
    pub(crate) fn new(seed: u64, traced: bool) -> Self {
        let mut rng = Sampler::new(seed);
        let coordinators = 1 + rng.below(3);
        let doors = 1 + rng.below(2);
        let groups = 1 + rng.below(2);
        let statics = rng.below(4);
        let clients = 2 + rng.below(4);
        let clients = (0..clients).map(|number| {
            let group = ["g", "h"][number % groups];
            Client::new(&mut rng, number, group, number < statics, doors)
        });
        let clients: Vec<Client> = clients.collect();
        // Each fault is on in some runs only, so that none hides another.
        let mut rate = |high: usize| if rng.one_in(2) { rng.below(high) } else { 0 };
        let faults = Faults {
            client_loss: rate(120),
            inner_loss: rate(120),
            long_delay: rate(100),
            pause_coordinator: rate(200),
            pause_between: rate(60),
            crash_coordinator: rate(100),
            move_shard: rate(150),
            lose_leader: rate(120),
            stall_commit: rate(100),
            crash_client: rate(120),
            pause_client: rate(120),
            leave: rate(60),
            resubscribe: rate(200),
            compact: rate(300),
        };
        let config = Config {
            group_min_session_timeout_ms: 1_000,
            group_initial_rebalance_delay_ms: [0, 300, 1_000][rng.below(3)],
            new_member_join_timeout_ms: 10_000,
            append_bytes_max: [400, 10_000][rng.below(2)],
            append_timeout_ms: 2_000,
            ..Config::default()
        };
        let knows_retries = rng.one_in(2);
        let mut world = World {
            rng,
            now: 0,
            sequence: 0,
            queue: BTreeMap::new(),
            faults,
            config: Arc::new(config),
            log: ModelLog::new(knows_retries),
            leader: 0,
            pending: Vec::new(),
            controller: Controller::new(coordinators),
            coordinators: (0..coordinators).map(|_| Coordinator::new(1)).collect(),
            doors: vec![None; doors],
            newest_seen: vec![Epoch(0); doors],
            clients,
            tokens: Vec::new(),
            last_arrival: BTreeMap::new(),
            ghost: Ghost::default(),
            commits_at_heal: Vec::new(),
            traced,
            recent: VecDeque::new(),
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for coordinator in 0..self.coordinators.len() {
            self.after(1, Event::SendHeartbeat(coordinator, 1));
        }
        for client in 0..self.clients.len() {
            let delay = self.rng.below(2_000) as i64;
            self.wake(client, delay);
        }
        self.after(5, Event::ControllerTicks);
        self.after(500, Event::Mishap);
    }

    fn after(&mut self, delay: i64, event: Event) {
        self.sequence += 1;
        self.queue.insert((self.now + delay, self.sequence), event);
    }

    fn healed(&self) -> bool {
        self.now >= HEAL_AT
    }

    fn happens(&mut self, of_thousand: usize) -> bool {
        !self.healed() && self.rng.below(1_000) < of_thousand
    }

    /// Time that a message takes; `None` if it is lost.
    fn transit(&mut self, loss: usize) -> Option<i64> {
        if self.happens(loss) {
            return None;
        }
        let long = self.happens(self.faults.long_delay);
        Some(if long { self.rng.below(3_000) as i64 } else { 1 + self.rng.below(10) as i64 })
    }

    /// Time that a message takes on a stream, where none overtakes another.
    fn transit_in_order(&mut self, from: usize, to: usize) -> Option<i64> {
        let delay = self.transit(self.faults.inner_loss)?;
        Some(self.behind_last(from, to, delay))
    }

    fn behind_last(&mut self, from: usize, to: usize, delay: i64) -> i64 {
        let last = self.last_arrival.entry((from, to)).or_insert(0);
        *last = (self.now + delay).max(*last);
        *last - self.now
    }

    fn time(&self) -> Now {
        Now { monotonic: self.now, wall: WALL + self.now }
    }

    /// Runs to the end; panics when a rule is broken.
    pub(crate) fn run(&mut self) {
        while let Some(((at, sequence), event)) = self.queue.pop_first() {
            if at > END_AT {
                break;
            }
            if self.now < HEAL_AT && at >= HEAL_AT {
                self.heal();
            }
            self.now = at;
            if self.traced {
                let fact = format!("{at} {sequence} {event:?}");
                self.ghost.trace(&fact);
                if self.recent.len() == RECENT {
                    self.recent.pop_front();
                }
                self.recent.push_back(fact);
            }
            self.happen(event);
        }
        let owner = self.coordinators.iter().filter_map(|c| c.owner.as_ref()).find(|o| o.shard().is_some());
        g3_converges::check(&self.clients, owner.and_then(ShardOwner::shard), &self.commits_at_heal);
        if owner.is_some_and(|owner| g8_replay_equivalent::check(&self.log, owner)) {
            self.ghost.mark("states compared at the end");
        }
        self.commits_stand();
    }

    /// What led up to here, for a failed run.
    pub(crate) fn recent(&self) -> impl Iterator<Item = &String> {
        self.recent.iter()
    }

    /// The seed's own description of the run.
    pub(crate) fn describe(&self) -> String {
        format!("{:?} {:?}", self.faults, self.config)
    }

    /// Every acknowledged commit is in the log for good.
    fn commits_stand(&self) {
        for place in self.ghost.acknowledged.keys() {
            let (group, partition) = place;
            let state = self.log.replay(self.log.high_watermark, true);
            let stored = state.offset(group, &TOPIC.into(), *partition);
            let label = stored.map(|value| value.metadata.clone()).unwrap_or_default();
            g1_commit_durable::check(&self.ghost, &self.log, place, &label, i64::MAX);
        }
    }

    fn heal(&mut self) {
        self.now = HEAL_AT;
        self.commits_at_heal = self.clients.iter().map(|client| client.commits).collect();
        for client in 0..self.clients.len() {
            if !self.clients[client].alive {
                self.clients[client].restart();
            }
            self.clients[client].paused_until = self.clients[client].paused_until.min(HEAL_AT);
            self.wake(client, 1);
        }
    }

    fn happen(&mut self, event: Event) {
        // Whatever reaches a paused coordinator reaches it when it wakes.
        if let Some(coordinator) = event.coordinator() {
            let paused_until = self.coordinators[coordinator].paused_until;
            if self.now < paused_until {
                self.after(paused_until - self.now, event);
                return;
            }
            // First of all what it was about to do.
            if let Some((epoch, effects)) = self.coordinators[coordinator].decided.take() {
                self.carry_out(coordinator, epoch, effects);
            }
        }
        match event {
            Event::ClientWakes(client, wake) => self.client_wakes(client, wake),
            Event::AtDoor(forwarded) => self.at_door(forwarded),
            Event::AtCoordinator(coordinator, forwarded) => self.at_coordinator(coordinator, forwarded),
            Event::BackAtDoor(asker, epoch, version, reply, blind) => {
                self.back_at_door(asker, epoch, version, reply, blind);
            }
            Event::AtClient(asker, version, reply, blind) => self.at_client(asker, version, &reply, blind),
            Event::Resumes(_) => {}
            Event::ClaimAtLog(coordinator, incarnation, attempt, stated, writer) => {
                let verdict = self.log.claim(stated, writer);
                self.at_log(coordinator, incarnation, writer, verdict, |verdict| match verdict {
                    Verdict::Stands { end } => {
                        Report::Claimed(attempt, ClaimOutcome::Claimed { offset: end - 1 })
                    }
                    Verdict::Fenced | Verdict::Mismatch => Report::Claimed(attempt, ClaimOutcome::Fenced),
                });
            }
            Event::AppendAtLog(coordinator, incarnation, attempt, append, writer) => {
                self.append_at_log(coordinator, incarnation, attempt, &append, writer);
            }
            Event::LoadAtLog(coordinator, incarnation, attempt, from, until) => {
                let count = 1 + self.rng.below(40);
                let (records, next) = self.log.read(from, until, count);
                if next < until && until != i64::MAX {
                    self.ghost.mark("loaded in pieces");
                }
                let epoch = self.epoch_of(coordinator);
                let report = match self.happens(self.faults.inner_loss) {
                    true => Report::LoadFailed(attempt),
                    false => Report::Loaded(attempt, records, next),
                };
                self.after(2, Event::Reported(coordinator, incarnation, epoch, report));
            }
            Event::Committed(leader) => self.committed(leader),
            Event::Reported(coordinator, incarnation, epoch, report) => {
                self.reported(coordinator, incarnation, epoch, report);
            }
            Event::CoordinatorTicks(coordinator, incarnation) => {
                if self.coordinators[coordinator].incarnation == incarnation {
                    self.coordinators[coordinator].tick_at = None;
                    self.with_owner(coordinator, |owner, now| owner.tick(now));
                }
            }
            Event::SendHeartbeat(coordinator, incarnation) => self.send_heartbeat(coordinator, incarnation),
            Event::HeartbeatAtController(heartbeat) => {
                if let Some(acknowledgement) = self.controller.heard(self.now, heartbeat)
                    && let Some(delay) = self.transit(self.faults.inner_loss)
                {
                    let Heartbeat { coordinator, incarnation, .. } = heartbeat;
                    self.after(delay, Event::Acknowledged(coordinator, incarnation, acknowledgement));
                }
            }
            Event::Acknowledged(coordinator, incarnation, acknowledgement) => {
                self.acknowledged(coordinator, incarnation, acknowledgement);
            }
            Event::ControllerTicks => self.controller_ticks(),
            Event::ImageAtDoor(door, image) => {
                self.doors[door] = image;
                self.newest_seen[door] =
                    self.newest_seen[door].max(image.map_or(Epoch(0), |(_, epoch)| epoch));
            }
            Event::Mishap => self.mishap(),
        }
    }

    /// Wakes a client then, and not at another time.
    fn wake(&mut self, number: usize, delay: i64) {
        self.clients[number].wake += 1;
        let wake = self.clients[number].wake;
        self.after(delay, Event::ClientWakes(number, wake));
    }

    fn client_wakes(&mut self, number: usize, wake: u64) {
        let now = self.now;
        let client = &mut self.clients[number];
        if client.wake != wake || !client.alive || client.phase == Phase::Out {
            return;
        }
        if now < client.paused_until {
            let delay = client.paused_until - now;
            self.wake(number, delay);
            return;
        }
        if client.outstanding.as_ref().is_some_and(|o| now >= o.deadline) {
            client.door = self.rng.below(self.doors.len());
            self.ghost.mark("request timed out");
        }
        let next = self.clients[number].next_request(now);
        if let Some((api, version, request)) = next {
            self.send(number, api, version, request);
        }
        let delay = 150 + self.rng.below(100) as i64;
        self.wake(number, delay);
    }

    fn send(&mut self, number: usize, api: ApiKey, version: i16, request: GroupRequest) {
        let body = encode_request(&request, version);
        let client = &mut self.clients[number];
        let request_number = client.sent(self.now, request);
        let asker = Asker {
            client: number,
            incarnation: client.incarnation,
            number: request_number,
            door: client.door,
        };
        if let Some(delay) = self.transit(self.faults.client_loss) {
            self.after(delay, Event::AtDoor(Forwarded { asker, api, version, body }));
        }
    }

    fn at_door(&mut self, forwarded: Forwarded) {
        let door = forwarded.asker.door;
        match self.doors[door] {
            Some((coordinator, _)) => {
                if let Some(delay) = self.transit_in_order(door, coordinator) {
                    self.after(delay, Event::AtCoordinator(coordinator, forwarded));
                }
            }
            None => {
                let request = GroupRequest::decode(forwarded.api, forwarded.version, forwarded.body)
                    .expect("our own request");
                let reply = request.refuse(forwarded.version, ErrorCode::CoordinatorNotAvailable);
                self.send_to_client(forwarded.asker, forwarded.version, reply, false);
            }
        }
    }

    fn at_coordinator(&mut self, coordinator: usize, forwarded: Forwarded) {
        let Forwarded { asker, api, version, body } = forwarded;
        let request = GroupRequest::decode(api, version, body).expect("our own request");
        let epoch = self.epoch_of(coordinator);
        let Some(owner) = &mut self.coordinators[coordinator].owner else {
            let reply = request.refuse(version, ErrorCode::NotCoordinator);
            if let Some(delay) = self.transit(self.faults.inner_loss) {
                self.after(delay, Event::BackAtDoor(asker, epoch, version, reply, false));
            }
            return;
        };
        let blind = matches!(owner.status(), Owned::Claiming | Owned::Loading(..));
        let token = Token(self.tokens.len() as u64);
        let client = &self.clients[asker.client];
        let context = RequestContext {
            token,
            api_version: version,
            client_id: client.name.clone(),
            client_host: "/127.0.0.1".into(),
            fresh_id: Uuid::from_u64_pair(self.rng.bits(), self.rng.bits()),
        };
        self.tokens.push((asker, request.clone(), blind));
        self.with_owner(coordinator, |owner, now| owner.request(now, &context, &request, &Image));
    }

    fn epoch_of(&self, coordinator: usize) -> Epoch {
        self.coordinators[coordinator].owner.as_ref().map_or(Epoch(0), ShardOwner::epoch)
    }

    /// Lets the owner act, and carries out what it decides: at once, or after a pause in between.
    fn with_owner(&mut self, coordinator: usize, f: impl FnOnce(&mut ShardOwner, Now) -> Vec<Effect>) {
        let now = self.time();
        let Some(owner) = &mut self.coordinators[coordinator].owner else { return };
        let effects = f(owner, now);
        let epoch = owner.epoch();
        if owner.status() == Owned::Serving && self.ghost.served.insert(epoch) {
            self.ghost.mark("take-over");
        }
        if self.rng.one_in(COMPARED)
            && let Some(owner) = &self.coordinators[coordinator].owner
            && g8_replay_equivalent::check(&self.log, owner)
        {
            self.ghost.mark("states compared");
        }
        if !effects.is_empty() && self.happens(self.faults.pause_between) {
            self.pause_coordinator(coordinator);
            self.ghost.mark("paused after deciding");
            let this = &mut self.coordinators[coordinator];
            this.decided = Some((epoch, effects));
            let delay = this.paused_until - self.now;
            self.after(delay, Event::Resumes(coordinator));
        } else {
            self.carry_out(coordinator, epoch, effects);
        }
        self.schedule_tick(coordinator);
    }

    fn schedule_tick(&mut self, coordinator: usize) {
        let now = self.now;
        let this = &mut self.coordinators[coordinator];
        let due = this.owner.as_ref().and_then(ShardOwner::next_deadline).map(|at| at.max(now + 1));
        if let Some(at) = due
            && this.tick_at.is_none_or(|planned| at < planned)
        {
            this.tick_at = Some(at);
            let incarnation = this.incarnation;
            self.after(at - now, Event::CoordinatorTicks(coordinator, incarnation));
        }
    }

    fn carry_out(&mut self, coordinator: usize, epoch: Epoch, effects: Vec<Effect>) {
        let incarnation = self.coordinators[coordinator].incarnation;
        for effect in effects {
            match effect {
                Effect::Claim { attempt, epoch: stated } => {
                    if let Some(delay) = self.transit(self.faults.inner_loss) {
                        let event = Event::ClaimAtLog(coordinator, incarnation, attempt, stated, epoch);
                        self.after(delay, event);
                    }
                    let lost = Report::Claimed(attempt, ClaimOutcome::Unknown);
                    self.after(1_000, Event::Reported(coordinator, incarnation, epoch, lost));
                }
                Effect::Load { attempt, from, until } => {
                    let delay = 1 + self.rng.below(5) as i64;
                    self.after(delay, Event::LoadAtLog(coordinator, incarnation, attempt, from, until));
                }
                Effect::Append { attempt, append } => {
                    let expected_end = append.expected_end;
                    if let Some(delay) = self.transit(self.faults.inner_loss) {
                        let event = Event::AppendAtLog(coordinator, incarnation, attempt, append, epoch);
                        self.after(delay, event);
                    }
                    let lost = Report::Appended(attempt, expected_end, AppendOutcome::Unknown);
                    self.after(700, Event::Reported(coordinator, incarnation, epoch, lost));
                }
                Effect::Reply(completion) => self.reply(coordinator, epoch, completion),
                Effect::Resigned(_) => {
                    self.ghost.mark("resigned");
                    let this = &mut self.coordinators[coordinator];
                    this.released = this.released.max(epoch);
                    if this.owner.as_ref().is_some_and(|owner| owner.epoch() == epoch) {
                        this.owner = None;
                    }
                }
            }
        }
    }

    /// Writes a reply, if the lease allows.
    fn reply(&mut self, coordinator: usize, epoch: Epoch, completion: Completion) {
        let (asker, request, blind) = self.tokens[completion.token.0 as usize].clone();
        if !self.coordinators[coordinator].lease.holds(self.now) {
            self.ghost.mark("lease kept a reply back");
            return;
        }
        // Refusals tell nothing of the shard.
        if error_of(&completion.reply) == ErrorCode::None && !blind {
            g6_single_writer::check_reply(&self.ghost, epoch);
            g7_after_high_watermark::check(&self.log, &request, &completion.reply);
        }
        completion.reply.encode(completion.version).expect("every reply can be written for its client");
        if let Some(delay) = self.transit(self.faults.inner_loss) {
            let event = Event::BackAtDoor(asker, epoch, completion.version, completion.reply, blind);
            self.after(delay, event);
        }
    }

    fn back_at_door(&mut self, asker: Asker, epoch: Epoch, version: i16, reply: GroupReply, blind: bool) {
        if epoch < self.newest_seen[asker.door] {
            self.ghost.mark("door kept an old epoch's reply back");
            return;
        }
        self.send_to_client(asker, version, reply, blind);
    }

    fn send_to_client(&mut self, asker: Asker, version: i16, reply: GroupReply, blind: bool) {
        if let Some(delay) = self.transit(self.faults.client_loss) {
            self.after(delay, Event::AtClient(asker, version, reply, blind));
        }
    }

    fn at_client(&mut self, asker: Asker, version: i16, reply: &GroupReply, blind: bool) {
        let now = self.now;
        let client = &mut self.clients[asker.client];
        if !client.alive || client.incarnation != asker.incarnation {
            return;
        }
        if now < client.paused_until {
            let delay = client.paused_until - now;
            self.after(delay, Event::AtClient(asker, version, reply.clone(), blind));
            return;
        }
        // Word for a request that ran out of time came over a connection that was closed.
        let Some(outstanding) = client.outstanding.take_if(|o| o.number == asker.number) else { return };
        let generation = client.generation;
        let error = client.answered(now, reply);
        self.ghost.mark(error.name());
        let client = &self.clients[asker.client];
        if error == ErrorCode::FencedInstanceId {
            g4_static_unique::check_fenced(client);
        }
        if error != ErrorCode::None || blind {
            return;
        }
        let (group, sent_at) = (client.group.clone(), outstanding.sent_at);
        match (&outstanding.request, reply) {
            (_, GroupReply::Join(response)) => {
                g4_static_unique::check_members(response);
                if response.skip_assignment {
                    self.ghost.mark("leader skips assignment");
                }
            }
            (_, GroupReply::Sync(_)) => {
                let (owner, owned) = (client.identity(), client.owned.clone());
                g5_stale_rejected::check(&self.ghost, "SyncGroup", &group, generation, sent_at);
                g2_exclusive::check(&mut self.ghost, &group, generation, &owner, owned.into_iter());
                self.ghost.assigned.entry(group).or_default().push((now, generation));
            }
            (_, GroupReply::Heartbeat(_)) => {
                g5_stale_rejected::check(&self.ghost, "Heartbeat", &group, generation, sent_at);
            }
            (GroupRequest::Commit(request), GroupReply::Commit(_)) => {
                g5_stale_rejected::check(&self.ghost, "OffsetCommit", &group, generation, sent_at);
                for partition in request.topics.iter().flat_map(|topic| &topic.partitions) {
                    let place = (group.clone(), partition.partition_index);
                    let label = partition.committed_metadata.clone().unwrap_or_default();
                    self.ghost.acknowledged.entry(place).or_default().push((now, label));
                }
            }
            (_, GroupReply::Fetch(_)) => {
                for (partition, _, label) in crate::client::fetched(reply) {
                    let place = (group.clone(), partition);
                    g1_commit_durable::check(&self.ghost, &self.log, &place, &label, sent_at);
                }
            }
            _ => {}
        }
    }

    fn append_at_log(
        &mut self,
        coordinator: usize,
        incarnation: u64,
        attempt: Attempt,
        append: &Append,
        writer: Epoch,
    ) {
        let before = self.log.end();
        let verdict = self.log.append(append, writer);
        match verdict {
            Verdict::Stands { .. } if self.log.end() == before => self.ghost.mark("append found to be there"),
            Verdict::Stands { .. } => {}
            Verdict::Fenced => self.ghost.mark("append of an old epoch refused"),
            Verdict::Mismatch => self.ghost.mark("append at the wrong end refused"),
        }
        let expected_end = append.expected_end;
        self.at_log(coordinator, incarnation, writer, verdict, |verdict| {
            let outcome = match verdict {
                Verdict::Stands { .. } => AppendOutcome::Committed,
                Verdict::Fenced => AppendOutcome::Fenced,
                Verdict::Mismatch => AppendOutcome::Mismatch,
            };
            Report::Appended(attempt, expected_end, outcome)
        });
    }

    /// Reports a refusal at once, and success when the high watermark is there.
    fn at_log(
        &mut self,
        coordinator: usize,
        incarnation: u64,
        epoch: Epoch,
        verdict: Verdict,
        report: impl Fn(Verdict) -> Report,
    ) {
        g6_single_writer::check_log(&self.log);
        let report = report(verdict);
        if let Verdict::Stands { end } = verdict {
            self.pending.push(Pending { end, coordinator, incarnation, epoch, report });
            let stalls = self.happens(self.faults.stall_commit);
            let delay = if stalls { 3_000 } else { 2 + self.rng.below(30) as i64 };
            self.after(delay, Event::Committed(self.leader));
        } else if let Some(delay) = self.transit(self.faults.inner_loss) {
            self.after(delay, Event::Reported(coordinator, incarnation, epoch, report));
        }
    }

    fn committed(&mut self, leader: u64) {
        if leader != self.leader {
            return;
        }
        self.log.high_watermark = self.log.end();
        for pending in std::mem::take(&mut self.pending) {
            if pending.end > self.log.high_watermark {
                self.pending.push(pending);
                continue;
            }
            if let Some(delay) = self.transit(self.faults.inner_loss) {
                let Pending { coordinator, incarnation, epoch, report, .. } = pending;
                self.after(delay, Event::Reported(coordinator, incarnation, epoch, report));
            }
        }
    }

    fn reported(&mut self, coordinator: usize, incarnation: u64, epoch: Epoch, report: Report) {
        let this = &self.coordinators[coordinator];
        if this.incarnation != incarnation || self.epoch_of(coordinator) != epoch {
            return;
        }
        let before = this.owner.as_ref().map(ShardOwner::status);
        self.with_owner(coordinator, |owner, now| match report {
            Report::Claimed(attempt, outcome) => owner.claimed(now, attempt, outcome),
            Report::Loaded(attempt, records, next) => owner.loaded(now, attempt, &records, next),
            Report::LoadFailed(attempt) => {
                owner.load_failed(now, attempt);
                Vec::new()
            }
            Report::Appended(attempt, end, outcome) => owner.appended(now, attempt, end, outcome),
        });
        let after = self.coordinators[coordinator].owner.as_ref().map(ShardOwner::status);
        if before == Some(Owned::Serving) && after == Some(Owned::Claiming) {
            self.ghost.mark("dropped and loaded again");
        }
    }

    fn send_heartbeat(&mut self, coordinator: usize, incarnation: u64) {
        let this = &self.coordinators[coordinator];
        if this.incarnation != incarnation {
            return;
        }
        let heartbeat = Heartbeat { coordinator, incarnation, sent_at: self.now, released: this.released };
        if let Some(delay) = self.transit(self.faults.inner_loss) {
            self.after(delay, Event::HeartbeatAtController(heartbeat));
        }
        self.after(300, Event::SendHeartbeat(coordinator, incarnation));
    }

    fn acknowledged(&mut self, coordinator: usize, incarnation: u64, acknowledgement: Acknowledgement) {
        let this = &mut self.coordinators[coordinator];
        if this.incarnation != incarnation || acknowledgement.sent_at <= this.last_acknowledged {
            return;
        }
        this.last_acknowledged = acknowledgement.sent_at;
        this.lease.acknowledged(acknowledgement.sent_at);
        let owned = this.owner.as_ref().map(ShardOwner::epoch);
        if owned.is_some() && owned != acknowledgement.assigned {
            self.with_owner(coordinator, |owner, _| owner.resign());
        }
        let this = &mut self.coordinators[coordinator];
        this.released = this.released.max(acknowledgement.revoked.unwrap_or(Epoch(0)));
        if let Some(epoch) = acknowledgement.assigned
            && this.owner.is_none()
            && epoch > this.released
        {
            let (owner, effects) = ShardOwner::take_over(Arc::clone(&self.config), epoch);
            this.owner = Some(owner);
            self.carry_out(coordinator, epoch, effects);
        }
    }

    fn controller_ticks(&mut self) {
        let before = self.controller.assigned;
        self.controller.tick(self.now, &mut self.rng);
        if before != self.controller.assigned {
            let image = self.controller.assigned.map(|(owner, _, epoch)| (owner, epoch));
            for door in 0..self.doors.len() {
                // The feed is retried until it arrives; only late.
                let delay = self.transit(0).unwrap_or(1);
                let delay = self.behind_last(usize::MAX, door, delay);
                self.after(delay, Event::ImageAtDoor(door, image));
            }
        }
        self.after(200, Event::ControllerTicks);
    }

    fn pause_coordinator(&mut self, coordinator: usize) {
        let pause = 200 + self.rng.below(2 * SESSION_MS as usize) as i64;
        let paused_until = &mut self.coordinators[coordinator].paused_until;
        *paused_until = (self.now + pause).min(HEAL_AT).max(*paused_until);
    }

    fn mishap(&mut self) {
        if self.healed() {
            return;
        }
        let faults = self.faults;
        let coordinator = self.rng.below(self.coordinators.len());
        if self.happens(faults.pause_coordinator) {
            self.pause_coordinator(coordinator);
            self.ghost.mark("coordinator paused");
        }
        if self.happens(faults.crash_coordinator) {
            let incarnation = self.coordinators[coordinator].incarnation + 1;
            self.coordinators[coordinator] = Coordinator::new(incarnation);
            let delay = 100 + self.rng.below(5_000) as i64;
            self.after(delay.min(HEAL_AT - self.now), Event::SendHeartbeat(coordinator, incarnation));
            self.ghost.mark("coordinator crashed");
        }
        if self.happens(faults.move_shard) {
            self.controller.revoke();
            self.ghost.mark("shard moved");
        }
        if self.happens(faults.lose_leader) {
            self.leader += 1;
            self.pending.clear();
            if self.log.truncate() {
                self.ghost.mark("log cut above the high watermark");
            }
        }
        if self.happens(faults.compact) {
            let drop_tombstones = self.rng.one_in(2);
            self.log.compact(drop_tombstones);
            self.ghost.mark("log compacted");
        }
        self.client_mishap();
        self.after(400, Event::Mishap);
    }

    fn client_mishap(&mut self) {
        let faults = self.faults;
        let number = self.rng.below(self.clients.len());
        if !self.clients[number].alive {
            if self.rng.one_in(3) {
                self.clients[number].restart();
                self.wake(number, 1);
            }
            return;
        }
        if self.happens(faults.crash_client) {
            self.clients[number].alive = false;
            self.ghost.mark("client crashed");
        } else if self.happens(faults.pause_client) {
            let pause = self.rng.below(12_000) as i64;
            self.clients[number].paused_until = self.now + pause;
            self.ghost.mark("client paused");
        } else if self.happens(faults.leave) {
            let client = &self.clients[number];
            if client.phase == Phase::Stable && client.outstanding.is_none() && self.clients.len() > 2 {
                let (api, version, request) = client.leave();
                self.send(number, api, version, request);
                self.ghost.mark("client left");
            }
        } else if self.happens(faults.resubscribe) {
            self.clients[number].resubscribe();
        }
    }
}

impl Coordinator {
    fn new(incarnation: u64) -> Self {
        Coordinator {
            incarnation,
            paused_until: 0,
            lease: Lease::new(SESSION_MS, 100),
            owner: None,
            released: Epoch(0),
            last_acknowledged: -1,
            tick_at: None,
            decided: None,
        }
    }
}

impl Event {
    /// The coordinator at which it happens.
    fn coordinator(&self) -> Option<usize> {
        match self {
            Event::AtCoordinator(coordinator, _)
            | Event::Resumes(coordinator)
            | Event::Reported(coordinator, ..)
            | Event::CoordinatorTicks(coordinator, _)
            | Event::SendHeartbeat(coordinator, _)
            | Event::Acknowledged(coordinator, ..) => Some(*coordinator),
            _ => None,
        }
    }
}

fn encode_request(request: &GroupRequest, version: i16) -> bytes::Bytes {
    use kafka_wire_core::{Message, Writer};
    let mut writer = Writer::new();
    match request {
        GroupRequest::Join(r) => r.encode(&mut writer, version),
        GroupRequest::Sync(r) => r.encode(&mut writer, version),
        GroupRequest::Heartbeat(r) => r.encode(&mut writer, version),
        GroupRequest::Leave(r) => r.encode(&mut writer, version),
        GroupRequest::Commit(r) => r.encode(&mut writer, version),
        GroupRequest::Fetch(r) => r.encode(&mut writer, version),
        other => panic!("no client asks for {other:?}"),
    }
    .expect("a client can write what it asks");
    writer.finish().into_bytes().expect("no file regions")
}
