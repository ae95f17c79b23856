//! What pods need is read: each object by its name, in the name of the node.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mizzen_sdk::api::Api;
use mizzen_sdk::resource::{CONFIG_MAPS, SECRETS};
use mizzen_sdk::{Key, Object};
use mizzen_value::{Str, Value};
use tokio::time::sleep;

use crate::pod::supply::{Contents, Found, Need, Sort};

/// Kubernetes: how long and how often a kubelet looks before it gives up for now (watch_based_manager.go).
const PAUSE: Duration = Duration::from_millis(100);
const TRIES: usize = 10;

/// What was found of what a pod needs.
pub(super) struct Read {
    pub key: Key,
    pub uid: Box<str>,
    pub found: BTreeMap<Need, Found>,
}

/// Reads all that the pod of a key needs.
pub(super) async fn read(api: Api, key: Key, uid: Box<str>, needs: Vec<Need>) -> Read {
    let mut found = BTreeMap::new();
    for need in needs {
        let contents = contents(&api, key.namespace(), &need).await;
        found.insert(need, contents);
    }
    Read { key, uid, found }
}

/// The values of an object. What is refused now may be allowed when the server has heard of the pod.
async fn contents(api: &Api, namespace: &str, (sort, name): &Need) -> Found {
    let resource = match sort {
        Sort::ConfigMap => &CONFIG_MAPS,
        Sort::Secret => &SECRETS,
    };
    for _ in 0..TRIES {
        match api
            .find(resource, &Key::new(namespace, name.as_str()))
            .await
        {
            Ok(Some(object)) => return Ok(Arc::new(contents_of(*sort, &object))),
            Ok(None) => return Err(sort.is_missing(name)),
            Err(_) => sleep(PAUSE).await,
        }
    }
    Err(format!(
        "failed to sync {} cache: timed out waiting for the condition",
        sort.word()
    ))
}

fn contents_of(sort: Sort, object: &Object) -> Contents {
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
        Sort::ConfigMap => (values("data", &plain), values("binaryData", &decoded)),
        Sort::Secret => (values("data", &decoded), BTreeMap::new()),
    };
    Contents {
        version: object.version().into(),
        data,
        binary,
    }
}

/// What several pods have read of the same version of an object, held once.
#[derive(Default)]
pub(super) struct ContentCache {
    known: HashMap<(Str, Need), Weak<Contents>>,
    /// How many there may be before the ones that no pod holds any more are dropped.
    limit: usize,
}

impl ContentCache {
    /// Replaces what was found by what another pod of the namespace holds already.
    pub(super) fn share(&mut self, namespace: &str, found: &mut BTreeMap<Need, Found>) {
        for (need, contents) in found {
            let Ok(contents) = contents else { continue };
            let held = self
                .known
                .entry((namespace.into(), need.clone()))
                .or_default();
            match held
                .upgrade()
                .filter(|held| held.version == contents.version)
            {
                Some(held) => *contents = held,
                None => *held = Arc::downgrade(contents),
            }
        }
        if self.known.len() > self.limit {
            self.known.retain(|_, held| held.strong_count() > 0);
            self.limit = 2 * self.known.len() + 64;
        }
    }
}
