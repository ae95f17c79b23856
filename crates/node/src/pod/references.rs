//! The ConfigMaps, Secrets and claims that a pod references.
//!
//! The agent reads the objects that [`ReferencedObjects::objects_to_read`] returns and passes them
//! to [`ReferencedObjects::store`]. Volumes come first: nothing starts until all are there. Then
//! each container needs its environment.
//!
//! Invariant: pure. A pod without references has no [`ReferencedObjects`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mizzen_sdk::event::Note;
use mizzen_value::{Str, Value, json};

use super::claims::{ReadClaim, cannot_process, claim_problem, claimed_volumes};
use super::inputs::{mounted_objects, token_names};
use super::{ContainerState, PodEvent, PodState, SyncContext, spec};
use crate::moment::{Moment, earlier};
use crate::runtime::ContainerRuntime;

/// Kubernetes: the initial and the maximum back-off of a volume (exponential_backoff.go).
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(122);
/// Kubernetes: when a container that cannot be created is retried (kubelet.go, `backOffPeriod`).
const PAUSE: Duration = Duration::from_secs(10);
/// Kubernetes: how often volumes are synced (`syncFrequency`).
const SYNC: Duration = Duration::from_secs(60);
/// Every namespace has it, and every pod with a token references it. Nothing waits for it, and it
/// is read only for commands that read files.
const ROOT_CA: &str = "kube-root-ca.crt";

/// The kind of a referenced object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReferenceKind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
    /// A token of the pod's service account.
    Token,
    /// A PersistentVolumeClaim.
    Claim,
}

/// A reference to an object.
pub type ObjectKey = (ReferenceKind, Str);

/// The content of an object, or why it could not be read.
pub type Found = Result<Arc<Contents>, String>;

/// The content of a ConfigMap or a Secret, shared by all pods that reference it.
#[derive(Debug, Default, PartialEq)]
pub struct Contents {
    /// The resource version.
    pub version: Str,
    /// The name of a Secret.
    pub name: Str,
    /// The UID of a Secret.
    pub uid: Str,
    /// The type of a Secret.
    pub kind: Str,
    /// Values for variables and files.
    pub data: BTreeMap<Str, Str>,
    /// Values for files only.
    pub binary: BTreeMap<Str, Str>,
    /// The values that are not text, as they are.
    pub raw: BTreeMap<Str, Bytes>,
    /// The claim, if it is one.
    pub claim: Option<ReadClaim>,
    /// Whether it will not change: an immutable object, or a claim that is bound.
    pub is_final: bool,
}

/// The references of a pod, and the objects that were read.
#[derive(Debug)]
pub struct ReferencedObjects {
    needs: Vec<ObjectKey>,
    /// The objects of the last read.
    pub found: BTreeMap<ObjectKey, Found>,
    /// When the last read was requested, and whether it is in progress.
    requested_at: Moment,
    is_reading: bool,
    /// The number of reads.
    n_readings: u32,
    /// The read whose problems were reported.
    n_reported: u32,
    n_failures: u32,
    /// The read whose missing pull secrets were reported.
    n_secrets_reported: u32,
    due: Option<Moment>,
    /// Whether processes read the files: then tokens and the root CA are needed, too.
    is_complete: bool,
    /// The hash of the pod's labels and annotations at the last read.
    metadata: u64,
}

impl ReferenceKind {
    /// Its name in messages about missing objects.
    pub fn word(self) -> &'static str {
        match self {
            ReferenceKind::ConfigMap => "configmap",
            ReferenceKind::Secret => "secret",
            ReferenceKind::Token => "token",
            ReferenceKind::Claim => "persistentvolumeclaim",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            ReferenceKind::ConfigMap => "ConfigMap",
            ReferenceKind::Secret => "Secret",
            ReferenceKind::Token => "Token",
            ReferenceKind::Claim => "PersistentVolumeClaim",
        }
    }

    /// The message about a missing key of a volume.
    fn lacks_item(self, key: &str) -> String {
        match self {
            ReferenceKind::ConfigMap => {
                format!("configmap references non-existent config key: {key}")
            }
            _ => {
                format!("references non-existent secret key: {key}")
            }
        }
    }

    /// The message about a missing object.
    pub fn is_missing(self, name: &str) -> String {
        format!("{} {name:?} not found", self.word())
    }
}

impl ReferencedObjects {
    /// The references of a new pod; `None` if it has none.
    pub fn from_pod(
        pod: &Value,
        now: Moment,
        runtime: &dyn ContainerRuntime,
    ) -> Option<Box<ReferencedObjects>> {
        let of_volumes = mounted(pod)
            .flat_map(sources)
            .filter(|source| source.name != ROOT_CA);
        let of_containers = spec::containers(pod).flat_map(|(_, container)| references(container));
        let mut needs: BTreeSet<ObjectKey> = of_volumes
            .chain(of_containers)
            .map(|one| one.need())
            .collect();
        let read = spec::containers(pod).filter(|(_, container)| runtime.reads_files(container));
        needs.extend(read.flat_map(|(_, container)| mounted_objects(pod, container)));
        if runtime.runs_processes() {
            needs.extend(token_names(pod).map(|name| (ReferenceKind::Token, name)));
            needs.extend(claimed_volumes(pod).map(|(_, name)| (ReferenceKind::Claim, name)));
            needs.extend(pull_secrets(pod));
        }
        let referenced = ReferencedObjects {
            needs: needs.into_iter().collect(),
            found: BTreeMap::new(),
            requested_at: now,
            is_reading: false,
            n_readings: 0,
            n_reported: 0,
            n_failures: 0,
            n_secrets_reported: 0,
            due: Some(now),
            is_complete: runtime.runs_processes(),
            metadata: hash_metadata(pod),
        };
        (!referenced.needs.is_empty()).then(|| Box::new(referenced))
    }

    /// The objects to read now; not returned again before [`ReferencedObjects::store`].
    pub fn objects_to_read(&mut self, now: Moment) -> Option<Vec<ObjectKey>> {
        self.due.filter(|due| *due <= now && !self.is_reading)?;
        (self.due, self.requested_at, self.is_reading) = (None, now, true);
        let open = self.needs.iter().filter(|need| !self.is_final(need));
        Some(open.cloned().collect())
    }

    /// Whether an object was read that will not change. Kubernetes: immutable objects are not
    /// watched (watch_based_manager.go).
    fn is_final(&self, need: &ObjectKey) -> bool {
        let found = self.found.get(need);
        found.is_some_and(|found| found.as_ref().is_ok_and(|contents| contents.is_final))
    }

    /// Stores the objects that were read. What could not be read now stays as it is known.
    pub fn store(&mut self, found: BTreeMap<ObjectKey, Found>) {
        for (need, found) in found {
            let known = self.found.get(&need);
            if is_known(&need, &found) || !known.is_some_and(|known| is_known(&need, known)) {
                self.found.insert(need, found);
            }
        }
        self.is_reading = false;
        self.n_readings += 1;
    }

    /// Whether anything was read.
    pub fn is_read(&self) -> bool {
        self.n_readings > 0
    }

    /// Whether the last read is not older than `since`; if it is, another one is requested.
    fn is_fresh(&mut self, since: Moment, now: Moment) -> bool {
        let is_requested = self.requested_at >= since;
        let is_fresh = self.is_read() && !self.is_reading && is_requested;
        let will_be_fresh = self.is_reading && is_requested;
        if !is_fresh && !will_be_fresh {
            self.due = earlier(self.due, Some(now));
        }
        is_fresh
    }

    /// Whether all references of a container's environment were read.
    fn knows(&self, container: &Value) -> bool {
        references(container).all(|one| self.found.contains_key(&one.need()))
    }

    /// The `imagePullSecrets` of a pod that exist, if they were read after `since`.
    pub fn pull_secrets(
        &mut self,
        sync: &mut SyncContext,
        since: Moment,
    ) -> Option<Vec<Arc<Contents>>> {
        let names: Vec<ObjectKey> = pull_secrets(sync.pod).collect();
        if names.is_empty() {
            return Some(Vec::new());
        }
        let is_known = names.iter().all(|name| self.found.contains_key(name));
        if !self.is_fresh(since, sync.now) || !is_known {
            return None;
        }
        let found = |name: &ObjectKey| self.found.get(name)?.as_ref().ok().cloned();
        let missing = names.iter().filter(|name| found(name).is_none());
        let missing: Vec<&str> = missing.map(|(_, name)| name.as_str()).collect();
        if !missing.is_empty() && self.n_secrets_reported < self.n_readings {
            self.n_secrets_reported = self.n_readings;
            let said = format!(
                "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                missing.join(", ")
            );
            sync.events.push(PodEvent {
                path: String::new(),
                note: Note::warning("FailedToRetrieveImagePullSecret", "", said),
            });
        }
        Some(names.iter().filter_map(found).collect())
    }

    /// Adds the references of a container that was added.
    pub fn add(&mut self, later: ReferencedObjects) {
        let ReferencedObjects {
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

    /// Reads nothing until it is requested.
    pub fn rest(&mut self) {
        self.due = None;
    }

    /// Schedules the next read, because files depend on it.
    pub fn keep_fresh(&mut self) {
        if !self.is_reading && !self.needs.iter().all(|need| self.is_final(need)) {
            self.due = earlier(self.due, Some(self.requested_at + SYNC));
        }
    }

    /// Schedules a read at once if labels or annotations of the pod have changed. Kubernetes: a
    /// change of the pod remounts its volumes (desired_state_of_world_populator.go).
    pub fn note_metadata(&mut self, pod: &Value, now: Moment) {
        let metadata = hash_metadata(pod);
        if self.is_complete && std::mem::replace(&mut self.metadata, metadata) != metadata {
            self.due = earlier(self.due, Some(now));
        }
    }

    /// Whether the volumes of a pod can be set up.
    pub fn has_volumes(&self, pod: &Value) -> bool {
        self.is_read()
            && self.volume_problems(pod).is_empty()
            && self.claim_problems(pod).is_empty()
    }

    /// The problems of a pod's claims, by volume.
    fn claim_problems(&self, pod: &Value) -> Vec<(Str, String)> {
        let problem = |(volume, name): (&Value, Str)| {
            let found = self.found.get(&(ReferenceKind::Claim, name.clone()))?;
            let why = claim_problem(pod, volume, &name, found)?;
            Some((volume["name"].str().into(), why))
        };
        match self.is_complete {
            true => claimed_volumes(pod).filter_map(problem).collect(),
            false => Vec::new(),
        }
    }

    /// The messages about volumes that cannot be set up.
    fn mount_failures(&self, pod: &Value) -> Vec<String> {
        let mut failures = self.set_up_failures(pod);
        let (volumes, reasons): (Vec<Str>, Vec<String>) =
            self.claim_problems(pod).into_iter().unzip();
        if !volumes.is_empty() {
            failures.push(cannot_process(&volumes, &reasons.join("; ")));
        }
        failures
    }

    /// The messages about volumes whose objects have a problem.
    fn set_up_failures(&self, pod: &Value) -> Vec<String> {
        let problems = self.volume_problems(pod).into_iter();
        let message =
            |(volume, why)| format!("MountVolume.SetUp failed for volume \"{volume}\" : {why}");
        problems.map(message).collect()
    }

    /// The problems of a pod's volumes.
    fn volume_problems(&self, pod: &Value) -> Vec<(Str, String)> {
        let problem = |volume: &Value| {
            let mut problems: Vec<String> = sources(volume)
                .filter(|source| self.is_complete || source.name != ROOT_CA)
                .filter_map(|source| self.problem(&source, pod))
                .collect();
            if self.is_complete && !volume["projected"].is_null() {
                let tokens = self
                    .found
                    .iter()
                    .filter(|((kind, _), _)| *kind == ReferenceKind::Token);
                problems.extend(tokens.filter_map(|(_, found)| found.as_ref().err().cloned()));
            }
            let text = match problems.as_slice() {
                [] => return None,
                [one] => one.clone(),
                several => format!("[{}]", several.join(", ")),
            };
            Some((volume["name"].str().into(), text))
        };
        mounted(pod).filter_map(problem).collect()
    }

    fn problem(&self, reference: &ObjectReference, pod: &Value) -> Option<String> {
        let optional = reference.object["optional"].bool();
        let need = reference.need();
        let contents = match self.found.get(&need) {
            Some(Ok(contents)) => contents,
            Some(Err(why)) if optional && *why == need.0.is_missing(&need.1) => return None,
            Some(Err(why)) => return Some(why.clone()),
            // A volume of a container that was added after the last read.
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

impl PodState {
    /// Whether its volumes are set up. Reports those that cannot be, also while containers run (volumemanager/reconciler:
    /// a volume is mounted again when its objects may have changed).
    pub(super) fn volumes_ready(&mut self, sync: &mut SyncContext) -> bool {
        let Some(referenced) = self.referenced.as_deref_mut() else {
            return true;
        };
        // A new sandbox has its volumes set up again.
        let has_begun = self.containers.iter().any(|it| it.n_starts > 0);
        let are_set_up = has_begun && sync.runtime.has_sandbox(sync.pod);
        let failures = match are_set_up {
            // Files that follow their objects cannot, but are there.
            true if referenced.is_complete => referenced.set_up_failures(sync.pod),
            true => Vec::new(),
            false => referenced.mount_failures(sync.pod),
        };
        if failures.is_empty() {
            referenced.n_failures = 0;
        } else if referenced.n_readings > referenced.n_reported {
            // Kubernetes: a pod whose claims cannot be processed is synced again after a pause.
            let longest = match referenced.claim_problems(sync.pod).is_empty() {
                true => LONGEST_WAIT,
                false => PAUSE,
            };
            let wait = FIRST_WAIT
                .saturating_mul(1 << referenced.n_failures.min(16))
                .min(longest);
            referenced.due = Some(sync.now + wait);
            (referenced.n_reported, referenced.n_failures) =
                (referenced.n_readings, referenced.n_failures + 1);
            sync.events.extend(failures.iter().map(|message| PodEvent {
                path: String::new(),
                note: Note::warning("FailedMount", "", message.as_str()),
            }));
        }
        are_set_up || referenced.n_readings > 0 && failures.is_empty()
    }

    /// When the next read is due.
    pub(super) fn next_read(&self) -> Option<Moment> {
        self.referenced
            .as_ref()
            .and_then(|referenced| referenced.due)
    }
}

/// Why a container cannot be created.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateConfigError {
    /// `CreateContainerConfigError`, or the reason of the runtime.
    pub reason: Str,
    /// The message.
    pub message: String,
    /// The read after which it was reported.
    n_reported: u32,
    /// When the creation is retried, if nothing else does.
    pub(super) retry: Option<Moment>,
}

impl CreateConfigError {
    /// A failure of the runtime. Kubernetes: it is retried as a container with an invalid
    /// configuration is.
    pub(super) fn of_runtime(reason: Str, message: String, now: Moment) -> CreateConfigError {
        CreateConfigError {
            reason,
            message,
            n_reported: 0,
            retry: Some(now + PAUSE),
        }
    }
}

impl ContainerState {
    /// Whether its environment was read after its last exit, and is complete.
    pub(super) fn environment_ready(
        &mut self,
        spec: &Value,
        referenced: Option<&mut ReferencedObjects>,
        sync: &mut SyncContext,
    ) -> bool {
        let retry = self.config_error.as_ref().and_then(|error| error.retry);
        if let Some(retry) = retry.filter(|retry| sync.now < *retry) {
            self.changes_at = earlier(self.changes_at, Some(retry));
            return false;
        }
        let Some(referenced) = referenced.filter(|_| references(spec).next().is_some()) else {
            self.config_error = None;
            return true;
        };
        let ended = self.end().and_then(|end| end.finished).unwrap_or_default();
        if !referenced.knows(spec) || !referenced.is_fresh(ended, sync.now) {
            return false;
        }
        let problem = references(spec).find_map(|one| referenced.problem(&one, sync.pod));
        let Some(message) = problem else {
            self.config_error = None;
            return true;
        };
        if self
            .config_error
            .as_ref()
            .is_none_or(|config_error| config_error.n_reported < referenced.n_readings)
        {
            referenced.due = earlier(referenced.due, Some(sync.now + PAUSE));
            self.record_pulled(spec, sync);
            sync.record(
                self,
                Note::warning("Failed", "", format!("Error: {message}")),
            );
            self.config_error = Some(Box::new(CreateConfigError {
                reason: Str::new_static("CreateContainerConfigError"),
                message,
                n_reported: referenced.n_readings,
                retry: None,
            }));
        }
        false
    }
}

/// A reference to a ConfigMap or a Secret.
struct ObjectReference<'a> {
    sort: ReferenceKind,
    object: &'a Value,
    name: &'a str,
    of_volume: bool,
}

impl<'a> ObjectReference<'a> {
    fn need(&self) -> ObjectKey {
        (self.sort, self.name.into())
    }

    /// The keys that must exist.
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

/// Whether an object was read, or is known not to exist.
fn is_known((kind, name): &ObjectKey, found: &Found) -> bool {
    match found {
        Ok(_) => true,
        // A claim that cannot be read is reported.
        Err(_) if *kind == ReferenceKind::Claim => true,
        Err(why) => *why == kind.is_missing(name),
    }
}

fn hash_metadata(pod: &Value) -> u64 {
    let metadata = &pod["metadata"];
    let parts = ["labels", "annotations"].map(|part| json::to_string(&metadata[part]));
    crate::digest(&parts.join(","))
}

/// The volumes that containers mount; the rest is ignored.
fn mounted(pod: &Value) -> impl Iterator<Item = &Value> {
    let volumes_ready = |volume: &&Value| {
        let mut mounts =
            spec::containers(pod).flat_map(|(_, container)| container["volumeMounts"].list());
        mounts.any(|mount| mount["name"] == volume["name"])
    };
    pod["spec"]["volumes"].list().iter().filter(volumes_ready)
}

/// The Secrets with which the images of a pod are pulled.
fn pull_secrets(pod: &Value) -> impl Iterator<Item = ObjectKey> {
    let secrets = pod["spec"]["imagePullSecrets"].list().iter();
    let names = secrets.map(|secret| secret["name"].str());
    let named = names.filter(|name| !name.is_empty());
    named.map(|name| (ReferenceKind::Secret, name.into()))
}

/// The references of a volume.
fn sources(volume: &Value) -> impl Iterator<Item = ObjectReference<'_>> {
    let projected = volume["projected"]["sources"].list().iter();
    let own = [(&volume["configMap"], &volume["secret"], "secretName")];
    let parts = projected.map(|source| (&source["configMap"], &source["secret"], "name"));
    own.into_iter()
        .chain(parts)
        .flat_map(|(config, secret, name)| {
            let both = [
                (ReferenceKind::ConfigMap, config, "name"),
                (ReferenceKind::Secret, secret, name),
            ]
            .into_iter();
            both.map(|(sort, object, name)| ObjectReference {
                sort,
                object,
                name: object[name].str(),
                of_volume: true,
            })
            .filter(|one| !one.name.is_empty())
        })
}

/// The references of a container's environment, in the order in which a kubelet reads them.
fn references(container: &Value) -> impl Iterator<Item = ObjectReference<'_>> {
    let whole = container["envFrom"].list().iter();
    let whole = whole.map(|from| (&from["configMapRef"], &from["secretRef"]));
    let single = container["env"].list().iter().map(|one| &one["valueFrom"]);
    let single = single.map(|from| (&from["configMapKeyRef"], &from["secretKeyRef"]));
    whole.chain(single).flat_map(|(config, secret)| {
        let both = [
            (ReferenceKind::ConfigMap, config),
            (ReferenceKind::Secret, secret),
        ]
        .into_iter();
        both.filter(|(_, object)| !object["name"].is_empty())
            .map(|(sort, object)| ObjectReference {
                sort,
                object,
                name: object["name"].str(),
                of_volume: false,
            })
    })
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;
    use crate::runtime::Simulated;

    #[test]
    fn a_value_is_kept_while_the_api_server_is_away_and_forgotten_with_its_object() {
        let from = value!({ "configMapKeyRef": { "name": "x", "key": "k" } });
        let container = value!({ "name": "c", "env": [{ "name": "K", "valueFrom": from }] });
        let pod = value!({ "metadata": {}, "spec": { "containers": [(container.clone())] } });
        let now = Moment::from_secs(10);
        let mut referenced = ReferencedObjects::from_pod(&pod, now, &Simulated).unwrap();
        let need: ObjectKey = (ReferenceKind::ConfigMap, "x".into());
        let mut read = |found: Found| {
            referenced.store([(need.clone(), found)].into());
            let mut problems = references(&container);
            problems.find_map(|one| referenced.problem(&one, &pod))
        };
        let away = || Err("failed to sync configmap cache".to_owned());
        assert!(read(away()).is_some(), "there is no value yet");
        let contents = Contents {
            data: [("k".into(), "v".into())].into(),
            ..Contents::default()
        };
        assert_eq!(read(Ok(Arc::new(contents))), None);
        assert_eq!(read(away()), None);
        let gone = ReferenceKind::ConfigMap.is_missing("x");
        assert_eq!(read(Err(gone.clone())), Some(gone.clone()));
        assert_eq!(read(away()), Some(gone), "what was deleted stays so");
    }
}
