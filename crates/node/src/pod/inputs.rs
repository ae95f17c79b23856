//! The inputs of a container beside its image: environment variables and files of volumes.
//!
//! Both come from the pod, from the ConfigMaps and Secrets that it references, and from its node.
//! Variables are resolved once, when a container starts; files follow their sources.
//!
//! Invariant: pure. Objects that were read are passed in as [`Contents`].

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use mizzen_value::quantity::Quantity;
use mizzen_value::{Str, Value, json};

use super::PodAddresses;
use super::claims::{ClaimedVolume, claim_name};
use super::references::{Contents, Found, ObjectKey, ReferenceKind};
use super::spec;
use crate::moment::Moment;

/// Environment variables by name.
pub type Variables = BTreeMap<Str, Str>;
/// Files by path; `None` if the content is not known.
pub type Files = BTreeMap<Str, Option<Str>>;

/// A file of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VolumeFile {
    /// Its path in the volume.
    pub path: Str,
    /// Its content.
    pub content: Bytes,
    /// Its permissions.
    pub mode: u32,
    /// The user that owns it; root otherwise.
    pub owner: Option<u32>,
}

/// What a volume is made of, other than its own specification.
#[derive(Debug, Clone, PartialEq)]
pub enum VolumeContent {
    /// The files of API objects.
    Files(Vec<VolumeFile>),
    /// The PersistentVolume of its claim.
    Claim(ClaimedVolume),
}

/// The contents of a pod's volumes by name; none for a volume that has all in its specification.
pub type VolumeContents = BTreeMap<Str, VolumeContent>;

/// Kubernetes: the default permissions of files (pkg/apis/core/v1/defaults.go).
const DEFAULT_MODE: i64 = 0o644;
/// Kubernetes: the permissions of a token if its user or group is known (pkg/volume/projected).
const OWNED_TOKEN_MODE: u32 = 0o600;

/// The inputs of one container instance.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Inputs {
    /// Its environment at its start; `None` if it follows from the specification alone.
    pub variables: Option<Variables>,
    /// The files of its volumes with the time of each version, oldest first; empty if its commands
    /// read none.
    pub files: Vec<(Moment, Files)>,
    /// The variables of Services at its start.
    pub services: ServiceVariables,
    /// The input to its stdin, with times; `None` closes it.
    pub stdin: Vec<(Moment, Option<Bytes>)>,
}

/// The environment variables of Services.
pub type ServiceVariables = Vec<(Str, Str)>;

/// The most versions of files that are kept.
const MOST_VERSIONS: usize = 16;

/// No inputs beside the specification.
pub static NO_INPUTS: Inputs = Inputs {
    variables: None,
    files: Vec::new(),
    services: Vec::new(),
    stdin: Vec::new(),
};

impl Inputs {
    /// Adds a version of the files.
    pub fn update_files(&mut self, files: Files, now: Moment) {
        if self.files.len() == MOST_VERSIONS {
            self.files.remove(1);
        }
        self.files.push((now, files));
    }
}

/// No variables.
pub static NO_VARIABLES: Variables = Variables::new();

/// What inputs are made of.
#[derive(Clone, Copy)]
pub struct InputSources<'a> {
    /// The pod; its status may lack the fields below.
    pub pod: &'a Value,
    /// The pod's IPs.
    pub pod_ips: &'a PodAddresses,
    /// The node.
    pub node: NodeContext<'a>,
    /// The environment variables of Services.
    pub services: &'a [(Str, Str)],
    /// The ConfigMaps and Secrets that were read for it.
    pub found: &'a BTreeMap<ObjectKey, Found>,
    /// The values of variables from files, by name ([`super::env_file`]).
    pub from_files: &'a Variables,
}

/// What a node adds to its containers.
#[derive(Clone, Copy)]
pub struct NodeContext<'a> {
    /// Its address.
    pub host_ip: &'a str,
    /// Its allocatable resources.
    pub allocatable: &'a Value,
    /// The inputs that all containers of the pod share: the variables of Services.
    pub common: Option<&'a Arc<Inputs>>,
}

impl<'a> NodeContext<'a> {
    /// A node without any data.
    pub const NONE: NodeContext<'static> = NodeContext {
        host_ip: "",
        allocatable: &Value::Null,
        common: None,
    };

    /// The current environment variables of Services.
    pub fn services(&self) -> &'a [(Str, Str)] {
        self.common.map_or(&[], |common| &common.services)
    }
}

impl InputSources<'_> {
    /// The environment of a container. Kubernetes: `envFrom` first, then `env`, then services
    /// (kubelet_pods.go, `makeEnvironmentVariables`).
    pub fn variables(&self, container: &Value) -> Variables {
        let mut variables = Variables::new();
        for from in container["envFrom"].list() {
            let prefix = from["prefix"].str();
            for (sort, field) in [
                (ReferenceKind::ConfigMap, "configMapRef"),
                (ReferenceKind::Secret, "secretRef"),
            ] {
                let Some(contents) = self.contents(sort, from[field]["name"].str()) else {
                    continue;
                };
                let prefixed =
                    |(key, value): (&Str, &Str)| (format!("{prefix}{key}").into(), value.clone());
                variables.extend(contents.data.iter().map(prefixed));
            }
        }
        for variable in container["env"].list() {
            let value = match variable["value"].str() {
                "" => self.value_from(variable, container),
                value => Some(expand(value, &|name| self.lookup(&variables, name))),
            };
            if let Some(value) = value {
                variables.insert(variable["name"].str().into(), value);
            }
        }
        for (name, value) in self.services {
            variables
                .entry(name.clone())
                .or_insert_with(|| value.clone());
        }
        variables
    }

    fn lookup(&self, variables: &Variables, name: &str) -> Option<Str> {
        let service = || {
            let mut services = self.services.iter();
            services
                .find(|(known, _)| known == name)
                .map(|(_, value)| value)
        };
        variables.get(name).or_else(service).cloned()
    }

    /// `None` if an optional source is missing.
    fn value_from(&self, variable: &Value, container: &Value) -> Option<Str> {
        let source = &variable["valueFrom"];
        let key_of = |sort: ReferenceKind, field: &str| {
            let reference = &source[field];
            self.contents(sort, reference["name"].str())?
                .data
                .get(reference["key"].str())
                .cloned()
        };
        if !source["fieldRef"].is_null() {
            return Some(self.field(source["fieldRef"]["fieldPath"].str()));
        }
        if !source["resourceFieldRef"].is_null() {
            return Some(self.resource(&source["resourceFieldRef"], container));
        }
        if !source["configMapKeyRef"].is_null() {
            return key_of(ReferenceKind::ConfigMap, "configMapKeyRef");
        }
        if !source["secretKeyRef"].is_null() {
            return key_of(ReferenceKind::Secret, "secretKeyRef");
        }
        if !source["fileKeyRef"].is_null() {
            return self.from_files.get(variable["name"].str()).cloned();
        }
        Some(Str::default())
    }

    fn contents(&self, sort: ReferenceKind, name: &str) -> Option<&Contents> {
        self.found
            .get(&(sort, name.into()))?
            .as_ref()
            .ok()
            .map(|contents| &**contents)
    }

    /// Kubernetes: the paths of `fieldRef` (pkg/fieldpath, and kubelet_pods.go for the node's).
    fn field(&self, path: &str) -> Str {
        let metadata = &self.pod["metadata"];
        let subscript = path
            .strip_suffix("']")
            .and_then(|path| path.split_once("['"));
        let value = match (path, subscript) {
            (_, Some(("metadata.labels", key))) => &metadata["labels"][key],
            (_, Some(("metadata.annotations", key))) => &metadata["annotations"][key],
            ("metadata.labels", _) => return format_map(&metadata["labels"]),
            ("metadata.annotations", _) => return format_map(&metadata["annotations"]),
            ("metadata.name", _) => &metadata["name"],
            ("metadata.namespace", _) => &metadata["namespace"],
            ("metadata.uid", _) => &metadata["uid"],
            ("spec.nodeName", _) => &self.pod["spec"]["nodeName"],
            ("spec.serviceAccountName", _) => &self.pod["spec"]["serviceAccountName"],
            ("status.podIP", _) => return self.pod_ips.first.clone(),
            ("status.podIPs", _) => return self.pod_ips.join(),
            ("status.hostIP" | "status.hostIPs", _) => return self.node.host_ip.into(),
            _ => return Str::default(),
        };
        value.str().into()
    }

    /// Kubernetes: the amount by the divisor, rounded up; an unset limit is the pod's, or the
    /// node's allocatable amount (pkg/api/v1/resource/helpers.go, kubelet_resources.go).
    fn resource(&self, reference: &Value, container: &Value) -> Str {
        let container = match reference["containerName"].str() {
            "" => container,
            name => spec::container(self.pod, name),
        };
        let Some((list, name)) = reference["resource"].str().split_once('.') else {
            return Str::default();
        };
        let quantity = |value: &Value| Quantity::parse_or_zero(value.str());
        let mut amount = quantity(&container["resources"][list][name]);
        let has_default =
            list == "limits" && matches!(name, "cpu" | "memory" | "ephemeral-storage");
        if amount.is_zero() && has_default {
            let of_pod = quantity(&self.pod["spec"]["resources"]["limits"][name]);
            amount = if of_pod.is_zero() {
                quantity(&self.node.allocatable[name])
            } else {
                of_pod
            };
        }
        let divisor = quantity(&reference["divisor"]);
        let count = |quantity: &Quantity| match name {
            "cpu" => quantity.milli_value(),
            _ => quantity.value(),
        };
        let unit = if name == "cpu" { 1000 } else { 1 };
        let divisor = if divisor.is_zero() {
            unit
        } else {
            count(&divisor)
        };
        ((count(&amount) as f64 / divisor as f64).ceil() as i64)
            .to_string()
            .into()
    }

    /// The current files of a container whose files were `before`. Kubernetes: a `subPath` does not
    /// follow its volume.
    pub fn changed_files(&self, container: &Value, before: &Files) -> Files {
        let fixed: Vec<&str> = container["volumeMounts"]
            .list()
            .iter()
            .filter(|mount| !mount["subPath"].is_empty() || !mount["subPathExpr"].is_empty())
            .map(|mount| mount["mountPath"].str().trim_end_matches('/'))
            .collect();
        let is_fixed = |path: &Str| fixed.iter().any(|mount| is_below(path, mount));
        let mut files = self.files(container);
        files.retain(|path, _| !is_fixed(path));
        let kept = before.iter().filter(|(path, _)| is_fixed(path));
        files.extend(kept.map(|(path, content)| (path.clone(), content.clone())));
        files
    }

    /// The files of a container's volumes, as far as they are known.
    pub fn files(&self, container: &Value) -> Files {
        let mut files = Files::new();
        for mount in container["volumeMounts"].list() {
            let mut volumes = self.pod["spec"]["volumes"].list().iter();
            let Some(volume) = volumes.find(|volume| volume["name"] == mount["name"]) else {
                continue;
            };
            let (path, below) = (
                mount["mountPath"].str().trim_end_matches('/'),
                self.sub_path(mount, container),
            );
            for (name, content) in self.volume(volume) {
                // A subPath is a directory or a file of the volume.
                let rest = match below.as_str() {
                    "" => Some(format!("/{name}")),
                    below if name == below => Some(String::new()),
                    below => name
                        .strip_prefix(below)
                        .filter(|rest| rest.starts_with('/'))
                        .map(Into::into),
                };
                if let Some(rest) = rest {
                    files.insert(format!("{path}{rest}").into(), content);
                }
            }
        }
        files
    }

    /// The files of one volume by their path in it.
    fn volume(&self, volume: &Value) -> Files {
        let mut files = Files::new();
        for source in projections(volume) {
            let object = source.object;
            match source.sort {
                Projection::Object(sort) => {
                    let name = object[source.name].str();
                    files.extend(
                        self.contents(sort, name)
                            .into_iter()
                            .flat_map(|contents| contents.files(object)),
                    );
                }
                Projection::Downward => files.extend(object["items"].list().iter().map(|item| {
                    let content = match &item["resourceFieldRef"] {
                        Value::Null => self.field(item["fieldRef"]["fieldPath"].str()),
                        reference => self.resource(reference, &Value::Null),
                    };
                    (item["path"].str().into(), Some(content))
                })),
                // Simulated containers get no token.
                Projection::Token => drop(files.insert(object["path"].str().into(), None)),
            }
        }
        files
    }

    /// The contents of all volumes of the pod, as far as they are known.
    pub fn volumes(&self) -> VolumeContents {
        let volumes = self.pod["spec"]["volumes"].list().iter();
        let content = |volume: &Value| match claim_name(self.pod, volume) {
            Some(claim) => {
                let contents = self.contents(ReferenceKind::Claim, &claim)?;
                let claimed = contents.claim.as_ref()?.claimed(volume);
                Some(VolumeContent::Claim(claimed))
            }
            None => is_made(volume).then(|| VolumeContent::Files(self.volume_files(volume))),
        };
        let named = |volume: &Value| Some((volume["name"].str().into(), content(volume)?));
        volumes.filter_map(named).collect()
    }

    fn volume_files(&self, volume: &Value) -> Vec<VolumeFile> {
        let mut files: BTreeMap<Str, VolumeFile> = BTreeMap::new();
        let default = ["configMap", "secret", "downwardAPI", "projected"]
            .into_iter()
            .find_map(|kind| volume[kind]["defaultMode"].as_int())
            .unwrap_or(DEFAULT_MODE);
        for source in projections(volume) {
            let items = source.object["items"].list();
            let mode = |path: &str| {
                let item = items.iter().find(|item| item["path"].str() == path);
                let mode = item.and_then(|item| item["mode"].as_int());
                u32::try_from(mode.unwrap_or(default)).unwrap_or_default()
            };
            let mut add = |path: Str, content: Bytes| {
                let mode = mode(&path);
                let file = VolumeFile {
                    path: path.clone(),
                    content,
                    mode,
                    owner: None,
                };
                files.insert(path, file);
            };
            match source.sort {
                Projection::Object(sort) => {
                    let name = source.object[source.name].str();
                    let contents = self.contents(sort, name).into_iter();
                    contents
                        .flat_map(|contents| contents.raw_files(source.object))
                        .for_each(|(path, content)| add(path, content));
                }
                Projection::Downward => items.iter().for_each(|item| {
                    let content = match &item["resourceFieldRef"] {
                        Value::Null => self.field(item["fieldRef"]["fieldPath"].str()),
                        reference => self.resource(reference, &Value::Null),
                    };
                    add(item["path"].str().into(), bytes_of(&content));
                }),
                Projection::Token => {
                    let token =
                        self.contents(ReferenceKind::Token, &token_name(self.pod, source.object));
                    if let Some(token) = token.and_then(|token| token.data.get(TOKEN)) {
                        let mut file = VolumeFile {
                            path: source.object["path"].str().into(),
                            content: bytes_of(token),
                            mode: mode(source.object["path"].str()),
                            owner: spec::common_user(self.pod),
                        };
                        let group = &self.pod["spec"]["securityContext"]["fsGroup"];
                        if file.owner.is_some() || !group.is_null() {
                            file.mode = OWNED_TOKEN_MODE;
                        }
                        files.insert(file.path.clone(), file);
                    }
                }
            }
        }
        files.into_values().collect()
    }

    /// Kubernetes: `subPath`, or `subPathExpr` with its variables.
    fn sub_path(&self, mount: &Value, container: &Value) -> String {
        let path: String = match mount["subPathExpr"].str() {
            "" => mount["subPath"].str().into(),
            expression => {
                let variables = self.variables(container);
                expand(expression, &|name| variables.get(name).cloned())
            }
        };
        path.trim_matches('/').into()
    }
}

fn bytes_of(text: &Str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Whether a volume is made of API objects, even if of none.
fn is_made(volume: &Value) -> bool {
    ["configMap", "secret", "downwardAPI", "projected"]
        .iter()
        .any(|kind| !volume[*kind].is_null())
}

/// The key of a token in its [`Contents`].
pub const TOKEN: &str = "token";

/// The name by which the token of a projection is read: its lifetime in seconds, the service
/// account, and its audience.
fn token_name(pod: &Value, projection: &Value) -> Str {
    let seconds = projection["expirationSeconds"].as_int().unwrap_or(3600);
    let account = pod["spec"]["serviceAccountName"].str();
    format!("{seconds} {account} {}", projection["audience"].str()).into()
}

/// The tokens of a pod's volumes.
pub fn token_names(pod: &Value) -> impl Iterator<Item = Str> + '_ {
    let sources = pod["spec"]["volumes"].list().iter().flat_map(projections);
    sources
        .filter(|source| matches!(source.sort, Projection::Token))
        .map(|source| token_name(pod, source.object))
}

/// Whether a path is `parent`, or below it.
pub fn is_below(path: &str, parent: &str) -> bool {
    path.strip_prefix(parent)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Contents {
    /// The files that a volume makes of it: all keys, or those of `items`.
    fn files(&self, reference: &Value) -> Files {
        let keys = || self.data.iter().chain(&self.binary);
        if reference["items"].list().is_empty() {
            return keys()
                .map(|(key, value)| (key.clone(), Some(value.clone())))
                .collect();
        }
        let content = |key: &str| {
            keys()
                .find(|(known, _)| *known == key)
                .map(|(_, value)| value.clone())
        };
        let items = reference["items"].list().iter();
        items
            .filter_map(|item| Some((item["path"].str().into(), Some(content(item["key"].str())?))))
            .collect()
    }
}

impl Contents {
    /// The same as bytes.
    fn raw_files(&self, reference: &Value) -> Vec<(Str, Bytes)> {
        let raw = |key: &str| {
            let text = || self.data.get(key).or_else(|| self.binary.get(key));
            let raw = self.raw.get(key).cloned();
            raw.or_else(|| text().map(bytes_of))
        };
        let items = reference["items"].list();
        if items.is_empty() {
            let keys = self.data.keys().chain(self.binary.keys());
            return keys
                .filter_map(|key| Some((key.clone(), raw(key)?)))
                .collect();
        }
        let named = items.iter().filter_map(|item| {
            let content = raw(item["key"].str())?;
            Some((item["path"].str().into(), content))
        });
        named.collect()
    }
}

/// One source of a volume's files.
struct ProjectionSource<'a> {
    sort: Projection,
    object: &'a Value,
    /// The field of `object` that has the name.
    name: &'static str,
}

#[derive(Clone, Copy)]
enum Projection {
    Object(ReferenceKind),
    Downward,
    Token,
}

fn projections(volume: &Value) -> impl Iterator<Item = ProjectionSource<'_>> {
    let own = [
        (
            Projection::Object(ReferenceKind::ConfigMap),
            &volume["configMap"],
            "name",
        ),
        (
            Projection::Object(ReferenceKind::Secret),
            &volume["secret"],
            "secretName",
        ),
        (Projection::Downward, &volume["downwardAPI"], ""),
    ];
    let projected = volume["projected"]["sources"]
        .list()
        .iter()
        .flat_map(|source| {
            [
                (
                    Projection::Object(ReferenceKind::ConfigMap),
                    &source["configMap"],
                    "name",
                ),
                (
                    Projection::Object(ReferenceKind::Secret),
                    &source["secret"],
                    "name",
                ),
                (Projection::Downward, &source["downwardAPI"], ""),
                (Projection::Token, &source["serviceAccountToken"], ""),
            ]
        });
    let all = own
        .into_iter()
        .chain(projected)
        .filter(|(_, object, _)| !object.is_null());
    all.map(|(sort, object, name)| ProjectionSource { sort, object, name })
}

/// The mounts of a container below which every file is known.
pub fn known_mounts<'a>(pod: &'a Value, container: &'a Value) -> impl Iterator<Item = &'a str> {
    let is_known = |mount: &&Value| {
        let mut volumes = pod["spec"]["volumes"].list().iter();
        let volume = volumes.find(|volume| volume["name"] == mount["name"]);
        volume.is_some_and(|volume| projections(volume).next().is_some())
    };
    let mounts = container["volumeMounts"].list().iter().filter(is_known);
    mounts.map(|mount| mount["mountPath"].str().trim_end_matches('/'))
}

/// The ConfigMaps and Secrets of a container's volumes.
pub fn mounted_objects(pod: &Value, container: &Value) -> Vec<ObjectKey> {
    let volumes = pod["spec"]["volumes"].list().iter();
    let mounted = volumes.filter(|volume| {
        container["volumeMounts"]
            .list()
            .iter()
            .any(|mount| mount["name"] == volume["name"])
    });
    let objects = mounted
        .flat_map(projections)
        .filter_map(|source| match source.sort {
            Projection::Object(sort) => Some((sort, source.object[source.name].str().into())),
            _ => None,
        });
    objects.collect()
}

/// Whether the environment of a container depends on objects that may change while it runs.
pub(super) fn has_volatile_variables(container: &Value) -> bool {
    let is_volatile = |variable: &Value| {
        let source = &variable["valueFrom"];
        let path = source["fieldRef"]["fieldPath"].str();
        !source.is_null() && (source["fieldRef"].is_null() || path.contains("['"))
    };
    !container["envFrom"].list().is_empty() || container["env"].list().iter().any(is_volatile)
}

/// Kubernetes: labels or annotations as lines, sorted by key (pkg/fieldpath, `FormatMap`).
fn format_map(map: &Value) -> Str {
    let sorted: BTreeMap<&str, &Value> = map.entries().collect();
    let lines = sorted
        .iter()
        .map(|(key, value)| format!("{key}={}", json::quote(value.str())));
    lines.collect::<Vec<String>>().join("\n").into()
}

/// Kubernetes: `$(NAME)` is replaced if the variable is known, and `$$` is a dollar
/// (third_party/forked/golang/expansion).
pub fn expand<T: From<String>>(text: &str, lookup: &dyn Fn(&str) -> Option<Str>) -> T {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let named = after
            .strip_prefix('(')
            .and_then(|after| after.split_once(')'));
        rest = match named.and_then(|(name, rest)| Some((lookup(name)?, rest))) {
            _ if after.starts_with('$') => {
                out.push('$');
                &after[1..]
            }
            Some((value, rest)) => {
                out.push_str(&value);
                rest
            }
            None => {
                out.push('$');
                after
            }
        };
    }
    T::from(out + rest)
}

#[cfg(test)]
mod tests {
    use mizzen_value::yaml;

    use super::*;

    /// A ConfigMap `config` and a Secret `secret`.
    fn found() -> BTreeMap<ObjectKey, Found> {
        let values = |values: &[(&str, &str)]| {
            values
                .iter()
                .map(|(key, value)| (Str::from(*key), Str::from(*value)))
                .collect()
        };
        let config = Contents {
            version: "1".into(),
            data: values(&[("a", "1"), ("b.txt", "two\nlines\n")]),
            binary: values(&[("bin", "raw")]),
            ..Contents::default()
        };
        let secret = Contents {
            data: values(&[("pass", "s3cret")]),
            ..Contents::default()
        };
        let missing = Err("configmap \"gone\" not found".into());
        [
            (
                (ReferenceKind::ConfigMap, "config".into()),
                Ok(Arc::new(config)),
            ),
            (
                (ReferenceKind::Secret, "secret".into()),
                Ok(Arc::new(secret)),
            ),
            ((ReferenceKind::ConfigMap, "gone".into()), missing),
        ]
        .into()
    }

    /// Reads the inputs of a pod with one container.
    fn with<T>(spec: &str, read: impl Fn(&InputSources, &Value) -> T) -> T {
        let text = format!(
            "{{metadata: {{name: web-0, namespace: shop, uid: u1, labels: {{b: x, a-b: v, a: 'q\"'}}, annotations: {{note: '7'}}}}, \
             spec: {{nodeName: node-3, serviceAccountName: robot, {spec}}}}}"
        );
        let pod = yaml::read(text.as_bytes()).unwrap().value;
        let allocatable = mizzen_value::value!({ "cpu": "8", "memory": "32Gi" });
        let services = [("KUBERNETES_SERVICE_HOST".into(), "10.0.0.1".into())];
        let node = NodeContext {
            host_ip: "127.0.0.4",
            allocatable: &allocatable,
            common: None,
        };
        let ips = ["10.1.2.3", "fd00::3"].map(Str::from);
        let sources = InputSources {
            pod: &pod,
            pod_ips: &PodAddresses::of_sandbox(&ips, ""),
            node,
            services: &services,
            found: &found(),
            from_files: &[("X".into(), "of a file".into())].into(),
        };
        read(&sources, &pod["spec"]["containers"][0])
    }

    #[track_caller]
    fn check_variable(variable: &str, expected: Option<&str>) {
        let spec = format!(
            "containers: [{{name: c, resources: {{limits: {{cpu: 1500m}}, requests: {{memory: 100Mi}}}}, \
             env: [{{name: FIRST, value: one}}, {{name: X, {variable}}}]}}]"
        );
        let found = with(&spec, |sources, container| {
            sources.variables(container).get("X").cloned()
        });
        assert_eq!(found.as_deref(), expected, "{variable}");
    }

    #[test]
    fn a_variable_has_the_value_of_its_source() {
        let from = |source: &str| format!("valueFrom: {{{source}}}");
        let field = |path: &str| from(&format!("fieldRef: {{fieldPath: \"{path}\"}}"));
        let resource = |reference: &str| from(&format!("resourceFieldRef: {{{reference}}}"));
        check_variable(
            "value: '$(FIRST)-$$(FIRST)-$(LATER)-$(KUBERNETES_SERVICE_HOST)'",
            Some("one-$(FIRST)-$(LATER)-10.0.0.1"),
        );
        check_variable(&from("configMapKeyRef: {name: config, key: a}"), Some("1"));
        check_variable(&from("fileKeyRef: {key: k}"), Some("of a file"));
        check_variable(
            &from("secretKeyRef: {name: secret, key: pass}"),
            Some("s3cret"),
        );
        check_variable(
            &from("configMapKeyRef: {name: config, key: none, optional: true}"),
            None,
        );
        check_variable(
            &from("configMapKeyRef: {name: gone, key: a, optional: true}"),
            None,
        );
        for (path, value) in [
            ("metadata.name", "web-0"),
            ("metadata.namespace", "shop"),
            ("metadata.uid", "u1"),
            ("metadata.labels['b']", "x"),
            ("metadata.labels['none']", ""),
            ("metadata.annotations['note']", "7"),
            ("spec.nodeName", "node-3"),
            ("spec.serviceAccountName", "robot"),
            ("status.podIP", "10.1.2.3"),
            ("status.podIPs", "10.1.2.3,fd00::3"),
            ("status.hostIP", "127.0.0.4"),
            ("status.hostIPs", "127.0.0.4"),
        ] {
            check_variable(&field(path), Some(value));
        }
        check_variable(&resource("resource: limits.cpu"), Some("2"));
        check_variable(&resource("resource: limits.cpu, divisor: 1m"), Some("1500"));
        check_variable(
            &resource("resource: requests.memory, divisor: 1Mi"),
            Some("100"),
        );
        check_variable(
            &resource("resource: requests.memory, divisor: 0"),
            Some("104857600"),
        );
        check_variable(&resource("resource: requests.cpu"), Some("0"));
        check_variable(
            &resource("resource: limits.memory, divisor: 1Gi, containerName: c"),
            Some("32"),
        );
    }

    #[test]
    fn whole_objects_come_before_single_variables_and_services_last() {
        let spec = "containers: [{name: c, envFrom: [{prefix: P_, configMapRef: {name: config}}, {secretRef: {name: secret}}], \
                    env: [{name: pass, value: own}, {name: Z, value: $(P_a)}]}]";
        let variables = with(spec, |sources, container| sources.variables(container));
        let found: Vec<String> = variables
            .iter()
            .map(|(name, value)| format!("{name}={value:?}"))
            .collect();
        assert_eq!(
            found,
            [
                "KUBERNETES_SERVICE_HOST=\"10.0.0.1\"",
                "P_a=\"1\"",
                "P_b.txt=\"two\\nlines\\n\"",
                "Z=\"1\"",
                "pass=\"own\""
            ]
        );
    }

    #[track_caller]
    fn check_files(mount: &str, volume: &str, expected: &[(&str, &str)]) {
        let spec = format!(
            "containers: [{{name: c, env: [{{name: D, value: dir}}], volumeMounts: [{{name: v, mountPath: /m/, {mount}}}]}}], \
             volumes: [{{name: v, {volume}}}]"
        );
        let files = with(&spec, |sources, container| sources.files(container));
        let found: Vec<(&str, &str)> = files
            .iter()
            .map(|(path, content)| (path.as_str(), content.as_deref().unwrap_or("?")))
            .collect();
        assert_eq!(found, expected, "{mount} {volume}");
    }

    #[test]
    fn files_are_made_of_what_volumes_name() {
        let all = [
            ("/m/a", "1"),
            ("/m/b.txt", "two\nlines\n"),
            ("/m/bin", "raw"),
        ];
        check_files("", "configMap: {name: config}", &all);
        check_files("", "configMap: {name: gone, optional: true}", &[]);
        check_files(
            "",
            "configMap: {name: config, items: [{key: a, path: dir/x}]}",
            &[("/m/dir/x", "1")],
        );
        check_files("subPath: a", "configMap: {name: config}", &[("/m", "1")]);
        let items = "configMap: {name: config, items: [{key: a, path: dir/x}, {key: bin, path: directory}]}";
        check_files("subPath: dir/", items, &[("/m/x", "1")]);
        check_files("subPathExpr: $(D)", items, &[("/m/x", "1")]);
        check_files("", "secret: {secretName: secret}", &[("/m/pass", "s3cret")]);
        check_files("", "emptyDir: {}", &[]);
        let downward = "downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}, \
                        {path: cpu, resourceFieldRef: {containerName: c, resource: limits.cpu}}]}";
        check_files(
            "",
            downward,
            &[
                ("/m/cpu", "8"),
                ("/m/labels", "a=\"q\\\"\"\na-b=\"v\"\nb=\"x\""),
            ],
        );
        let projected = "projected: {sources: [{serviceAccountToken: {path: token}}, {secret: {name: secret}}, \
                         {configMap: {name: config, items: [{key: a, path: ca.crt}]}}, \
                         {downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}}]}";
        check_files(
            "",
            projected,
            &[
                ("/m/ca.crt", "1"),
                ("/m/namespace", "shop"),
                ("/m/pass", "s3cret"),
                ("/m/token", "?"),
            ],
        );
    }

    #[test]
    fn a_sub_path_does_not_follow_its_volume() {
        let spec = "containers: [{name: c, volumeMounts: [{name: v, mountPath: /m}, {name: v, mountPath: /x, subPath: a}]}], \
                    volumes: [{name: v, configMap: {name: config, items: [{key: a, path: a}]}}]";
        let before: Files = [
            ("/m/a".into(), Some("0".into())),
            ("/x".into(), Some("0".into())),
        ]
        .into();
        let after = with(spec, |sources, container| {
            sources.changed_files(container, &before)
        });
        assert_eq!(
            after,
            [
                ("/m/a".into(), Some("1".into())),
                ("/x".into(), Some("0".into()))
            ]
            .into()
        );
    }
}
