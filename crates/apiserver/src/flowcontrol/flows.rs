//! What is configured: which flow schema a request is of, and the levels that share the server.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;
use mizzen_value::{Str, Value, value};

use super::concurrency_allocation::allocate_concurrency;
use super::level::{CATCH_ALL, EXEMPT, PriorityLevelConfiguration};
use super::priority_level::PriorityLevel;
use super::schema::{Distinguisher, FlowSchemaSpec};
use super::server_concurrency::ServerConcurrency;
use crate::authorization::Attributes;

/// All that is configured.
#[derive(Default)]
pub(super) struct FlowConfiguration {
    /// In the order in which they are asked.
    schemas: Vec<Arc<FlowSchema>>,
    /// Every level by name, with those that are used up.
    pub levels: BTreeMap<Str, Arc<PriorityLevel>>,
    /// The fraction of its target that each level got that is within its bounds, as bits.
    fraction: AtomicU64,
}

/// A flow schema at work.
pub(super) struct FlowSchema {
    name: Str,
    rules: FlowSchemaSpec,
    /// The level of its requests.
    pub level: Arc<PriorityLevel>,
    /// Where they are counted.
    pub counts_idx: usize,
    /// Whether there are queues among which flows could be told apart.
    is_queued: bool,
    /// What one of its requests may take of the level's seats.
    pub max_request_seats: Option<usize>,
    /// What answers say of it: the identity of the level, and its own.
    pub uids: [HeaderValue; 2],
}

impl FlowSchema {
    /// What tells the flow of a request from others, and a hash of both.
    pub(super) fn flow_distinguisher(&self, asked: &Attributes) -> (Distinguisher, u64) {
        if !self.is_queued {
            return (Distinguisher::None, 0);
        }
        let mut hasher = DefaultHasher::new();
        hasher.write(self.name.as_bytes());
        hasher.write_u8(0);
        hasher.write(self.rules.distinguisher.value_for(asked).as_bytes());
        (self.rules.distinguisher, hasher.finish())
    }
}

impl FlowConfiguration {
    /// The schema that a request is of.
    pub(super) fn find_schema(&self, asked: &Attributes) -> &Arc<FlowSchema> {
        let found = self
            .schemas
            .iter()
            .find(|schema| schema.rules.matches(asked));
        let fallback = || self.schemas.iter().find(|schema| schema.name == CATCH_ALL);
        found
            .or_else(fallback)
            .expect("the schema for everything else is always there")
    }

    /// What these objects configure on a server. Levels that are there already are kept, with
    /// everybody in them; those that are no longer configured until they are empty.
    pub(super) fn new<'a>(
        old: &FlowConfiguration,
        levels: impl IntoIterator<Item = &'a Value>,
        schemas: impl IntoIterator<Item = &'a Value>,
        house: &Arc<ServerConcurrency>,
    ) -> FlowConfiguration {
        let levels = levels
            .into_iter()
            .filter_map(PriorityLevelConfiguration::from_object);
        let mut configured: BTreeMap<Str, PriorityLevelConfiguration> =
            levels.map(|level| (level.name.clone(), level)).collect();
        let known: BTreeSet<Str> = configured.keys().cloned().collect();
        for name in [EXEMPT, CATCH_ALL] {
            configured
                .entry(name.into())
                .or_insert_with(|| PriorityLevelConfiguration::mandatory(name));
        }
        let leftovers = old
            .levels
            .iter()
            .filter(|(name, _)| !configured.contains_key(*name));
        let leftovers = leftovers.filter(|(_, room)| !room.inspect(|state| state.queues.is_idle()));
        let leftovers: Vec<PriorityLevelConfiguration> = leftovers
            .map(|(_, room)| room.inspect(|state| state.level.clone()))
            .collect();
        let all: i64 = configured
            .values()
            .chain(&leftovers)
            .map(|level| level.shares)
            .sum();
        let levels = configured.into_values().map(|level| (level, false));
        let levels = levels.chain(leftovers.into_iter().map(|level| (level, true)));
        let rooms = levels.map(|(level, is_leftover)| {
            let seats = level.seat_limits(house.limit, all);
            let room = old.levels.get(&level.name).cloned();
            let room = room.unwrap_or_else(|| {
                Arc::new(PriorityLevel::new(house.clone(), level.clone(), seats))
            });
            room.configure(level, seats, is_leftover);
            (room.name.clone(), room)
        });
        let mut flows = FlowConfiguration {
            levels: rooms.collect(),
            ..FlowConfiguration::default()
        };
        let sizes = flows
            .levels
            .values()
            .map(|room| room.inspect(|state| state.size()));
        let (room_to_wait, seats) = sizes.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        house.resize(room_to_wait, seats);
        flows.update_borrowing();
        flows.schemas = flows.build_schemas(schemas, &known);
        flows
    }

    /// Lets levels that need more borrow from those that need less.
    pub(super) fn update_borrowing(&self) {
        let parts: Vec<_> = self
            .levels
            .values()
            .map(|room| room.allocation_item())
            .collect();
        let Some((given, fraction)) = allocate_concurrency(&parts) else {
            return;
        };
        self.levels
            .values()
            .zip(given)
            .for_each(|(room, seats)| room.set_limit(seats));
        self.fraction.store(fraction.to_bits(), Ordering::Relaxed);
    }

    /// The fraction of its target that each level got at the last look, if it was within its bounds.
    pub(super) fn fair_fraction(&self) -> f64 {
        f64::from_bits(self.fraction.load(Ordering::Relaxed))
    }

    /// Whether a level that is no longer configured is empty.
    pub(super) fn has_idle_quiescing_level(&self) -> bool {
        self.levels
            .values()
            .any(|room| room.inspect(|state| state.is_quiescing && state.queues.is_idle()))
    }

    /// The schemas whose levels are `known`, and those that are always there.
    fn build_schemas<'a>(
        &self,
        schemas: impl IntoIterator<Item = &'a Value>,
        known: &BTreeSet<Str>,
    ) -> Vec<Arc<FlowSchema>> {
        let all = schemas
            .into_iter()
            .map(|object| (object, FlowSchemaSpec::read(object)));
        let mut sound: Vec<_> = all
            .filter(|(_, rules)| known.contains(&rules.level))
            .collect();
        sound.sort_by_key(|(object, rules)| (rules.precedence, Str::from(name(object))));
        let missing = |wanted: &str| sound.iter().all(|(object, _)| name(object) != wanted);
        let [first, last] =
            [EXEMPT, CATCH_ALL].map(|name| missing(name).then(|| mandatory_schema(name)));
        let read = |object: &Option<Value>| {
            object
                .as_ref()
                .map(|object| self.build_schema(object, FlowSchemaSpec::read(object)))
        };
        let sound = sound
            .into_iter()
            .map(|(object, rules)| self.build_schema(object, rules));
        read(&first)
            .into_iter()
            .chain(sound)
            .chain(read(&last))
            .map(Arc::new)
            .collect()
    }

    fn build_schema(&self, object: &Value, rules: FlowSchemaSpec) -> FlowSchema {
        let room = self
            .levels
            .get(&rules.level)
            .expect("schemas of unknown levels were left out")
            .clone();
        let (level, widest) =
            room.inspect(|state| (state.level.clone(), state.seats.max_request_seats));
        let name: Str = name(object).into();
        FlowSchema {
            counts_idx: room.counts_index(&name),
            is_queued: level.response.n_queues() > 1,
            max_request_seats: widest,
            uids: [level.uid.as_str(), object.at("metadata.uid").str()].map(header),
            name,
            rules,
            level: room,
        }
    }
}

fn name(object: &Value) -> &str {
    object.at("metadata.name").str()
}

fn header(uid: &str) -> HeaderValue {
    HeaderValue::from_str(uid).unwrap_or(HeaderValue::from_static(""))
}

/// A schema that is there even if nobody has written it: for those who may do everything, and for everybody else.
fn mandatory_schema(name: &str) -> Value {
    let groups: &[&str] = match name {
        EXEMPT => &["system:masters"],
        _ => &["system:unauthenticated", "system:authenticated"],
    };
    let subjects: Vec<Value> = groups
        .iter()
        .map(|group| value!({ "kind": "Group", "group": { "name": (*group) } }))
        .collect();
    value!({
        "metadata": { "name": name },
        "spec": {
            "priorityLevelConfiguration": { "name": name },
            "distinguisherMethod": { "type": "ByUser" },
            "rules": [{
                "subjects": (subjects),
                "resourceRules": [{
                    "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true
                }],
                "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }]
            }]
        }
    })
}
