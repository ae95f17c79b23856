//! Round trips of arbitrary objects, for tests of an author's kinds.

use std::ops::Range;

use mizzen_object::schema::canonical;
use mizzen_object::{Kind, default, round_trip};
use mizzen_value::{Value, json};

use crate::Server;

/// Which round trips are checked.
///
/// ```
/// use std::sync::Arc;
/// use mizzen_apiserver::Server;
/// use mizzen_apiserver::clock::{SystemRandom, WallClock};
/// use mizzen_apiserver::extend::RoundTrip;
/// use mizzen_registry::{Registry, Store};
///
/// const KINDS: &str = "
/// group example.com
/// version v1
/// kind Thing
///   names things thing
///   scope Cluster
///   verbs get list
///   list ThingList
/// type Thing
///   1 metadata !meta/v1.ObjectMeta
///   2 size int32
/// ";
///
/// let store = Store::in_memory(Default::default());
/// let registry = Registry::new(store, Arc::new(WallClock), Arc::new(SystemRandom));
/// let server = Server::builder(registry).kinds("things.kinds", KINDS).build().unwrap();
/// server.check_round_trips(RoundTrip::default()).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct RoundTrip {
    /// The seeds: each makes one object of each kind.
    pub seeds: Range<u64>,
    /// Makes objects equal whose difference another version cannot express, such as the order of a list.
    pub normalize: fn(&Kind, &mut Value),
}

impl Default for RoundTrip {
    fn default() -> RoundTrip {
        RoundTrip {
            seeds: 0..100,
            normalize: |_, _| {},
        }
    }
}

/// An object that does not survive.
///
/// ```
/// use mizzen_apiserver::Server;
/// use mizzen_apiserver::extend::RoundTrip;
/// use mizzen_object::{GroupVersionKind, Hooks};
/// use mizzen_value::Value;
/// # use std::sync::Arc;
/// # use mizzen_apiserver::clock::{SystemRandom, WallClock};
/// # use mizzen_registry::{Registry, Store};
/// # let registry = Registry::new(Store::in_memory(Default::default()), Arc::new(WallClock), Arc::new(SystemRandom));
///
/// /// The size is doubled with every read: defaults must be set once.
/// struct Doubled;
///
/// impl Hooks for Doubled {
///     fn default(&self, thing: &mut Value) {
///         let size = thing["size"].int();
///         thing.set("size", size + 1);
///     }
/// }
///
/// # const THING: &str = "
/// # metadata: {name: things.example.com}
/// # spec:
/// #   group: example.com
/// #   names: {plural: things, kind: Thing}
/// #   scope: Cluster
/// #   versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {size: {type: integer}}}}}]
/// # ";
///
/// let thing = GroupVersionKind::new("example.com", "v1", "Thing");
/// let server = Server::builder(registry).definition(THING).hooks(thing, Doubled).build()?;
/// let error = server.check_round_trips(RoundTrip::default()).unwrap_err();
/// assert_eq!((error.seed, &*error.kind), (0, "example.com/v1, Kind=Thing"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[error("seed {seed}, {kind}: {problem}")]
pub struct RoundTripError {
    /// The seed that makes the object.
    pub seed: u64,
    /// The kind, as text.
    pub kind: String,
    /// What is lost.
    pub problem: String,
}

impl Server {
    /// Checks arbitrary objects of every kind: JSON, YAML and protobuf are read as they were written, defaults are set once,
    /// and an object survives the conversion to its storage version and back.
    pub fn check_round_trips(&self, round_trip: RoundTrip) -> Result<(), RoundTripError> {
        let RoundTrip { seeds, normalize } = round_trip;
        for seed in seeds {
            for served in self.0.catalog.published() {
                let kind = &served.kind;
                let object = match &served.schema {
                    Some(schema) => round_trip::arbitrary_by_schema(schema, seed),
                    None => round_trip::arbitrary(&kind.root, seed),
                };
                check(kind, object, normalize).map_err(|problem| RoundTripError {
                    seed,
                    kind: kind.gvk.to_string(),
                    problem,
                })?;
            }
        }
        Ok(())
    }
}

fn check(kind: &Kind, mut object: Value, normalize: fn(&Kind, &mut Value)) -> Result<(), String> {
    let has_protobuf = !kind.rules.loose && kind.root.fields().iter().any(|field| field.tag > 0);
    if has_protobuf {
        round_trip::check_protobuf(&kind.root, &object)?;
    }
    object.set("apiVersion", kind.gvk.api_version());
    object.set("kind", &kind.gvk.kind);
    canonical(&kind.root, &mut object);
    round_trip::check_text(&kind.root, &object)?;

    let set_defaults = |object: &mut Value| {
        default::apply(&kind.root, object);
        kind.hooks.default(object);
        canonical(&kind.root, object);
    };
    set_defaults(&mut object);
    let mut again = object.clone();
    set_defaults(&mut again);
    equal("defaults set twice", &object, &again)?;

    let Some(stored) = &kind.stored else {
        return Ok(());
    };
    let mut converted = object.clone();
    kind.hooks.to_stored(&mut converted);
    converted.set("apiVersion", stored.api_version());
    kind.hooks.from_stored(&mut converted);
    converted.set("apiVersion", kind.gvk.api_version());
    canonical(&kind.root, &mut converted);
    normalize(kind, &mut object);
    normalize(kind, &mut converted);
    equal("the storage version and back", &object, &converted)
}

fn equal(what: &str, before: &Value, after: &Value) -> Result<(), String> {
    if before == after {
        return Ok(());
    }
    let [before, after] = [before, after].map(json::to_string);
    Err(format!("{what}: {before} becomes {after}"))
}
