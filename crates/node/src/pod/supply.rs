//! What does a pod need of the API before its containers can be made? The ConfigMaps and Secrets that it names.
//!
//! Somebody reads them when [`Supply::wants`] says so, and gives what was found to [`Supply::take`]. Volumes come first: without
//! one of them nothing is started. Then each container needs its environment.
//!
//! Invariant: pure. A pod that names nothing has no [`Supply`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::event::Note;
use mizzen_value::{Str, Value};

use super::held::pulled;
use super::inputs::mounted_objects;
use super::{Held, Pod, Told, Turn, spec};
use crate::moment::{Moment, earlier};
use crate::runtime::ContainerRuntime;

/// Kubernetes: how long a volume that cannot be had is left alone, at first and at most (exponential_backoff.go).
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(122);
/// Kubernetes: how long until a container that cannot be made is tried again (kubelet.go, `backOffPeriod`).
const PAUSE: Duration = Duration::from_secs(10);
/// Kubernetes: how often a kubelet looks whether volumes have changed (`syncFrequency`).
const SYNC: Duration = Duration::from_secs(60);
/// Every namespace has it, and every pod with a token names it: nothing waits for it, and it is read only for commands that read
/// files.
const AUTHORITIES: &str = "kube-root-ca.crt";

/// What can be needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sort {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
}

/// One object that a pod names.
pub type Need = (Sort, Str);

/// The values of an object, or why they are not known.
pub type Found = Result<Arc<Contents>, String>;

/// The values of a ConfigMap or a Secret, shared by all pods that name it.
#[derive(Debug, Default, PartialEq)]
pub struct Contents {
    /// The version of the object.
    pub version: Str,
    /// What can be a variable or a file.
    pub data: BTreeMap<Str, Str>,
    /// What can be a file only.
    pub binary: BTreeMap<Str, Str>,
}

/// What a pod needs, and what was found of it.
#[derive(Debug)]
pub struct Supply {
    needs: Vec<Need>,
    /// What was found at the last reading.
    pub found: BTreeMap<Need, Found>,
    /// When the last reading was asked for, and whether it is under way.
    asked: Moment,
    is_reading: bool,
    /// How often everything was read.
    n_readings: u32,
    /// Of which reading people have heard.
    told: u32,
    n_failures: u32,
    due: Option<Moment>,
}

impl Sort {
    /// How messages about what is missing call it.
    pub fn word(self) -> &'static str {
        match self {
            Sort::ConfigMap => "configmap",
            Sort::Secret => "secret",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Sort::ConfigMap => "ConfigMap",
            Sort::Secret => "Secret",
        }
    }

    /// What is wrong with a key of a volume that is not there.
    fn lacks_item(self, key: &str) -> String {
        match self {
            Sort::ConfigMap => format!("configmap references non-existent config key: {key}"),
            Sort::Secret => format!("references non-existent secret key: {key}"),
        }
    }

    /// That there is no such object.
    pub fn is_missing(self, name: &str) -> String {
        format!("{} {name:?} not found", self.word())
    }
}

impl Supply {
    /// What a pod that comes `now` needs; none if it names nothing.
    pub fn of(pod: &Value, now: Moment, runtime: &dyn ContainerRuntime) -> Option<Box<Supply>> {
        let of_volumes = mounted(pod).flat_map(sources);
        let of_containers = spec::containers(pod).flat_map(|(_, container)| references(container));
        let mut needs: BTreeSet<Need> = of_volumes
            .chain(of_containers)
            .map(|one| one.need())
            .collect();
        let read = spec::containers(pod).filter(|(_, container)| runtime.reads_files(container));
        needs.extend(read.flat_map(|(_, container)| mounted_objects(pod, container)));
        let supply = Supply {
            needs: needs.into_iter().collect(),
            found: BTreeMap::new(),
            asked: now,
            is_reading: false,
            n_readings: 0,
            told: 0,
            n_failures: 0,
            due: Some(now),
        };
        (!supply.needs.is_empty()).then(|| Box::new(supply))
    }

    /// What is to be read now; it is not asked for again before it was taken.
    pub fn wants(&mut self, now: Moment) -> Option<Vec<Need>> {
        self.due.filter(|due| *due <= now && !self.is_reading)?;
        (self.due, self.asked, self.is_reading) = (None, now, true);
        Some(self.needs.clone())
    }

    /// Takes what was found.
    pub fn take(&mut self, found: BTreeMap<Need, Found>) {
        self.found = found;
        self.is_reading = false;
        self.n_readings += 1;
    }

    /// Whether anything was read.
    pub fn is_read(&self) -> bool {
        self.n_readings > 0
    }

    /// Whether what was read is not older than `since`; if it is, it will be read again.
    fn is_fresh(&mut self, since: Moment, now: Moment) -> bool {
        let is_asked = self.asked >= since;
        let is_fresh = self.is_read() && !self.is_reading && is_asked;
        let will_be_fresh = self.is_reading && is_asked;
        if !is_fresh && !will_be_fresh {
            self.due = earlier(self.due, Some(now));
        }
        is_fresh
    }

    /// Whether everything was looked for that the environment of a container names.
    fn knows(&self, container: &Value) -> bool {
        references(container).all(|one| self.found.contains_key(&one.need()))
    }

    /// Takes over what a container needs that came later.
    pub fn add(&mut self, later: Supply) {
        let Supply {
            needs: mut added,
            due,
            ..
        } = later;
        added.retain(|need| !self.needs.contains(need));
        if !added.is_empty() {
            self.needs.append(&mut added);
            self.due = earlier(self.due, due);
        }
    }

    /// Nothing is read until something asks for it.
    pub fn rest(&mut self) {
        self.due = None;
    }

    /// Files are made of what was read: it is read again in time.
    pub fn keep_fresh(&mut self) {
        if !self.is_reading {
            self.due = earlier(self.due, Some(self.asked + SYNC));
        }
    }

    /// Whether the volumes of a pod can be made of what was read.
    pub fn has_volumes(&self, pod: &Value) -> bool {
        self.is_read() && self.volume_problems(pod).is_empty()
    }

    /// What speaks against the volumes of a pod, one after the other.
    fn volume_problems(&self, pod: &Value) -> Vec<(Str, String)> {
        let problem = |volume: &Value| {
            let problems: Vec<String> = sources(volume)
                .filter_map(|source| self.problem(&source, pod))
                .collect();
            let text = match problems.as_slice() {
                [] => return None,
                [one] => one.clone(),
                several => format!("[{}]", several.join(", ")),
            };
            Some((volume["name"].str().into(), text))
        };
        mounted(pod).filter_map(problem).collect()
    }

    fn problem(&self, reference: &Reference, pod: &Value) -> Option<String> {
        let optional = reference.object["optional"].bool();
        let need = reference.need();
        let contents = match self.found.get(&need) {
            Some(Ok(contents)) => contents,
            Some(Err(why)) if optional && *why == need.0.is_missing(&need.1) => return None,
            Some(Err(why)) => return Some(why.clone()),
            // A volume of a container that came later than what was read.
            None => return None,
        };
        let has = |key: &str| {
            contents.data.contains_key(key)
                || reference.of_volume && contents.binary.contains_key(key)
        };
        let missing = |key: &&str| !optional && !has(key);
        match reference.keys().into_iter().find(missing)? {
            key if reference.of_volume => Some(need.0.lacks_item(key)),
            key => {
                let (kind, namespace) = (need.0.kind(), pod["metadata"]["namespace"].str());
                Some(format!(
                    "couldn't find key {key} in {kind} {namespace}/{}",
                    need.1
                ))
            }
        }
    }
}

impl Pod {
    /// Whether its volumes are there, as far as it needs any.
    pub(super) fn is_mounted(&mut self, turn: &mut Turn) -> bool {
        let Some(supply) = self.supply.as_deref_mut() else {
            return true;
        };
        if self.containers.iter().any(|held| held.n_starts > 0) {
            return true;
        }
        let problems = supply.volume_problems(turn.pod);
        if supply.n_readings > supply.told && !problems.is_empty() {
            let wait = FIRST_WAIT
                .saturating_mul(1 << supply.n_failures.min(16))
                .min(LONGEST_WAIT);
            supply.due = Some(turn.now + wait);
            (supply.told, supply.n_failures) = (supply.n_readings, supply.n_failures + 1);
            for (volume, problem) in &problems {
                let said = format!("MountVolume.SetUp failed for volume \"{volume}\" : {problem}");
                turn.notes.push(Told {
                    path: String::new(),
                    note: Note::warning("FailedMount", "", said),
                });
            }
        }
        supply.n_readings > 0 && problems.is_empty()
    }

    /// When what it needs is read again.
    pub(super) fn reads_at(&self) -> Option<Moment> {
        self.supply.as_ref().and_then(|supply| supply.due)
    }
}

/// Why a container cannot be made, and after which reading people heard of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Lack {
    /// For people.
    pub message: String,
    told: u32,
}

impl Held {
    /// Whether its environment is there, as far as it needs any, and was read after its last life ended.
    pub(super) fn has_environment(
        &mut self,
        spec: &Value,
        supply: Option<&mut Supply>,
        turn: &mut Turn,
    ) -> bool {
        let Some(supply) = supply.filter(|_| references(spec).next().is_some()) else {
            return true;
        };
        let ended = self.end().and_then(|end| end.finished).unwrap_or_default();
        if !supply.knows(spec) || !supply.is_fresh(ended, turn.now) {
            return false;
        }
        let problem = references(spec).find_map(|one| supply.problem(&one, turn.pod));
        let Some(message) = problem else {
            self.lack = None;
            return true;
        };
        if self
            .lack
            .as_ref()
            .is_none_or(|lack| lack.told < supply.n_readings)
        {
            supply.due = earlier(supply.due, Some(turn.now + PAUSE));
            turn.tell(self, pulled(spec));
            turn.tell(
                self,
                Note::warning("Failed", "", format!("Error: {message}")),
            );
            self.lack = Some(Box::new(Lack {
                message,
                told: supply.n_readings,
            }));
        }
        false
    }
}

/// A place of a pod at which a ConfigMap or a Secret is named.
struct Reference<'a> {
    sort: Sort,
    object: &'a Value,
    name: &'a str,
    of_volume: bool,
}

impl<'a> Reference<'a> {
    fn need(&self) -> Need {
        (self.sort, self.name.into())
    }

    /// The keys that must be there.
    fn keys(&self) -> Vec<&'a str> {
        match self.of_volume {
            true => self.object["items"]
                .list()
                .iter()
                .map(|item| item["key"].str())
                .collect(),
            false => self.object["key"].as_str().into_iter().collect(),
        }
    }
}

/// The volumes that containers mount; others are never looked at.
fn mounted(pod: &Value) -> impl Iterator<Item = &Value> {
    let is_mounted = |volume: &&Value| {
        let mut mounts =
            spec::containers(pod).flat_map(|(_, container)| container["volumeMounts"].list());
        mounts.any(|mount| mount["name"] == volume["name"])
    };
    pod["spec"]["volumes"].list().iter().filter(is_mounted)
}

/// What a volume is made of.
fn sources(volume: &Value) -> impl Iterator<Item = Reference<'_>> {
    let projected = volume["projected"]["sources"].list().iter();
    let own = [(&volume["configMap"], &volume["secret"], "secretName")];
    let parts = projected.map(|source| (&source["configMap"], &source["secret"], "name"));
    own.into_iter()
        .chain(parts)
        .flat_map(|(config, secret, name)| {
            let both = [
                (Sort::ConfigMap, config, "name"),
                (Sort::Secret, secret, name),
            ]
            .into_iter();
            both.map(|(sort, object, name)| Reference {
                sort,
                object,
                name: object[name].str(),
                of_volume: true,
            })
            .filter(|one| !one.name.is_empty() && one.name != AUTHORITIES)
        })
}

/// What a container's environment is made of, in the order in which a kubelet looks.
fn references(container: &Value) -> impl Iterator<Item = Reference<'_>> {
    let whole = container["envFrom"].list().iter();
    let whole = whole.map(|from| (&from["configMapRef"], &from["secretRef"]));
    let single = container["env"].list().iter().map(|one| &one["valueFrom"]);
    let single = single.map(|from| (&from["configMapKeyRef"], &from["secretKeyRef"]));
    whole.chain(single).flat_map(|(config, secret)| {
        let both = [(Sort::ConfigMap, config), (Sort::Secret, secret)].into_iter();
        both.filter(|(_, object)| !object["name"].is_empty())
            .map(|(sort, object)| Reference {
                sort,
                object,
                name: object["name"].str(),
                of_volume: false,
            })
    })
}
