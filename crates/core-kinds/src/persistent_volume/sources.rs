//! Validation of the volume source of a PersistentVolume.

use mizzen_object::validate::{field, names};
use mizzen_object::{Path, Violations};
use mizzen_value::Value;
use mizzen_value::address::is_host_and_port;

use super::super::fields::{dns_label, dns_subdomain};

/// A volume has one source, and it is sound.
pub(super) fn validate(volume: &Value, path: &Path, violations: &mut Violations) {
    let spec = &volume["spec"];
    let present: Vec<&PersistentVolumeSource> = SOURCES
        .iter()
        .filter(|source| !spec[source.field].is_null())
        .collect();
    if present.is_empty() {
        violations.required(path, "must specify a volume type");
    }
    for (index, source) in present.iter().enumerate() {
        // Kubernetes: a FlexVolume may come second.
        if index > 0 && source.field != "flexVolume" {
            violations.forbidden(
                path.child(source.excluded_as),
                "may not specify more than 1 volume type",
            );
        } else {
            let place = path.child(source.shown_as);
            require(&spec[source.field], source.required, &place, violations);
            (source.check)(volume, &spec[source.field], &place, violations);
        }
    }
}

/// A kind of storage.
struct PersistentVolumeSource {
    field: &'static str,
    /// The field's name in messages about it, and in the message that there is another source already.
    shown_as: &'static str,
    excluded_as: &'static str,
    /// What it cannot do without.
    required: &'static [&'static str],
    check: Check,
}

type Check = fn(&Value, &Value, &Path, &mut Violations);

const fn source(
    field: &'static str,
    required: &'static [&'static str],
    check: Check,
) -> PersistentVolumeSource {
    PersistentVolumeSource {
        field,
        shown_as: field,
        excluded_as: field,
        required,
        check,
    }
}

const NOTHING: Check = |_, _, _, _| {};

/// In the order of upstream's validation.
const SOURCES: &[PersistentVolumeSource] = &[
    source(
        "hostPath",
        &["path"],
        |_volume, source, path, violations| {
            const TYPES: &[&str] = &[
                "",
                "BlockDevice",
                "CharDevice",
                "Directory",
                "DirectoryOrCreate",
                "File",
                "FileOrCreate",
                "Socket",
            ];
            if source["path"].is_empty() {
                return;
            }
            no_backsteps(source, path, violations);
            if let Some(ty) = source["type"].as_str() {
                field::one_of(ty, TYPES, &path.child("type"), violations);
            }
        },
    ),
    PersistentVolumeSource {
        shown_as: "persistentDisk",
        ..source("gcePersistentDisk", &["pdName"], partition)
    },
    source("awsElasticBlockStore", &["volumeID"], partition),
    source(
        "glusterfs",
        &["endpoints", "path"],
        |_volume, source, path, violations| {
            let path = path.child("endpointsNamespace");
            match source["endpointsNamespace"].as_str() {
                None => {}
                Some("") => {
                    let message =
                        "if the endpointnamespace is set, it must be a valid namespace name";
                    violations.invalid(path, "", message);
                }
                Some(namespace) => dns_label(namespace, &path, violations),
            }
        },
    ),
    source("flocker", &[], |_volume, source, path, violations| {
        let (name, uuid) = (source["datasetName"].str(), source["datasetUUID"].str());
        if name.is_empty() && uuid.is_empty() {
            violations.required(path, "one of datasetName and datasetUUID is required");
        }
        if !name.is_empty() && !uuid.is_empty() {
            violations.invalid(
                path,
                "resource",
                "datasetName and datasetUUID can not be specified simultaneously",
            );
        }
        if name.contains('/') {
            violations.invalid(path.child("datasetName"), name, "must not contain '/'");
        }
    }),
    source(
        "nfs",
        &["server", "path"],
        |_volume, source, path, violations| {
            if !source["path"].str().starts_with('/') {
                violations.invalid(
                    path.child("path"),
                    source["path"].str(),
                    "must be an absolute path",
                );
            }
        },
    ),
    source("rbd", &["monitors", "image"], NOTHING),
    source("quobyte", &[], |_volume, source, path, violations| {
        let pairs = "must be a host:port pair or multiple pairs separated by commas";
        let registry = source["registry"].str();
        if registry.is_empty() {
            violations.required(path.child("registry"), pairs);
        } else if source["tenant"].str().len() >= 65 {
            let message = "must be a UUID and may not exceed a length of 64 characters";
            violations.required(path.child("tenant"), message);
        } else {
            for _ in registry.split(',').filter(|pair| !is_host_and_port(pair)) {
                violations.invalid(path.child("registry"), registry, pairs);
            }
        }
        require(source, &["volume"], path, violations);
    }),
    PersistentVolumeSource {
        excluded_as: "cephFS",
        ..source("cephfs", &["monitors"], NOTHING)
    },
    source("iscsi", &["targetPortal"], iscsi),
    source("cinder", &["volumeID"], secret_in_namespace),
    source("fc", &[], |_, source, path, violations| {
        fibre_channel(source, path, violations)
    }),
    source(
        "flexVolume",
        &["driver"],
        |_volume, source, path, violations| {
            let path = path.child("options");
            for (key, _) in source["options"].entries() {
                let domain = format!(
                    ".{}",
                    key.split_once('/')
                        .map_or(key, |(domain, _)| domain)
                        .to_lowercase()
                );
                if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
                    violations.invalid(
                        path.key(key),
                        key,
                        "kubernetes.io and k8s.io namespaces are reserved",
                    );
                }
            }
        },
    ),
    source(
        "azureFile",
        &["secretName", "shareName"],
        |_volume, source, path, violations| {
            if source["secretNamespace"].as_str() == Some("") {
                violations.required(path.child("secretNamespace"), "");
            }
        },
    ),
    source("vsphereVolume", &["volumePath"], NOTHING),
    source("photonPersistentDisk", &["pdID"], NOTHING),
    source("portworxVolume", &["volumeID"], NOTHING),
    source("azureDisk", &["diskName", "diskURI"], azure_disk),
    source("scaleIO", &["gateway", "system", "volumeName"], NOTHING),
    source("local", &["path"], |volume, source, path, violations| {
        no_backsteps(source, path, violations);
        if volume["spec"]["nodeAffinity"].is_null() {
            violations.required("spec.nodeAffinity", "Local volume requires node affinity");
        }
    }),
    source(
        "storageos",
        &["volumeName"],
        |volume, source, path, violations| {
            for name in ["volumeName", "volumeNamespace"] {
                if !source[name].is_empty() {
                    dns_label(source[name].str(), &path.child(name), violations);
                }
            }
            secret_in_namespace(volume, source, path, violations);
        },
    ),
    source("csi", &[], |_volume, source, path, violations| {
        csi_driver_name(source["driver"].str(), &path.child("driver"), violations);
        require(source, &["volumeHandle"], path, violations);
        for name in [
            "controllerPublishSecretRef",
            "controllerExpandSecretRef",
            "nodePublishSecretRef",
            "nodeExpandSecretRef",
        ] {
            if !source[name].is_null() {
                let reference = &source[name];
                let path = path.child(name);
                match reference["name"].str() {
                    "" => violations.required(path.child("name"), ""),
                    name => dns_subdomain(name, &path.child("name"), violations),
                }
                match reference["namespace"].str() {
                    "" => violations.required(path.child("namespace"), ""),
                    namespace => dns_label(namespace, &path.child("namespace"), violations),
                }
            }
        }
    }),
];

fn require(source: &Value, fields: &[&str], path: &Path, violations: &mut Violations) {
    for field in fields.iter().filter(|field| source[**field].is_empty()) {
        violations.required(path.child(field), "");
    }
}

fn no_backsteps(source: &Value, path: &Path, violations: &mut Violations) {
    let text = source["path"].str();
    if text.split('/').any(|part| part == "..") {
        violations.invalid(path.child("path"), text, "must not contain '..'");
    }
}

fn partition(_volume: &Value, source: &Value, path: &Path, violations: &mut Violations) {
    let partition = source["partition"].int();
    if !(0..=255).contains(&partition) {
        violations.invalid(
            path.child("partition"),
            partition,
            "must be between 1 and 255, inclusive",
        );
    }
}

/// Kubernetes: messages spell two of the fields in lower case.
fn iscsi(volume: &Value, source: &Value, path: &Path, violations: &mut Violations) {
    let (portal, name) = (
        source["targetPortal"].str(),
        volume["metadata"]["name"].str(),
    );
    let initiator = source["initiatorName"].as_str();
    if initiator.is_some() && name.len() + 1 + portal.len() > 64 {
        let message = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                       iscsi.initiatorName is specified.";
        violations.invalid(path.child("targetportal"), portal, message);
    }
    match source["iqn"].str() {
        "" => violations.required(path.child("iqn"), ""),
        iqn => iscsi_name(iqn, &path.child("iqn"), violations),
    }
    let lun = source["lun"].int();
    field::all(
        names::is_in_range(lun, 0, 255),
        lun,
        &path.child("lun"),
        violations,
    );
    let authenticates = source["chapAuthDiscovery"].bool() || source["chapAuthSession"].bool();
    match &source["secretRef"] {
        Value::Null if authenticates => violations.required(path.child("secretRef"), ""),
        Value::Null => {}
        secret => require(secret, &["name"], &path.child("secretRef"), violations),
    }
    if let Some(initiator) = initiator {
        iscsi_name(initiator, &path.child("initiatorname"), violations);
    }
}

fn iscsi_name(name: &str, path: &Path, violations: &mut Violations) {
    let is_id = |n: usize| {
        let mut chars = name.chars();
        chars.nth(3).is_some()
            && chars.as_str().len() == n
            && chars.all(|char| char.is_ascii_alphanumeric())
    };
    let fine = match name.get(..3) {
        Some("iqn") => is_iqn(name),
        Some("eui") => is_id(16),
        Some("naa") => is_id(32),
        _ => false,
    };
    if !fine {
        violations.invalid(path, name, "must be valid format");
    }
}

/// `iqn.2001-04.com.example:storage`
fn is_iqn(name: &str) -> bool {
    let Some((date, rest)) = name
        .strip_prefix("iqn.")
        .and_then(|rest| rest.split_once('.'))
    else {
        return false;
    };
    let Some((domain, target)) = rest.split_once(':') else {
        return false;
    };
    let is_digits =
        |text: &str, n: usize| text.len() == n && text.bytes().all(|byte| byte.is_ascii_digit());
    date.split_once('-')
        .is_some_and(|(year, month)| is_digits(year, 4) && is_digits(month, 2))
        && !domain.is_empty()
        && domain
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
        && !target.is_empty()
        && !target.contains(|char: char| char.is_ascii_whitespace() || ",;*&$|".contains(char))
}

fn secret_in_namespace(_volume: &Value, source: &Value, path: &Path, violations: &mut Violations) {
    if !source["secretRef"].is_null() {
        require(
            &source["secretRef"],
            &["name", "namespace"],
            &path.child("secretRef"),
            violations,
        );
    }
}

/// A Fibre Channel volume: targets with a LUN, or world wide identifiers.
pub(crate) fn fibre_channel(source: &Value, path: &Path, violations: &mut Violations) {
    let (names, ids) = (&source["targetWWNs"], &source["wwids"]);
    let path_of_names = path.child("targetWWNs");
    if names.is_empty() && ids.is_empty() {
        violations.required(
            path_of_names,
            "must specify either targetWWNs or wwids, but not both",
        );
    }
    if !names.is_empty() && !ids.is_empty() {
        let message = "targetWWNs and wwids can not be specified simultaneously";
        violations.invalid(path_of_names, names.clone(), message);
    }
    match source["lun"].as_int() {
        _ if names.is_empty() => {}
        None => violations.required(
            path.child("lun"),
            "lun is required if targetWWNs is specified",
        ),
        Some(lun) => field::all(
            names::is_in_range(lun, 0, 255),
            lun,
            &path.child("lun"),
            violations,
        ),
    }
}

fn azure_disk(_volume: &Value, source: &Value, path: &Path, violations: &mut Violations) {
    let (uri, kind) = (source["diskURI"].str(), source["kind"].as_str());
    if let Some(mode) = source["cachingMode"].as_str() {
        field::one_of(
            mode,
            &["None", "ReadOnly", "ReadWrite"],
            &path.child("cachingMode"),
            violations,
        );
    }
    let Some(kind) = kind else { return };
    field::one_of(
        kind,
        &["Dedicated", "Managed", "Shared"],
        &path.child("kind"),
        violations,
    );
    let (start, shape) = match kind {
        "Managed" => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        _ => (
            "https://",
            "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd",
        ),
    };
    if !uri.starts_with(start) {
        violations.not_supported(path.child("diskURI"), uri, &[shape]);
    }
}

/// The name of a driver of the container storage interface.
pub(crate) fn csi_driver_name(name: &str, path: &Path, violations: &mut Violations) {
    if name.is_empty() {
        return violations.required(path, "");
    }
    if name.len() > names::LABEL_LENGTH {
        violations.too_long(path, names::LABEL_LENGTH);
    }
    field::all(
        names::is_dns1123_subdomain(&name.to_lowercase()),
        name,
        path,
        violations,
    );
}
