//! What a run is made in: raft's environment with virtual time and chance from the seed, and the network.
//!
//! Everything runs on one thread, so chance is a thread-local generator that each run seeds anew.

use crate::quorum::network::{Carrier, Conduit, Lane};
use crate::quorum::rpc::{self, RaftSlot};
use crate::quorum::type_config::{Changes, Environment, Member};
use crate::quorum::wire::{AppendAsk, Signed, SnapshotHello, TransferAsk, VoteAsk};
use bytes::Bytes;
use controller_core::Chance;
use openraft::alias::{OneshotReceiverOf, WriteResponderOf};
use openraft::async_runtime::AsyncRuntime;
use openraft::impls::ProgressResponder;
use openraft::raft::ClientWriteResult;
use openraft::type_config::TypeConfigExt;
use openraft_rt_sim::{SimInstant, SimRuntime};
use parking_lot::Mutex;
use proto_types::ids::Millis;
use proto_types::message_kind::MessageKind;
use proto_types::{decode, encode};
use quic_transport::{CallError, Refusal};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

openraft::declare_raft_types!(
    /// Raft in the simulator.
    pub SimConfig:
        D = Changes,
        R = (),
        NodeId = u64,
        Node = Member,
        AsyncRuntime = SimRuntime,
);

thread_local! {
    static CHANCE: RefCell<Chance> = RefCell::new(Chance::new(1));
}

/// Seeds this thread's chance.
pub(super) fn seed_chance(seed: u64) {
    CHANCE.with_borrow_mut(|chance| *chance = Chance::new(u128::from(seed) << 64 | 0x5eed));
}

/// A number below `bound`.
pub(super) fn below(bound: u64) -> u64 {
    CHANCE.with_borrow_mut(|chance| chance.below(bound as usize) as u64)
}

/// True in so many of a thousand cases.
pub(super) fn one_in_thousand(times: u64) -> bool {
    below(1000) < times
}

/// Virtual time since the run began.
pub(super) fn now() -> Duration {
    SimInstant::try_now().map_or(Duration::ZERO, SimInstant::elapsed_since_start)
}

pub(super) async fn sleep_ms(ms: u64) {
    SimConfig::sleep(Duration::from_millis(ms)).await;
}

pub(super) fn spawn<F>(task: F)
where
    F: Future<Output: Send> + Send + 'static,
{
    drop(SimRuntime::spawn(task));
}

impl Environment for SimConfig {
    fn wall_clock() -> Millis {
        Millis(i64::try_from(now().as_millis()).expect("runs are short"))
    }

    fn chance() -> u128 {
        u128::from(below(u64::MAX)) << 64 | u128::from(below(u64::MAX))
    }

    async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        // The machine may go down before it is done.
        SimConfig::sleep(Duration::from_micros(below(3_000))).await;
        Ok(work())
    }

    fn write_answer() -> (WriteResponderOf<Self>, OneshotReceiverOf<Self, ClientWriteResult<Self>>) {
        ProgressResponder::complete_only()
    }
}

/// How the network behaves in this run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weather {
    /// Longest ordinary delay of a message, milliseconds.
    pub(super) delay_ms: u64,
    /// In so many of a thousand messages it is up to a second.
    pub(super) late: u64,
    /// So many of a thousand messages are lost.
    pub(super) loss: u64,
    /// So many of a thousand questions arrive twice, the second time late.
    pub(super) twice: u64,
}

impl Weather {
    pub(super) const FAIR: Self = Self { delay_ms: 2, late: 0, loss: 0, twice: 0 };
}

/// Who is up, and who reaches whom.
#[derive(Clone)]
pub(super) struct Net {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    up: BTreeMap<u64, (u64, Arc<RaftSlot<SimConfig>>)>,
    /// Cut ways, each in one direction.
    cut: BTreeSet<(u64, u64)>,
    weather: Weather,
}

impl Net {
    pub(super) fn new(weather: Weather) -> Self {
        let shared = Shared { up: BTreeMap::new(), cut: BTreeSet::new(), weather };
        Self { shared: Arc::new(Mutex::new(shared)) }
    }

    pub(super) fn set_weather(&self, weather: Weather) {
        self.shared.lock().weather = weather;
    }

    pub(super) fn up(&self, id: u64, life: u64, slot: Arc<RaftSlot<SimConfig>>) {
        self.shared.lock().up.insert(id, (life, slot));
    }

    pub(super) fn down(&self, id: u64) {
        self.shared.lock().up.remove(&id);
    }

    pub(super) fn cut(&self, from: u64, to: u64) {
        self.shared.lock().cut.insert((from, to));
    }

    pub(super) fn heal(&self) {
        self.shared.lock().cut.clear();
    }

    fn is_alive(&self, id: u64, life: u64) -> bool {
        self.shared.lock().up.get(&id).is_some_and(|(now, _)| *now == life)
    }

    fn slot(&self, id: u64) -> Option<Arc<RaftSlot<SimConfig>>> {
        self.shared.lock().up.get(&id).map(|(_, slot)| Arc::clone(slot))
    }

    /// Takes a message the way it goes; false if it never arrives.
    async fn carry(&self, from: u64, to: u64) -> bool {
        let weather = self.shared.lock().weather;
        let late = if one_in_thousand(weather.late) { below(1_000_000) } else { 0 };
        let delay = 50 + below(weather.delay_ms * 1_000) + late;
        SimConfig::sleep(Duration::from_micros(delay)).await;
        !one_in_thousand(weather.loss) && !self.shared.lock().cut.contains(&(from, to))
    }
}

/// The network as one life of a machine sees it.
pub(super) struct SimCarrier {
    pub(super) net: Net,
    pub(super) me: u64,
    pub(super) life: u64,
}

/// See [`SimCarrier`].
pub(super) struct SimConduit {
    net: Net,
    me: u64,
    life: u64,
    target: u64,
}

impl Carrier for SimCarrier {
    type Conduit = SimConduit;

    fn conduit(&self, target: u64, _address: String, _lane: Lane) -> SimConduit {
        SimConduit { net: self.net.clone(), me: self.me, life: self.life, target }
    }
}

impl Conduit for SimConduit {
    async fn ask(
        &mut self,
        kind: MessageKind,
        question: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, CallError> {
        let asked = self.exchange(kind, question, None);
        SimConfig::timeout(timeout, asked).await.unwrap_or(Err(CallError::Timeout))
    }

    async fn send_snapshot(
        &mut self,
        hello: Bytes,
        data: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, CallError> {
        let asked = self.exchange(MessageKind::RaftSnapshot, hello, Some(data));
        SimConfig::timeout(timeout, asked).await.unwrap_or(Err(CallError::Timeout))
    }
}

impl SimConduit {
    async fn exchange(
        &self,
        kind: MessageKind,
        question: Bytes,
        data: Option<Bytes>,
    ) -> Result<Bytes, CallError> {
        let Self { net, me, target, .. } = self;
        let (me, target) = (*me, *target);
        if !net.carry(me, target).await {
            return std::future::pending().await;
        }
        // Dead machines neither send nor answer.
        if !net.is_alive(me, self.life) {
            return Err(CallError::Closed { reason: "the machine is down".to_owned() });
        }
        let Some(slot) = net.slot(target) else {
            return Err(CallError::Unreachable { reason: "nobody listens".to_owned() });
        };
        if one_in_thousand(net.shared.lock().weather.twice) {
            let (slot, question, data) = (Arc::clone(&slot), question.clone(), data.clone());
            spawn(async move {
                sleep_ms(below(2_000)).await;
                answer(&slot, me, kind, question, data).await
            });
        }
        // What was begun goes on, whether or not the other one waits for it.
        let (reply, answered) = tokio::sync::oneshot::channel();
        spawn(async move {
            let outcome = answer(&slot, me, kind, question, data).await;
            // Whoever asked may have given up.
            let _gone = reply.send(outcome);
        });
        let answered = match answered.await {
            Ok(answered) => answered,
            Err(_died) => return std::future::pending().await,
        };
        if !net.carry(target, me).await {
            return std::future::pending().await;
        }
        answered.map_err(|refusal| match refusal {
            Refusal::Failed(reason) => CallError::Remote(reason),
            refusal => CallError::Refused { refusal },
        })
    }
}

async fn answer(
    slot: &RaftSlot<SimConfig>,
    caller: u64,
    kind: MessageKind,
    question: Bytes,
    data: Option<Bytes>,
) -> Result<Bytes, Refusal> {
    fn read<T: DeserializeOwned>(question: &Bytes) -> Result<Signed<T>, Refusal> {
        decode(question).map_err(|error| Refusal::Malformed(error.to_string()))
    }
    fn written<T: Serialize>(answer: &T) -> Bytes {
        encode(answer).into()
    }
    Ok(match kind {
        MessageKind::RaftAppend => written(&rpc::append(slot, caller, read::<AppendAsk>(&question)?).await?),
        MessageKind::RaftVote => written(&rpc::vote(slot, caller, read::<VoteAsk>(&question)?, false).await?),
        MessageKind::RaftPreVote => {
            written(&rpc::vote(slot, caller, read::<VoteAsk>(&question)?, true).await?)
        }
        MessageKind::RaftTransferLeader => {
            written(&rpc::transfer(slot, caller, read::<TransferAsk>(&question)?).await?)
        }
        MessageKind::RaftSnapshot => {
            let hello = read::<SnapshotHello>(&question)?;
            written(&rpc::install(slot, caller, hello, data.unwrap_or_default()).await?)
        }
        other => panic!("raft does not ask {other:?}"),
    })
}
