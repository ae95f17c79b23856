//! Reads the ConfigMaps, Secrets and claims of pods, each by name, as the node.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mizzen_component_helpers::node_affinity::RequiredNodeAffinity;
use mizzen_sdk::dynamic::DynamicClient;
use mizzen_sdk::resource::{CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, SECRETS};
use mizzen_sdk::write::message;
use mizzen_sdk::{Key, Object, ResourceType};
use mizzen_value::{Str, Value, value};
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::moment::{Moment, from_value, seconds};
use crate::pod::claims::ReadClaim;
use crate::pod::inputs::TOKEN;
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

/// What reading needs beside the names.
pub(super) struct ReadContext {
    pub tokens: TokenCache,
    pub now: Moment,
    /// The node of the pod.
    pub node: Arc<Object>,
}

/// Reads all objects that a pod references.
pub(super) async fn read_objects(
    api: DynamicClient,
    key: Key,
    uid: Box<str>,
    needs: Vec<ObjectKey>,
    node: ReadContext,
) -> ReadObjects {
    let mut found = BTreeMap::new();
    for need in needs {
        let contents = match need.0 {
            ReferenceKind::Token => {
                let tokens = &node.tokens;
                tokens.token(&api, &key, &uid, &need.1, node.now).await
            }
            ReferenceKind::Claim => claim(&api, key.namespace(), &need.1, &node.node).await,
            _ => contents(&api, key.namespace(), &need).await,
        };
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
        // Read in another way.
        ReferenceKind::Token | ReferenceKind::Claim => return Err(sort.is_missing(name)),
    };
    match find(api, resource, &Key::new(namespace, name.as_str())).await {
        Ok(Some(object)) => Ok(Arc::new(Contents::from_object(*sort, &object))),
        Ok(None) => Err(sort.is_missing(name)),
        Err(_) => Err(format!(
            "failed to sync {} cache: timed out waiting for the condition",
            sort.word()
        )),
    }
}

/// Reads an object, or finds that there is none.
async fn find(
    api: &DynamicClient,
    resource: &ResourceType,
    key: &Key,
) -> Result<Option<Object>, kube::Error> {
    let mut n_tries = 1;
    loop {
        match api.find(resource, key).await {
            Err(_) if n_tries < TRIES => sleep(PAUSE).await,
            found => return found,
        }
        n_tries += 1;
    }
}

/// A claim, with the volume that it names.
async fn claim(api: &DynamicClient, namespace: &str, name: &Str, node: &Object) -> Found {
    let failed = |what: &str, why: String| format!("failed to fetch {what} from API server: {why}");
    let of_claim = |why: String| failed("PVC", why);
    let key = Key::new(namespace, name.as_str());
    let found = find(api, &PERSISTENT_VOLUME_CLAIMS, &key).await;
    let claim = found
        .map_err(|error| of_claim(message(&error)))?
        .ok_or_else(|| of_claim(format!("persistentvolumeclaims {name:?} not found")))?;
    let volume_name = claim["spec"]["volumeName"].str();
    let volume = match volume_name {
        "" => None,
        volume => {
            let found = find(api, &PERSISTENT_VOLUMES, &Key::cluster(volume)).await;
            found.map_err(|error| failed(&format!("PV {volume}"), message(&error)))?
        }
    };
    let version = volume.as_ref().map_or("", |volume| volume.version());
    let version = format!("{} {version}", claim.version()).into();
    let volume = volume.map_or(Value::Null, |volume| volume.0);
    let required = &volume["spec"]["nodeAffinity"]["required"];
    let required = RequiredNodeAffinity::from_parts(&Value::Null, required);
    let label = |name: &str| node["metadata"]["labels"].get(name).map(Value::str);
    let claim = ReadClaim {
        allows_node: required.matches(node.name(), label),
        claim: claim.0,
        volume,
    };
    Ok(Arc::new(Contents {
        version,
        is_final: claim.is_bound(),
        claim: Some(claim),
        ..Contents::default()
    }))
}

/// The tokens of pods' service accounts. Kubernetes: a token is renewed after four fifths of its
/// life, or after a day (pkg/kubelet/token/token_manager.go).
#[derive(Clone, Default)]
pub(super) struct TokenCache(Arc<Mutex<HashMap<TokenKey, CachedToken>>>);

/// The UID of a pod, and the name of its token.
type TokenKey = (Box<str>, Str);

struct CachedToken {
    contents: Arc<Contents>,
    /// When another one is requested.
    renewed: Moment,
    /// When it is invalid.
    expires: Moment,
}

/// Kubernetes: the longest time after which a token is renewed (`maxTTL`).
const LONGEST_TOKEN: Duration = Duration::from_secs(24 * 3600);

impl CachedToken {
    /// The token of a response, which may live for a shorter time than was asked for.
    fn from_response(response: &Value, now: Moment) -> Option<CachedToken> {
        let token = response["status"]["token"].str();
        let life = seconds(&response["spec"]["expirationSeconds"]);
        let expires = from_value(&response["status"]["expirationTimestamp"], now);
        let expires = expires.unwrap_or(now + life);
        let issued = expires.saturating_before(life);
        let contents = Contents {
            data: [(Str::new_static(TOKEN), Str::from(token))].into(),
            ..Contents::default()
        };
        (!token.is_empty()).then(|| CachedToken {
            contents: Arc::new(contents),
            renewed: issued + (life * 4 / 5).min(LONGEST_TOKEN),
            expires,
        })
    }
}

impl TokenCache {
    /// The token of a pod. `name` has its lifetime, the service account and the audience.
    async fn token(
        &self,
        api: &DynamicClient,
        key: &Key,
        uid: &str,
        name: &Str,
        now: Moment,
    ) -> Found {
        let place = (Box::<str>::from(uid), name.clone());
        let valid = |until: fn(&CachedToken) -> Moment| {
            let tokens = self.0.lock();
            let known = tokens.get(&place).filter(|known| now < until(known));
            known.map(|known| known.contents.clone())
        };
        if let Some(contents) = valid(|known| known.renewed) {
            return Ok(contents);
        }
        match request_token(api, key, uid, name).await {
            Ok(response) => {
                let token = CachedToken::from_response(&response, now);
                let token = token.ok_or("failed to fetch token: the response has none")?;
                let contents = token.contents.clone();
                self.0.lock().insert(place, token);
                Ok(contents)
            }
            Err(error) => match valid(|known| known.expires) {
                Some(contents) => {
                    tracing::warn!(%error, pod = %key, "cannot renew a token");
                    Ok(contents)
                }
                None => Err(format!("failed to fetch token: {error}")),
            },
        }
    }

    /// Forgets the tokens of a pod.
    pub(super) fn forget(&self, uid: &str) {
        self.0.lock().retain(|(known, _), _| **known != *uid);
    }
}

/// Requests a token that is bound to a pod.
async fn request_token(
    api: &DynamicClient,
    key: &Key,
    uid: &str,
    name: &Str,
) -> Result<Object, kube::Error> {
    let mut parts = name.splitn(3, ' ');
    let seconds = parts.next().and_then(|text| text.parse().ok());
    let account = parts.next().unwrap_or_default();
    let audience = parts.next().filter(|audience| !audience.is_empty());
    let bound = value!({ "kind": "Pod", "apiVersion": "v1", "name": (key.name()), "uid": uid });
    let request = value!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "audiences": (audience.map(Value::from).into_iter().collect::<Vec<Value>>()),
            "expirationSeconds": (seconds.unwrap_or(3600_i64)),
            "boundObjectRef": bound,
        },
    });
    let path = format!(
        "/api/v1/namespaces/{}/serviceaccounts/{account}/token",
        key.namespace()
    );
    api.raw(http::Method::POST, &path, Some(&Object(request)))
        .await
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
        let (data, binary, encoded) = match sort {
            ReferenceKind::ConfigMap => (
                values("data", &plain),
                values("binaryData", &decoded),
                "binaryData",
            ),
            _ => (values("data", &decoded), BTreeMap::new(), "data"),
        };
        let raw = object[encoded].entries().filter_map(|(key, value)| {
            let bytes = STANDARD.decode(value.str()).unwrap_or_default();
            std::str::from_utf8(&bytes)
                .is_err()
                .then(|| (key.into(), bytes.into()))
        });
        Contents {
            version: object.version().into(),
            name: object.name().into(),
            uid: object.uid().into(),
            kind: object["type"].str().into(),
            data,
            binary,
            raw: raw.collect(),
            claim: None,
            is_final: object["immutable"].bool(),
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
    /// Replaces contents by those that another pod of the namespace holds already. A token is that of one
    /// pod, whose next one has the same name.
    pub(super) fn share(&mut self, namespace: &str, found: &mut BTreeMap<ObjectKey, Found>) {
        for (need, contents) in found {
            let Ok(contents) = contents else { continue };
            if need.0 == ReferenceKind::Token {
                continue;
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moment::to_value;

    const NOW: Moment = Moment::from_secs(1_700_000_000);

    /// When a token is renewed and when it expires, in seconds, if it was issued some seconds ago.
    fn life(seconds: i64, age: u64) -> (u64, u64) {
        let issued = NOW.saturating_before(Duration::from_secs(age));
        let life = Duration::from_secs(u64::try_from(seconds).unwrap());
        let response = value!({
            "spec": { "expirationSeconds": seconds },
            "status": { "token": "t", "expirationTimestamp": (to_value(issued + life)) },
        });
        let token = CachedToken::from_response(&response, NOW).unwrap();
        let after = |moment: Moment| moment.saturating_since(NOW).as_secs();
        (after(token.renewed), after(token.expires))
    }

    #[test]
    fn a_token_is_renewed_by_the_life_that_the_server_has_given_it() {
        assert_eq!(life(3600, 0), (2880, 3600));
        assert_eq!(life(3600, 600), (2280, 3000));
        let day = 24 * 3600;
        assert_eq!(life(7 * day, 0), (24 * 3600, 7 * 24 * 3600));
        let none = value!({ "spec": { "expirationSeconds": 3600 }, "status": {} });
        assert!(CachedToken::from_response(&none, NOW).is_none());
    }

    #[test]
    fn contents_are_shared_and_tokens_are_not() {
        let mut cache = ContentCache::default();
        let mut read = |kind: ReferenceKind| {
            let mut found = BTreeMap::from([((kind, Str::new_static("a")), Ok(Arc::default()))]);
            cache.share("default", &mut found);
            found.into_values().next().unwrap().unwrap()
        };
        for (kind, is_shared) in [
            (ReferenceKind::ConfigMap, true),
            (ReferenceKind::Secret, true),
            (ReferenceKind::Token, false),
        ] {
            let (one, other): (Arc<Contents>, Arc<Contents>) = (read(kind), read(kind));
            assert_eq!(Arc::ptr_eq(&one, &other), is_shared, "{}", kind.word());
        }
    }
}
