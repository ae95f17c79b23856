//! Reads the ConfigMaps and Secrets of pods, each by name, as the node.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mizzen_sdk::dynamic::DynamicClient;
use mizzen_sdk::resource::{CONFIG_MAPS, SECRETS};
use mizzen_sdk::{Key, Object};
use mizzen_value::{Str, Value};
use tokio::time::sleep;

use crate::pod::references::{Contents, Found, ObjectKey, ReferenceKind};

/// Kubernetes: the retries of a kubelet that cannot read an object (watch_based_manager.go).
const PAUSE: Duration = Duration::from_millis(100);
const TRIES: usize = 10;

/// The objects that were read for a pod.
pub(super) struct ReadObjects {
    pub key: Key,
    pub uid: Box<str>,
    pub found: BTreeMap<ObjectKey, Found>,
}

/// Reads all objects that a pod references.
pub(super) async fn read_objects(
    api: DynamicClient,
    key: Key,
    uid: Box<str>,
    needs: Vec<ObjectKey>,
) -> ReadObjects {
    let mut found = BTreeMap::new();
    for need in needs {
        let contents = contents(&api, key.namespace(), &need).await;
        found.insert(need, contents);
    }
    ReadObjects { key, uid, found }
}

/// The content of an object. A request that is forbidden now may be allowed once the server has the
/// pod.
async fn contents(api: &DynamicClient, namespace: &str, (sort, name): &ObjectKey) -> Found {
    let resource = match sort {
        ReferenceKind::ConfigMap => &CONFIG_MAPS,
        ReferenceKind::Secret => &SECRETS,
    };
    for _ in 0..TRIES {
        match api
            .find(resource, &Key::new(namespace, name.as_str()))
            .await
        {
            Ok(Some(object)) => return Ok(Arc::new(Contents::from_object(*sort, &object))),
            Ok(None) => return Err(sort.is_missing(name)),
            Err(_) => sleep(PAUSE).await,
        }
    }
    Err(format!(
        "failed to sync {} cache: timed out waiting for the condition",
        sort.word()
    ))
}

impl Contents {
    fn from_object(sort: ReferenceKind, object: &Object) -> Contents {
        let plain = |value: &Value| value.str().into();
        let decoded = |value: &Value| {
            let bytes = STANDARD.decode(value.str()).unwrap_or_default();
            Str::from(String::from_utf8_lossy(&bytes))
        };
        let values = |field: &str, read: &dyn Fn(&Value) -> Str| {
            object[field]
                .entries()
                .map(|(key, value)| (key.into(), read(value)))
                .collect()
        };
        let (data, binary) = match sort {
            ReferenceKind::ConfigMap => (values("data", &plain), values("binaryData", &decoded)),
            ReferenceKind::Secret => (values("data", &decoded), BTreeMap::new()),
        };
        Contents {
            version: object.version().into(),
            data,
            binary,
        }
    }
}

/// Contents that several pods have read of one object version, held once.
#[derive(Default)]
pub(super) struct ContentCache {
    known: HashMap<(Str, ObjectKey), Weak<Contents>>,
    /// The size at which contents without a holder are dropped.
    limit: usize,
}

impl ContentCache {
    /// Replaces contents by those that another pod of the namespace holds already.
    pub(super) fn share(&mut self, namespace: &str, found: &mut BTreeMap<ObjectKey, Found>) {
        for (need, contents) in found {
            let Ok(contents) = contents else { continue };
            let shared = self
                .known
                .entry((namespace.into(), need.clone()))
                .or_default();
            match shared
                .upgrade()
                .filter(|shared| shared.version == contents.version)
            {
                Some(shared) => *contents = shared,
                None => *shared = Arc::downgrade(contents),
            }
        }
        if self.known.len() > self.limit {
            self.known.retain(|_, shared| shared.strong_count() > 0);
            self.limit = 2 * self.known.len() + 64;
        }
    }
}
