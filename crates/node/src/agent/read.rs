//! What pods need is read: each object by its name, in the name of the node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mizzen_object::Str;
use mizzen_sdk::api::Api;
use mizzen_sdk::resource::{CONFIG_MAPS, SECRETS};
use mizzen_sdk::{Key, Object};
use tokio::time::sleep;

use crate::pod::supply::{Found, Need, Sort};

/// Kubernetes: how long and how often a kubelet looks before it gives up for now (watch_based_manager.go).
const PAUSE: Duration = Duration::from_millis(100);
const TRIES: usize = 10;

/// What was found of what a pod needs.
pub struct Read {
    pub key: Key,
    pub uid: Box<str>,
    pub found: BTreeMap<Need, Found>,
}

/// Reads all that the pod of a key needs.
pub async fn read(api: Api, key: Key, uid: Box<str>, needs: Vec<Need>) -> Read {
    let mut found = BTreeMap::new();
    for need in needs {
        let keys = keys(&api, key.namespace(), &need).await;
        found.insert(need, keys);
    }
    Read { key, uid, found }
}

/// The keys of an object. What is refused now may be allowed when the server has heard of the pod.
async fn keys(api: &Api, namespace: &str, (sort, name): &Need) -> Found {
    let resource = match sort {
        Sort::ConfigMap => &CONFIG_MAPS,
        Sort::Secret => &SECRETS,
    };
    for _ in 0..TRIES {
        match api.find(resource, &Key::new(namespace, name.as_str())).await {
            Ok(Some(object)) => return Ok(keys_of(&object)),
            Ok(None) => return Err(sort.is_missing(name)),
            Err(_) => sleep(PAUSE).await,
        }
    }
    Err(format!("failed to sync {} cache: timed out waiting for the condition", sort.word()))
}

fn keys_of(object: &Object) -> BTreeSet<Str> {
    let data = object["data"].entries().chain(object["binaryData"].entries());
    data.map(|(key, _)| key.into()).collect()
}
