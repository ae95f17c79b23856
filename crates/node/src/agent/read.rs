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

use crate::moment::Moment;
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
    renew_at: Moment,
}

const TOKEN_DAY: Duration = Duration::from_secs(24 * 3600);

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
        if let Some(known) = self.0.lock().get(&place)
            && now < known.renew_at
        {
            return Ok(known.contents.clone());
        }
        let mut parts = name.splitn(3, ' ');
        let seconds: u64 = parts
            .next()
            .and_then(|text| text.parse().ok())
            .unwrap_or(3600);
        let account = parts.next().unwrap_or_default();
        let audience = parts.next().filter(|audience| !audience.is_empty());
        let bound = value!({ "kind": "Pod", "apiVersion": "v1", "name": (key.name()), "uid": uid });
        let request = value!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": (audience.map(Value::from).into_iter().collect::<Vec<Value>>()),
                "expirationSeconds": (i64::try_from(seconds).unwrap_or(3600)),
                "boundObjectRef": bound,
            },
        });
        let path = format!(
            "/api/v1/namespaces/{}/serviceaccounts/{account}/token",
            key.namespace()
        );
        let made = api
            .raw(http::Method::POST, &path, Some(&Object(request)))
            .await;
        let failed = |why: String| format!("failed to fetch token: {why}");
        let made = made.map_err(|error| failed(error.to_string()))?;
        let token = made["status"]["token"].str();
        if token.is_empty() {
            return Err(failed("the response has none".into()));
        }
        let contents = Arc::new(Contents {
            data: [(Str::new_static(TOKEN), Str::from(token))].into(),
            ..Contents::default()
        });
        let renew_at = now + (Duration::from_secs(seconds) * 4 / 5).min(TOKEN_DAY);
        let cached = CachedToken {
            contents: contents.clone(),
            renew_at,
        };
        self.0.lock().insert(place, cached);
        Ok(contents)
    }

    /// Forgets the tokens of a pod.
    pub(super) fn forget(&self, uid: &str) {
        self.0.lock().retain(|(known, _), _| **known != *uid);
    }
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
