//! The digested configuration: which flow schema a request matches, and the priority levels.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;
use mizzen_request::Attributes;
use mizzen_value::{Str, Value, value};

use super::concurrency_allocation::allocate_concurrency;
use super::level::{CATCH_ALL, EXEMPT, PriorityLevelConfiguration};
use super::priority_level::PriorityLevel;
use super::schema::{Distinguisher, FlowSchemaSpec};
use super::server_concurrency::ServerConcurrency;

/// Flow schemas and priority levels, digested together.
#[derive(Default)]
pub(super) struct FlowConfiguration {
    /// In matching order.
    schemas: Vec<Arc<FlowSchema>>,
    /// By name, quiescing ones included.
    pub levels: BTreeMap<Str, Arc<PriorityLevel>>,
    /// The fair fraction of the last adjustment, as bits.
    fraction: AtomicU64,
}

/// A flow schema with its level.
pub(super) struct FlowSchema {
    name: Str,
    rules: FlowSchemaSpec,
    pub level: Arc<PriorityLevel>,
    /// The index of its counts.
    pub counts_idx: usize,
    /// Whether the level has queues, so that flows matter.
    is_queued: bool,
    /// The maximum seats of one request.
    pub max_request_seats: Option<usize>,
    /// The UIDs in response headers: of the level, and of the schema.
    pub uids: [HeaderValue; 2],
}

impl FlowSchema {
    /// A mandatory schema, used while it is not stored: of `system:masters`, and of all other requests.
    fn mandatory(name: &str) -> Value {
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

    /// How the flow of a request is distinguished, and the flow's hash.
    pub(super) fn flow_distinguisher(&self, attributes: &Attributes) -> (Distinguisher, u64) {
        if !self.is_queued {
            return (Distinguisher::None, 0);
        }
        let mut hasher = DefaultHasher::new();
        hasher.write(self.name.as_bytes());
        hasher.write_u8(0);
        hasher.write(self.rules.distinguisher.value_for(attributes).as_bytes());
        (self.rules.distinguisher, hasher.finish())
    }
}

impl FlowConfiguration {
    /// The first schema that matches a request.
    pub(super) fn find_schema(&self, attributes: &Attributes) -> &Arc<FlowSchema> {
        let found = self
            .schemas
            .iter()
            .find(|schema| schema.rules.matches(attributes));
        let fallback = || self.schemas.iter().find(|schema| schema.name == CATCH_ALL);
        found
            .or_else(fallback)
            .expect("the catch-all schema always exists")
    }

    /// Digests configuration objects. Existing levels are kept with their requests; those that are
    /// no longer configured quiesce until they are idle.
    pub(super) fn new<'a>(
        old: &FlowConfiguration,
        levels: impl IntoIterator<Item = &'a Value>,
        schemas: impl IntoIterator<Item = &'a Value>,
        server: &Arc<ServerConcurrency>,
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
        let quiescing = old
            .levels
            .iter()
            .filter(|(name, _)| !configured.contains_key(*name));
        let quiescing = quiescing
            .filter(|(_, priority_level)| !priority_level.inspect(|state| state.queues.is_idle()));
        let quiescing: Vec<PriorityLevelConfiguration> = quiescing
            .map(|(_, priority_level)| priority_level.inspect(|state| state.level.clone()))
            .collect();
        let all: i64 = configured
            .values()
            .chain(&quiescing)
            .map(|level| level.shares)
            .sum();
        let levels = configured.into_values().map(|level| (level, false));
        let levels = levels.chain(quiescing.into_iter().map(|level| (level, true)));
        let priority_levels = levels.map(|(level, is_quiescing)| {
            let seats = level.seat_limits(server.limit, all);
            let priority_level = old.levels.get(&level.name).cloned();
            let priority_level = priority_level.unwrap_or_else(|| {
                Arc::new(PriorityLevel::new(server.clone(), level.clone(), seats))
            });
            priority_level.configure(level, seats, is_quiescing);
            (priority_level.name.clone(), priority_level)
        });
        let mut flows = FlowConfiguration {
            levels: priority_levels.collect(),
            ..FlowConfiguration::default()
        };
        let sizes = flows
            .levels
            .values()
            .map(|priority_level| priority_level.inspect(|state| state.size()));
        let (max_waiting, seats) = sizes.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        server.resize(max_waiting, seats);
        flows.update_borrowing();
        flows.schemas = flows.build_schemas(schemas, &known);
        flows
    }

    /// Recomputes the concurrency limits from the demand.
    pub(super) fn update_borrowing(&self) {
        let items: Vec<_> = self
            .levels
            .values()
            .map(|priority_level| priority_level.allocation_item())
            .collect();
        let Some((limits, fraction)) = allocate_concurrency(&items) else {
            return;
        };
        self.levels
            .values()
            .zip(limits)
            .for_each(|(priority_level, seats)| priority_level.set_limit(seats));
        self.fraction.store(fraction.to_bits(), Ordering::Relaxed);
    }

    /// The fair fraction of the last adjustment.
    pub(super) fn fair_fraction(&self) -> f64 {
        f64::from_bits(self.fraction.load(Ordering::Relaxed))
    }

    /// Whether a quiescing level is idle.
    pub(super) fn has_idle_quiescing_level(&self) -> bool {
        self.levels.values().any(|priority_level| {
            priority_level.inspect(|state| state.is_quiescing && state.queues.is_idle())
        })
    }

    /// The schemas whose levels exist, and the mandatory ones, in matching order.
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
            [EXEMPT, CATCH_ALL].map(|name| missing(name).then(|| FlowSchema::mandatory(name)));
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
        let priority_level = self
            .levels
            .get(&rules.level)
            .expect("schemas without a level were filtered out")
            .clone();
        let (level, widest) =
            priority_level.inspect(|state| (state.level.clone(), state.seats.max_request_seats));
        let name: Str = name(object).into();
        let header = |uid: &str| HeaderValue::from_str(uid).unwrap_or(HeaderValue::from_static(""));
        FlowSchema {
            counts_idx: priority_level.counts_index(&name),
            is_queued: level.response.n_queues() > 1,
            max_request_seats: widest,
            uids: [level.uid.as_str(), object.at("metadata.uid").str()].map(header),
            name,
            rules,
            level: priority_level,
        }
    }
}

fn name(object: &Value) -> &str {
    object.at("metadata.name").str()
}
