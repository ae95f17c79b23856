//! One object into an API server: create it, or compare it with the one that is there.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use clap::ValueEnum;
use http::Method;
use kube::Error;
use mizzen_sdk::Key;
use mizzen_sdk::dynamic::query;
use mizzen_sdk::write::{is_already_exists, is_conflict, is_not_found, message};
use mizzen_value::Value;
use parking_lot::{Mutex, RwLock};
use tokio::time::{Instant, sleep};

use super::request::Requests;
use super::served::{ServedType, ServedTypes};
use super::{Outcome, group_of};

/// Who owns the fields of what is imported.
const FIELD_MANAGER: &str = "mizzen-import";

/// How often a write is tried again after another writer was faster.
const CONFLICTS: usize = 5;

/// How long the server may take to serve a new definition.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(30);

/// How often that is checked.
const ESTABLISH_INTERVAL: Duration = Duration::from_millis(50);

/// The uid of an owner that a dry run did not create.
const PLACEHOLDER_UID: &str = "00000000-0000-0000-0000-000000000000";

/// What happens to an object if another one has its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnConflict {
    /// Report it as failed, and go on
    Fail,
    /// Leave the other one alone
    Skip,
    /// Replace the other one
    Overwrite,
}

/// What an object is called: group, kind, namespace and name.
type ObjectKey = (String, String, String, String);

/// Writes objects to an API server.
pub(super) struct Applier {
    requests: Requests,
    on_conflict: OnConflict,
    is_dry_run: bool,
    served: RwLock<ServedTypes>,
    /// The uids of objects in the target; none for those that are not there.
    uids: Mutex<HashMap<ObjectKey, Option<String>>>,
    /// What a dry run would have created.
    planned: Planned,
}

/// What an import creates: a dry run cannot check what depends on it.
#[derive(Debug, Default)]
struct Planned {
    namespaces: HashSet<String>,
    /// Groups and kinds.
    kinds: HashSet<(String, String)>,
    objects: HashSet<ObjectKey>,
}

/// What became of an object, and what a user should know besides.
pub(super) type Applied = (Outcome, Vec<String>);

impl Applier {
    /// Discovers what the server serves. `objects` are all that will be applied.
    pub(super) async fn new(
        requests: Requests,
        on_conflict: OnConflict,
        is_dry_run: bool,
        objects: &[Value],
    ) -> Result<Applier, Error> {
        let served = ServedTypes::discover(&requests).await?;
        let planned = match is_dry_run {
            true => Planned::new(objects),
            false => Planned::default(),
        };
        Ok(Applier {
            requests,
            on_conflict,
            is_dry_run,
            served: RwLock::new(served),
            uids: Mutex::default(),
            planned,
        })
    }

    /// Waits until the objects of definitions can be created.
    pub(super) async fn establish(&self, definitions: &[Value]) -> Result<(), Error> {
        if self.is_dry_run || definitions.is_empty() {
            return Ok(());
        }
        let deadline = Instant::now() + ESTABLISH_TIMEOUT;
        loop {
            let served = ServedTypes::discover(&self.requests).await?;
            let is_served = |definition: &Value| {
                let spec = &definition["spec"];
                let (group, kind) = (spec["group"].str(), spec["names"]["kind"].str());
                let mut versions = spec["versions"].items();
                versions.all(|version| {
                    let api_version = format!("{group}/{}", version["name"].str());
                    !version["served"].bool() || served.find(&api_version, kind).is_some()
                })
            };
            let is_complete = definitions.iter().all(is_served);
            *self.served.write() = served;
            // After the deadline objects of these kinds are reported as not served.
            if is_complete || Instant::now() > deadline {
                return Ok(());
            }
            sleep(ESTABLISH_INTERVAL).await;
        }
    }

    /// Writes one object, without identity of another cluster.
    pub(super) async fn apply(&self, mut object: Value) -> Applied {
        let (api_version, kind) = (object["apiVersion"].str(), object["kind"].str());
        let served = self.served.read().find(api_version, kind).cloned();
        let Some(served) = served else {
            let planned = (group_of(api_version).to_owned(), kind.to_owned());
            if self.planned.kinds.contains(&planned) {
                return (Outcome::Created, Vec::new());
            }
            let why = self.served.read().why_missing(api_version, kind);
            return (Outcome::NotServed(why), Vec::new());
        };
        let metadata = object.entry("metadata");
        match served.resource.namespaced {
            true if metadata["namespace"].str().is_empty() => metadata.set("namespace", "default"),
            true => {}
            false => drop(metadata.remove("namespace")),
        }
        let mut notes = Vec::new();
        if let Err(error) = self.resolve_owners(&mut object, &mut notes).await {
            return (Outcome::Failed(message(&error)), notes);
        }
        // Of a kind without the subresource it is a field like any other.
        let status = match served.has_status {
            true => object.remove("status").filter(|status| !status.is_empty()),
            false => None,
        };
        let outcome = match self
            .create(&served, &object, status.as_ref(), &mut notes)
            .await
        {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Failed(message(&error)),
        };
        (outcome, notes)
    }

    async fn create(
        &self,
        served: &ServedType,
        object: &Value,
        status: Option<&Value>,
        notes: &mut Vec<String>,
    ) -> Result<Outcome, Error> {
        let metadata = &object["metadata"];
        let namespace = metadata["namespace"].str();
        let path = format!("{}{}", served.resource.path(namespace), self.query());
        let created = self.requests.send(Method::POST, &path, Some(object)).await;
        match created {
            Ok(created) => {
                self.remember(object, &created);
                self.write_status(served, &created, status, notes).await;
                Ok(Outcome::Created)
            }
            Err(error) if is_already_exists(&error) => {
                self.meet_existing(served, object, status, notes).await
            }
            Err(error) if is_not_found(&error) && self.planned.namespaces.contains(namespace) => {
                Ok(Outcome::Created)
            }
            // A webhook or a quota may reject what an earlier import created before them.
            Err(error) => match self.requests.get(&path_of(served, object)).await {
                Ok(existing) if difference(object, &existing, "").is_none() => {
                    self.remember(object, &existing);
                    Ok(Outcome::Unchanged)
                }
                _ => Err(error),
            },
        }
    }

    /// Another object has the name: it is the same, or what the user wants in this case happens.
    async fn meet_existing(
        &self,
        served: &ServedType,
        object: &Value,
        status: Option<&Value>,
        notes: &mut Vec<String>,
    ) -> Result<Outcome, Error> {
        let path = path_of(served, object);
        let mut attempt = 0;
        loop {
            let existing = self.requests.get(&path).await?;
            self.remember(object, &existing);
            let Some(difference) = difference(object, &existing, "") else {
                // An import that was interrupted had no time for the status.
                if existing["status"].is_empty() {
                    self.write_status(served, &existing, status, notes).await;
                }
                return Ok(Outcome::Unchanged);
            };
            match self.on_conflict {
                OnConflict::Fail => {
                    let why = format!("it exists, and {difference} differs");
                    return Ok(Outcome::Failed(why));
                }
                OnConflict::Skip => return Ok(Outcome::Skipped),
                OnConflict::Overwrite => {}
            }
            let mut replacement = object.clone();
            for field in ["uid", "resourceVersion"] {
                let value = existing["metadata"][field].clone();
                replacement.entry("metadata").set(field, value);
            }
            let keeps_status = replacement["status"].is_null() && !existing["status"].is_null();
            if !served.has_status && keeps_status {
                replacement.set("status", existing["status"].clone());
            }
            let target = format!("{path}{}", self.query());
            match self
                .requests
                .send(Method::PUT, &target, Some(&replacement))
                .await
            {
                Ok(replaced) => {
                    self.write_status(served, &replaced, status, notes).await;
                    return Ok(Outcome::Replaced);
                }
                Err(error) if is_conflict(&error) && attempt < CONFLICTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes the status of an object that was written. Controllers may write it at the same time.
    async fn write_status(
        &self,
        served: &ServedType,
        written: &Value,
        status: Option<&Value>,
        notes: &mut Vec<String>,
    ) {
        let Some(status) = status.filter(|_| !self.is_dry_run) else {
            return;
        };
        let path = path_of(served, written);
        let target = format!("{path}/status{}", self.query());
        let mut object = written.clone();
        for attempt in 0..=CONFLICTS {
            object.set("apiVersion", served.resource.api_version());
            object.set("kind", &*served.resource.kind);
            object.set("status", status.clone());
            let error = match self
                .requests
                .send(Method::PUT, &target, Some(&object))
                .await
            {
                Ok(_) => return,
                Err(error) => error,
            };
            let latest = match is_conflict(&error) && attempt < CONFLICTS {
                true => self.requests.get(&path).await,
                false => Err(error),
            };
            match latest {
                Ok(latest) => object = latest,
                Err(error) => {
                    notes.push(format!("its status was not written: {}", message(&error)));
                    return;
                }
            }
        }
    }

    /// Gives references to owners the uids of the target. A reference to an owner that is not there would get the object
    /// deleted by the garbage collector, so it is removed.
    async fn resolve_owners(
        &self,
        object: &mut Value,
        notes: &mut Vec<String>,
    ) -> Result<(), Error> {
        let namespace = object["metadata"]["namespace"].str().to_owned();
        let Some(references) = object.at_mut("metadata.ownerReferences") else {
            return Ok(());
        };
        let mut resolved = Vec::new();
        for mut reference in std::mem::take(references.make_list()) {
            match self.find_owner(&reference, &namespace).await? {
                Some(uid) => {
                    reference.set("uid", uid);
                    resolved.push(reference);
                }
                None => notes.push(format!(
                    "its owner {} {} is not in the target: it has no owner now",
                    reference["kind"].str(),
                    reference["name"].str()
                )),
            }
        }
        match resolved.is_empty() {
            true => drop(object.entry("metadata").remove("ownerReferences")),
            false => *references = Value::List(resolved),
        }
        Ok(())
    }

    /// The uid of an owner in the target.
    async fn find_owner(
        &self,
        reference: &Value,
        namespace: &str,
    ) -> Result<Option<String>, Error> {
        let (group, kind) = (
            group_of(reference["apiVersion"].str()),
            reference["kind"].str(),
        );
        let name = reference["name"].str();
        let Some(served) = self.served.read().find_kind(group, kind).cloned() else {
            // A dry run does not create its definition.
            return Ok(self.find_planned(group, kind, namespace, name));
        };
        let namespace = if served.resource.namespaced {
            namespace
        } else {
            ""
        };
        let key = (group.into(), kind.into(), namespace.into(), name.into());
        if let Some(uid) = self.uids.lock().get(&key) {
            return Ok(uid.clone());
        }
        let found = self
            .requests
            .get(&served.resource.path_of(&Key::new(namespace, name)))
            .await;
        let uid = match found {
            Ok(owner) => Some(owner["metadata"]["uid"].str().to_owned()),
            Err(error) if is_not_found(&error) => self.find_planned(group, kind, namespace, name),
            Err(error) => return Err(error),
        };
        self.uids.lock().insert(key, uid.clone());
        Ok(uid)
    }

    /// A uid for an owner that a dry run did not create.
    fn find_planned(&self, group: &str, kind: &str, namespace: &str, name: &str) -> Option<String> {
        let is_planned = [namespace, ""].iter().any(|namespace| {
            let key = (group.into(), kind.into(), (*namespace).into(), name.into());
            self.planned.objects.contains(&key)
        });
        is_planned.then(|| PLACEHOLDER_UID.to_owned())
    }

    fn remember(&self, object: &Value, stored: &Value) {
        let uid = stored["metadata"]["uid"].str().to_owned();
        self.uids.lock().insert(object_key(object), Some(uid));
    }

    /// Fields that the target does not know are an error, not a loss.
    fn query(&self) -> String {
        query(&[
            ("fieldManager", FIELD_MANAGER),
            ("fieldValidation", "Strict"),
            ("dryRun", if self.is_dry_run { "All" } else { "" }),
        ])
    }
}

impl Planned {
    fn new(objects: &[Value]) -> Planned {
        let mut planned = Planned::default();
        for object in objects {
            let name = object["metadata"]["name"].str();
            match (group_of(object["apiVersion"].str()), object["kind"].str()) {
                ("", "Namespace") => {
                    planned.namespaces.insert(name.into());
                }
                ("apiextensions.k8s.io", "CustomResourceDefinition") => {
                    let spec = &object["spec"];
                    let (group, kind) = (spec["group"].str(), spec["names"]["kind"].str());
                    planned.kinds.insert((group.into(), kind.into()));
                }
                _ => {}
            }
            planned.objects.insert(object_key(object));
        }
        planned
    }
}

fn object_key(object: &Value) -> ObjectKey {
    let metadata = &object["metadata"];
    (
        group_of(object["apiVersion"].str()).into(),
        object["kind"].str().into(),
        metadata["namespace"].str().into(),
        metadata["name"].str().into(),
    )
}

fn path_of(served: &ServedType, object: &Value) -> String {
    let metadata = &object["metadata"];
    let key = Key::new(metadata["namespace"].str(), metadata["name"].str());
    served.resource.path_of(&key)
}

/// The path of the first field of `wanted` that `found` has not, or has with another value. What only `found` has was set by the
/// server, and an empty field is as good as none.
fn difference(wanted: &Value, found: &Value, path: &str) -> Option<String> {
    let differs = || Some(if path.is_empty() { "it" } else { path }.to_owned());
    match (wanted, found) {
        (Value::Map(members), _) => members.iter().find_map(|(name, value)| {
            let path = match path.is_empty() {
                true => name.to_owned(),
                false => format!("{path}.{name}"),
            };
            difference(value, &found[name], &path)
        }),
        (Value::List(wanted), Value::List(found)) if wanted.len() == found.len() => {
            let mut items = wanted.iter().zip(found).enumerate();
            items.find_map(|(index, (wanted, found))| {
                difference(wanted, found, &format!("{path}[{index}]"))
            })
        }
        _ if wanted.is_empty() && found.is_empty() => None,
        _ if wanted == found => None,
        _ => differs(),
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    #[track_caller]
    fn check(wanted: &str, found: &str, expected: Option<&str>) {
        let [wanted, found] = [wanted, found].map(|text| json::parse(text.as_bytes()).unwrap());
        assert_eq!(difference(&wanted, &found, "").as_deref(), expected);
    }

    #[test]
    fn what_the_server_adds_is_no_difference() {
        check(r#"{"a":1}"#, r#"{"a":1,"b":2}"#, None);
        check(r#"{"a":[{"b":1}]}"#, r#"{"a":[{"b":1,"c":2}]}"#, None);
        check(r#"{"a":{},"b":null,"c":""}"#, "{}", None);
    }

    #[test]
    fn the_first_difference_is_named() {
        check(
            r#"{"a":1,"b":{"c":2}}"#,
            r#"{"a":1,"b":{"c":3}}"#,
            Some("b.c"),
        );
        check(r#"{"a":[{"b":1}]}"#, r#"{"a":[{"b":2}]}"#, Some("a[0].b"));
        check(r#"{"a":[1,2]}"#, r#"{"a":[1]}"#, Some("a"));
        check(r#"{"a":{"b":1}}"#, "{}", Some("a.b"));
    }
}
