//! G8: after any requests, replaying what was written, whole or compacted, gives the state that served. T-91: compacted at
//! random points.

use std::collections::BTreeMap;

use coordinator_core::{Config, GroupReply, GroupRequest, State, StoredRecord, Token};
use kafka_wire_core::messages::delete_groups::DeleteGroupsRequest;
use kafka_wire_core::messages::leave_group::{LeaveGroupRequest, MemberIdentity};
use kafka_wire_core::sample::Sampler;
use uuid::Uuid;

use crate::desk::{Asking, Desk};
use crate::offsets::commit_request;

fn replay<'r>(records: impl IntoIterator<Item = &'r StoredRecord>) -> State {
    let mut state = State::default();
    for record in records {
        state.replay(&record.key, record.value.as_ref()).unwrap();
    }
    state
}

/// The log with the records before `until` compacted: the last of each key, perhaps without tombstones.
fn compacted(log: &[StoredRecord], until: usize, keep_tombstones: bool) -> Vec<&StoredRecord> {
    let (head, tail) = log.split_at(until);
    let last: BTreeMap<_, usize> = head.iter().enumerate().map(|(at, record)| (&record.key, at)).collect();
    let head = head
        .iter()
        .enumerate()
        .filter(|(at, record)| last[&record.key] == *at && (keep_tombstones || record.value.is_some()));
    head.map(|(_, record)| record).chain(tail).collect()
}

struct Play {
    rng: Sampler,
    desk: Desk,
    members: Vec<Asking>,
    waiting: BTreeMap<Token, usize>,
}

impl Play {
    fn step(&mut self) {
        let number = self.rng.below(self.members.len());
        match self.rng.below(12) {
            0..=2 => {
                let version = if self.members[number].instance_id.is_some() { 9 } else { 3 };
                let token = self.desk.join(version, &self.members[number]);
                self.waiting.insert(token, number);
            }
            3..=4 => {
                let ids: Vec<_> = self.members.iter().map(|member| member.id.clone()).collect();
                let parts: Vec<_> = ids.iter().map(|id| (id, "part")).collect();
                self.desk.sync(&self.members[number], &parts);
            }
            5..=6 => {
                let offset = self.rng.below(100) as i64;
                let mut request = commit_request(&self.members[number], "t", &[(0, offset), (1, offset)]);
                let version = 2 + self.rng.below(8) as i16;
                if version <= 4 && self.rng.one_in(2) {
                    request.retention_time_ms = self.rng.below(100_000) as i64;
                }
                if version < 7 {
                    request.group_instance_id = None;
                }
                if self.rng.one_in(3) {
                    request.member_id = "".into();
                    request.group_instance_id = None;
                    request.generation_id_or_member_epoch = -1;
                }
                self.desk.ask(version, GroupRequest::Commit(request));
            }
            7 => self.leave(number),
            8 => {
                // A restart: it comes back without its id.
                self.members[number].id = "".into();
                self.members[number].generation = -1;
            }
            9 => {
                let group = self.members[number].group.clone();
                let request = DeleteGroupsRequest { groups_names: vec![group] };
                self.desk.ask(3, GroupRequest::DeleteGroups(request));
            }
            10 if self.rng.one_in(4) => {
                let decision = self.desk.shard.topic_deleted(self.desk.time(), &"t".into(), Uuid::nil());
                self.desk.take_in(decision);
            }
            _ => {
                let ms = self.rng.below(20_000) as i64;
                self.desk.pass(ms);
            }
        }
        self.pick_up();
    }

    fn leave(&mut self, number: usize) {
        let member = &self.members[number];
        let identity = MemberIdentity {
            member_id: member.id.clone(),
            group_instance_id: member.instance_id.clone(),
            reason: None,
        };
        let request = LeaveGroupRequest {
            group_id: member.group.clone(),
            members: vec![identity],
            ..Default::default()
        };
        self.desk.ask(5, GroupRequest::Leave(request));
    }

    fn pick_up(&mut self) {
        for (token, completion) in std::mem::take(&mut self.desk.done) {
            let number = self.waiting.remove(&token);
            if let (GroupReply::Join(response), Some(number)) = (completion.reply, number) {
                self.members[number].take(&response);
            }
        }
    }
}

#[test]
fn what_is_replayed_is_what_served() {
    let first: u64 = std::env::var("WEIR_SEED").map_or(0, |text| text.parse().unwrap());
    let mut stored_groups = 0;
    for seed in first..first + 150 {
        eprintln!(
            "repeat with: WEIR_SEED={seed} cargo test -p coordinator-core --test shard what_is_replayed"
        );
        let config = Config {
            offsets_retention_ms: 60_000,
            offsets_retention_check_interval_ms: 10_000,
            group_initial_rebalance_delay_ms: 0,
            ..Config::default()
        };
        let members = vec![
            Asking::named("g", "i"),
            Asking::new("g"),
            Asking::new("g"),
            Asking::new("h"),
            Asking::named("h", "j"),
        ];
        let desk = Desk::with(config);
        let mut play = Play { rng: Sampler::new(seed), desk, members, waiting: BTreeMap::new() };
        for _ in 0..80 {
            play.step();
            let served = play.desk.shard.state();
            stored_groups += served.groups().count();
            if play.rng.one_in(4) {
                let log = &play.desk.log;
                let until = play.rng.below(log.len() + 1);
                let keep = play.rng.one_in(2);
                assert_eq!(&replay(log), served, "seed {seed}: the whole log");
                assert_eq!(&replay(compacted(log, until, keep)), served, "seed {seed}: compacted");
            }
            if play.rng.one_in(40) {
                play.desk.fail_over();
                play.waiting.clear();
            }
        }
    }
    assert!(stored_groups > 1_000, "the play stores too little: {stored_groups}");
}
