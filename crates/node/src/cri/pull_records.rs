//! Records of the images that this node has pulled, and of the credentials that it has used: with
//! them a pod may use an image that is there only if it could pull it, too.
//!
//! Below the directory of the node, `image_manager/pulling` has an intent for each image that is being
//! pulled, and `image_manager/pulled` a record for each one that was, in the format of upstream's
//! kubelet. An intent that an agent left behind becomes a record without credentials.
//!
//! Kubernetes: pkg/kubelet/images/pullmanager.
//!
//! Invariant: an image that this node has pulled has an intent or a record until it is collected. The
//! intent is written before the pull, and removed after the record is written.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mizzen_cri::image_name::ImageName;
use mizzen_cri::messages::Image;
use mizzen_value::time::from_unix;
use mizzen_value::{Value, json, value};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};

use super::image_verification::{ImageVerification, repository_as_spelled};
use crate::moment::wall_of;

/// The directory of all records.
const DIR: &str = "image_manager";
const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// How the names of records begin, and how those of files end that are being written.
const PREFIX: &str = "sha256-";
const UNFINISHED: &str = ".tmp";
/// Kubernetes: with so many Secrets a record gets no more of those that only match
/// (`writeRecordWhileMatchingLimit`).
const MAX_MATCHED: usize = 100;

/// A Secret, and the hash of the credentials in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PullSecret {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub credential_hash: String,
}

impl PullSecret {
    fn is_same_object(&self, other: &PullSecret) -> bool {
        (&self.namespace, &self.name, &self.uid) == (&other.namespace, &other.name, &other.uid)
    }

    fn to_value(&self) -> Value {
        value!({
            "uid": (self.uid.as_str()),
            "namespace": (self.namespace.as_str()),
            "name": (self.name.as_str()),
            "credentialHash": (self.credential_hash.as_str()),
        })
    }

    fn from_value(secret: &Value) -> PullSecret {
        let text = |field: &str| secret[field].str().to_owned();
        PullSecret {
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            credential_hash: text("credentialHash"),
        }
    }
}

/// What an image was pulled with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PullCredentials {
    /// No credentials: all pods of the node may use it.
    NodePods,
    /// Those of Secrets, sorted.
    Secrets(Vec<PullSecret>),
}

impl PullCredentials {
    fn to_value(&self) -> Value {
        match self {
            PullCredentials::NodePods => value!({ "nodePodsAccessible": true }),
            PullCredentials::Secrets(secrets) => {
                let secrets: Vec<Value> = secrets.iter().map(PullSecret::to_value).collect();
                value!({ "kubernetesSecrets": secrets })
            }
        }
    }

    fn from_value(credentials: &Value) -> PullCredentials {
        if credentials["nodePodsAccessible"].bool() {
            return PullCredentials::NodePods;
        }
        let secrets = credentials["kubernetesSecrets"].list().iter();
        PullCredentials::Secrets(secrets.map(PullSecret::from_value).collect())
    }

    /// Adds others; true if that changes something.
    fn merge(&mut self, new: PullCredentials) -> bool {
        let PullCredentials::Secrets(known) = self else {
            return false;
        };
        let PullCredentials::Secrets(new) = new else {
            *self = PullCredentials::NodePods;
            return true;
        };
        let mut has_changed = false;
        for secret in new {
            match known.iter_mut().find(|known| known.is_same_object(&secret)) {
                Some(known) if known.credential_hash == secret.credential_hash => continue,
                Some(known) => known.credential_hash = secret.credential_hash,
                None => known.push(secret),
            }
            has_changed = true;
        }
        known.sort();
        has_changed
    }
}

/// The record of an image.
#[derive(Debug, PartialEq)]
struct PulledRecord {
    /// When it was changed, since 1970.
    updated: Duration,
    /// The ID of the image.
    image_ref: String,
    /// By the name of the image, without tag and digest.
    credentials: BTreeMap<String, PullCredentials>,
}

impl PulledRecord {
    fn to_value(&self) -> Value {
        let mut mapping = Value::object();
        for (image, credentials) in &self.credentials {
            mapping.set(image, credentials.to_value());
        }
        let updated = i64::try_from(self.updated.as_secs()).unwrap_or_default();
        value!({
            "kind": "ImagePulledRecord",
            "apiVersion": API_VERSION,
            "lastUpdatedTime": (from_unix(updated)),
            "imageRef": (self.image_ref.as_str()),
            "credentialMapping": mapping,
        })
    }

    fn from_value(record: &Value) -> PulledRecord {
        let credentials = record["credentialMapping"].entries();
        PulledRecord {
            updated: wall_of(&record["lastUpdatedTime"]).unwrap_or_default(),
            image_ref: record["imageRef"].str().into(),
            credentials: credentials
                .map(|(image, used)| (image.to_owned(), PullCredentials::from_value(used)))
                .collect(),
        }
    }
}

/// The records of a node.
pub(super) struct PullRecords {
    pulling: PathBuf,
    pulled: PathBuf,
    verification: ImageVerification,
    /// The numbers of pulls in flight by image. It is locked while records are read or changed.
    in_flight: Mutex<HashMap<String, usize>>,
}

impl PullRecords {
    /// The records below the directory of a node.
    pub(super) fn new(root: &Path, verification: ImageVerification) -> PullRecords {
        let dir = root.join(DIR);
        PullRecords {
            pulling: dir.join("pulling"),
            pulled: dir.join("pulled"),
            verification,
            in_flight: Mutex::default(),
        }
    }

    /// Records that a pull begins.
    pub(super) fn record_intent(&self, image: &str) -> io::Result<()> {
        let mut in_flight = self.in_flight.lock();
        let intent = value!({
            "kind": "ImagePullIntent", "apiVersion": API_VERSION, "image": image
        });
        write(&self.pulling, image, &intent)?;
        *in_flight.entry(image.to_owned()).or_default() += 1;
        Ok(())
    }

    /// Records that a pull has ended: with the ID of the image and what it was pulled with, or `None` if
    /// it has failed.
    pub(super) fn record_end(
        &self,
        image: &str,
        pulled: Option<(&str, PullCredentials)>,
        now: Duration,
    ) {
        let mut in_flight = self.in_flight.lock();
        if let Some((image_ref, credentials)) = pulled
            && let Err(error) = self.add(image, image_ref, Some(credentials), now)
        {
            // Kubernetes: the intent stays, so that the image counts as pulled.
            tracing::error!(%error, image, "cannot record with which credentials an image was pulled");
            return;
        }
        match in_flight.get_mut(image) {
            Some(count) if *count > 1 => *count -= 1,
            _ => match remove(&self.pulling, image) {
                Ok(()) => {
                    in_flight.remove(image);
                }
                Err(error) => {
                    tracing::error!(%error, image, "cannot remove the intent of an image pull");
                }
            },
        }
    }

    /// Whether a pod must pull an image that is on the node, because it may not use it otherwise.
    /// `secrets` are those of the pod that match the image, or why they are not known.
    pub(super) fn must_pull(
        &self,
        image: &str,
        image_ref: &str,
        secrets: Result<Vec<PullSecret>, String>,
        now: Duration,
    ) -> Result<bool, String> {
        let in_flight = self.in_flight.lock();
        let read = self.read(image_ref).and_then(|record| {
            let is_pulling = in_flight.contains_key(image) || self.has_intent(image)?;
            Ok((record, is_pulling))
        });
        let (record, is_pulling) = match read {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(%error, image, "cannot read the records of image pulls");
                return Ok(true);
            }
        };
        let was_pulled = is_pulling || record.is_some();
        if !self.verification.is_required(image, was_pulled) {
            return Ok(false);
        }
        let repository = repository_as_spelled(image);
        let known = record.and_then(|mut record| record.credentials.remove(repository?));
        let known = match known {
            None => return Ok(true),
            Some(PullCredentials::NodePods) => return Ok(false),
            Some(PullCredentials::Secrets(known)) => known,
        };
        if known.is_empty() {
            return Ok(true);
        }
        let has_room = known.len() < MAX_MATCHED;
        for secret in secrets? {
            for known in &known {
                let is_same_object = secret.is_same_object(known);
                let is_same_account = !known.credential_hash.is_empty()
                    && secret.credential_hash == known.credential_hash;
                // Kubernetes: a Secret whose content has changed stays valid.
                let is_match = is_same_account || is_same_object && has_room;
                if !is_match {
                    continue;
                }
                if is_same_account != is_same_object && has_room {
                    let matched = Some(PullCredentials::Secrets(vec![secret]));
                    if let Err(error) = self.add(image, image_ref, matched, now) {
                        tracing::error!(%error, image, "cannot record that a Secret gives access to an image");
                    }
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes the records of images that have gone, unless they were changed since `listed`, when the
    /// images were listed.
    pub(super) fn prune(&self, image_refs: &HashSet<String>, listed: Duration) {
        let _turn = self.in_flight.lock();
        for record in read_all(&self.pulled) {
            let record = PulledRecord::from_value(&record);
            if record.updated >= listed || image_refs.contains(&record.image_ref) {
                continue;
            }
            if let Err(error) = remove(&self.pulled, &record.image_ref) {
                let image = record.image_ref;
                tracing::error!(%error, image, "cannot remove the record of an image");
            }
        }
    }

    /// Makes records of the intents whose images are there: an agent has ended during the pull.
    pub(super) fn recover(&self, images: &[Image], now: Duration) {
        let _turn = self.in_flight.lock();
        for intent in read_all(&self.pulling) {
            let image = intent["image"].str();
            for found in images.iter().filter(|found| has_name(found, image)) {
                let recovered = self
                    .add(image, &found.id, None, now)
                    .and_then(|()| remove(&self.pulling, image));
                if let Err(error) = recovered {
                    tracing::error!(%error, image, "cannot record an image that was pulled");
                }
            }
        }
    }

    /// Whether an agent began to pull an image and has not recorded the end.
    pub(super) fn has_intents(&self) -> bool {
        !read_all(&self.pulling).is_empty()
    }

    /// Adds credentials to the record of an image, which is made if there is none.
    fn add(
        &self,
        image: &str,
        image_ref: &str,
        credentials: Option<PullCredentials>,
        now: Duration,
    ) -> io::Result<()> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "invalid image name");
        let repository = repository_as_spelled(image).ok_or_else(invalid)?;
        let known = self.read(image_ref).unwrap_or_else(|error| {
            tracing::warn!(%error, image, "a record of an image is replaced");
            None
        });
        let is_new = known.is_none();
        let mut record = known.unwrap_or_else(|| PulledRecord {
            updated: now,
            image_ref: image_ref.into(),
            credentials: BTreeMap::new(),
        });
        let has_changed =
            credentials.is_some_and(|new| match record.credentials.entry(repository.into()) {
                Entry::Occupied(mut known) => known.get_mut().merge(new),
                Entry::Vacant(free) => {
                    free.insert(new);
                    true
                }
            });
        if !is_new && !has_changed {
            return Ok(());
        }
        record.updated = now;
        write(&self.pulled, image_ref, &record.to_value())
    }

    fn read(&self, image_ref: &str) -> io::Result<Option<PulledRecord>> {
        let record = read_file(&self.pulled.join(file_name(image_ref)))?;
        let record = record.map(|record| PulledRecord::from_value(&record));
        Ok(record.filter(|record| record.image_ref == image_ref))
    }

    fn has_intent(&self, image: &str) -> io::Result<bool> {
        let intent = read_file(&self.pulling.join(file_name(image)))?;
        Ok(intent.is_some_and(|intent| intent["image"].str() == image))
    }
}

/// Removes the records below the directory of nodes of which there is none any more.
pub(super) fn remove_all(root: &Path) -> io::Result<()> {
    match fs::remove_dir_all(root.join(DIR)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Whether an image of the runtime has a name. Short names are those of Docker Hub.
fn has_name(image: &Image, name: &str) -> bool {
    let whole = |name: &str| {
        let mut name = ImageName::parse(name).ok()?.with_default_tag();
        if name.digest.is_some() {
            name.tag = None;
        }
        Some(name)
    };
    let mut names = image.repo_tags.iter().chain(&image.repo_digests);
    let wanted = whole(name);
    names.any(|known| known == name || wanted.is_some() && whole(known) == wanted)
}

/// The name of the file about an image.
fn file_name(image: &str) -> String {
    let hash = digest(&SHA256, image.as_bytes());
    let hex = hash.as_ref().iter().map(|byte| format!("{byte:02x}"));
    format!("{PREFIX}{}", hex.collect::<String>())
}

/// Replaces a file as a whole; another user cannot read it.
fn write(dir: &Path, image: &str, record: &Value) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let path = dir.join(file_name(image));
    let unfinished = dir.join(file_name(image) + UNFINISHED);
    let replace = || {
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true).mode(0o600);
        let mut file = options.open(&unfinished)?;
        file.write_all(json::to_string(record).as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)
    };
    replace().inspect_err(|_| {
        let _ = fs::remove_file(&unfinished);
    })
}

fn remove(dir: &Path, image: &str) -> io::Result<()> {
    match fs::remove_file(dir.join(file_name(image))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// A record; `None` if there is no such file.
fn read_file(path: &Path) -> io::Result<Option<Value>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let parsed = json::parse(&text).map_err(|error| {
        let message = format!("{}: {error}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, message)
    });
    parsed.map(Some)
}

/// The records of a directory. Those that cannot be read are left out and logged.
fn read_all(dir: &Path) -> Vec<Value> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let is_record = |name: &str| name.starts_with(PREFIX) && !name.ends_with(UNFINISHED);
    let named = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_record));
    let read = named.filter_map(|entry| {
        read_file(&entry.path()).unwrap_or_else(|error| {
            tracing::error!(%error, "cannot read a record of an image");
            None
        })
    });
    read.collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use tempfile::TempDir;

    use super::super::image_verification::VerificationPolicy;
    use super::*;

    const IMAGE: &str = "a.example/app:1";
    const ID: &str = "sha256:1";
    const NOW: Duration = Duration::from_secs(1_700_000_000);

    fn records(dir: &TempDir) -> PullRecords {
        PullRecords::new(dir.path(), ImageVerification::default())
    }

    fn secret(name: &str, hash: &str) -> PullSecret {
        PullSecret {
            namespace: "ns".into(),
            name: name.into(),
            uid: format!("uid-{name}"),
            credential_hash: hash.into(),
        }
    }

    fn with(secrets: &[PullSecret]) -> PullCredentials {
        PullCredentials::Secrets(secrets.to_vec())
    }

    impl PullRecords {
        fn pull(&self, image: &str, credentials: PullCredentials) {
            self.record_intent(image).unwrap();
            self.record_end(image, Some((ID, credentials)), NOW);
        }

        fn asks(&self, image: &str, secrets: &[PullSecret]) -> bool {
            self.must_pull(image, ID, Ok(secrets.to_vec()), NOW)
                .unwrap()
        }
    }

    #[test]
    fn a_pod_uses_what_it_could_pull() {
        let dir = tempfile::tempdir().unwrap();
        let known = records(&dir);
        // An image that was there before.
        assert!(!known.asks(IMAGE, &[]));
        let (one, other) = (secret("one", "1"), secret("other", "2"));
        known.pull(IMAGE, with(std::slice::from_ref(&one)));
        for (image, secrets, expected) in [
            (IMAGE, vec![], true),
            (IMAGE, vec![other.clone()], true),
            (IMAGE, vec![other.clone(), one.clone()], false),
            // The same account in another Secret, which is known from now on.
            (IMAGE, vec![secret("copy", "1")], false),
            (IMAGE, vec![secret("copy", "changed")], false),
            // Its content has changed: now that is known.
            (IMAGE, vec![secret("one", "3")], false),
            ("a.example/app:2", vec![secret("any", "3")], false),
            ("b.example/app:1", vec![one.clone()], true),
        ] {
            // Another agent reads the same records.
            let known = records(&dir);
            assert_eq!(known.asks(image, &secrets), expected, "{image} {secrets:?}");
        }
        let unknown = Err("no Secrets".to_owned());
        let why = known.must_pull(IMAGE, ID, unknown, NOW).unwrap_err();
        assert_eq!(why, "no Secrets");
        known.pull(IMAGE, PullCredentials::NodePods);
        assert!(!records(&dir).asks(IMAGE, &[]));
        assert!(records(&dir).asks("b.example/app:1", &[]));
    }

    #[test]
    fn a_policy_decides_before_the_records() {
        let dir = tempfile::tempdir().unwrap();
        let of = |policy| {
            let verification = ImageVerification::new(policy, Vec::new()).unwrap();
            PullRecords::new(dir.path(), verification)
        };
        assert!(of(VerificationPolicy::AlwaysVerify).asks(IMAGE, &[]));
        let never = of(VerificationPolicy::NeverVerify);
        never.pull(IMAGE, with(&[secret("one", "1")]));
        assert!(!never.asks(IMAGE, &[]));
        assert!(of(VerificationPolicy::NeverVerifyPreloadedImages).asks(IMAGE, &[]));
    }

    #[test]
    fn a_record_is_that_of_the_kubelet_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        records(&dir).pull(IMAGE, with(&[secret("one", "1")]));
        let path = dir.path().join(DIR).join("pulled").join(file_name(ID));
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            r#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2023-11-14T22:13:20Z","imageRef":"sha256:1","credentialMapping":{"a.example/app":{"kubernetesSecrets":[{"uid":"uid-one","namespace":"ns","name":"one","credentialHash":"1"}]}}}"#
        );
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        // The intent has gone.
        assert_eq!(fs::read_dir(records(&dir).pulling).unwrap().count(), 0);
    }

    #[test]
    fn a_pull_in_flight_counts_until_the_last_one_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let known = records(&dir);
        for _ in 0..2 {
            known.record_intent(IMAGE).unwrap();
        }
        known.record_end(IMAGE, None, NOW);
        assert!(known.asks(IMAGE, &[]));
        known.record_end(IMAGE, None, NOW);
        assert!(!known.asks(IMAGE, &[]));
    }

    #[test]
    fn an_agent_that_ended_during_a_pull_leaves_an_image_that_must_be_verified() {
        let dir = tempfile::tempdir().unwrap();
        for image in [IMAGE, "busybox", "c.example/gone:1"] {
            records(&dir).record_intent(image).unwrap();
        }
        let image = |id: &str, name: &str| Image {
            id: id.into(),
            repo_tags: vec![name.into()],
            ..Image::default()
        };
        let later = records(&dir);
        assert!(later.asks(IMAGE, &[]) && later.has_intents());
        let images = [
            image(ID, IMAGE),
            image("sha256:2", "docker.io/library/busybox:latest"),
        ];
        later.recover(&images, NOW);
        assert!(later.asks(IMAGE, &[]));
        assert!(
            later
                .must_pull("busybox", "sha256:2", Ok(vec![]), NOW)
                .unwrap()
        );
        // That of the image which is not there stays.
        assert_eq!(read_all(&later.pulling).len(), 1);
        // The next pull completes the record.
        later.pull(IMAGE, with(&[secret("one", "1")]));
        assert!(!later.asks(IMAGE, &[secret("one", "1")]));
    }

    #[test]
    fn records_of_collected_images_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let known = records(&dir);
        known.pull(IMAGE, with(&[secret("one", "1")]));
        let later = NOW + Duration::from_secs(1);
        known.prune(&[ID.to_owned()].into(), later);
        assert!(known.asks(IMAGE, &[]));
        // It was pulled after the images were listed.
        known.prune(&HashSet::new(), NOW);
        assert!(known.asks(IMAGE, &[]));
        known.prune(&HashSet::new(), later);
        assert!(!known.asks(IMAGE, &[]));
    }

    #[test]
    fn a_record_that_cannot_be_read_gives_no_access() {
        let dir = tempfile::tempdir().unwrap();
        let known = records(&dir);
        known.pull(IMAGE, PullCredentials::NodePods);
        let path = known.pulled.join(file_name(ID));
        fs::write(&path, "{").unwrap();
        assert!(known.asks(IMAGE, &[]));
        // A file that was never finished is none.
        fs::write(path.with_extension("tmp"), "{").unwrap();
        assert!(read_all(&known.pulled).is_empty());
        known.pull(IMAGE, PullCredentials::NodePods);
        assert!(!known.asks(IMAGE, &[]));
        remove_all(dir.path()).unwrap();
        remove_all(dir.path()).unwrap();
        // Nothing can be written where a file is in the way.
        fs::write(dir.path().join(DIR), "").unwrap();
        assert!(known.record_intent(IMAGE).is_err());
    }

    #[test]
    fn a_record_has_a_bounded_number_of_secrets_that_only_match() {
        let dir = tempfile::tempdir().unwrap();
        let known = records(&dir);
        known.pull(IMAGE, with(&[secret("one", "1")]));
        for n in 0..150 {
            assert!(!known.asks(IMAGE, &[secret(&format!("copy-{n}"), "1")]));
        }
        let record = known.read(ID).unwrap().unwrap();
        let PullCredentials::Secrets(secrets) = &record.credentials["a.example/app"] else {
            panic!("{record:?}");
        };
        assert_eq!(secrets.len(), MAX_MATCHED);
        // A Secret that has changed is no match any more.
        assert!(known.asks(IMAGE, &[secret("one", "2")]));
    }
}
