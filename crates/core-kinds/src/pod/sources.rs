//! Validation of volume sources.
//!
//! A source is a row of [`SOURCES`]: its required fields, and a function for further rules.

use mizzen_object::validate::{field, names};
use mizzen_object::{Path, Violations};
use mizzen_value::Value;
use mizzen_value::address::is_host_and_port;
use mizzen_value::quantity::Quantity;

use super::volumes::{VolumeContext, descending_path, local_path, no_backsteps, validate_name};
use super::{claim, env, projected};
use crate::persistent_volume::sources::{csi_driver_name, fibre_channel};

/// A volume has one source.
pub(super) fn validate(volume: &Value, around: &VolumeContext, violations: &mut Violations) {
    let path = around.path;
    let mut found = SOURCES
        .iter()
        .filter(|source| !volume[source.key].is_null());
    let Some(source) = found.next() else {
        return violations.required(path, "must specify a volume type");
    };
    let (value, place) = (&volume[source.key], path.child(source.shown));
    require(value, source.required, &place, violations);
    (source.check)(value, around, &place, violations);
    for source in found {
        violations.forbidden(
            path.child(source.surplus),
            "may not specify more than 1 volume type",
        );
    }
}

/// A kind of source.
struct VolumeSource {
    /// The field.
    key: &'static str,
    /// Kubernetes: where messages put it, which for some is not the field.
    shown: &'static str,
    /// Kubernetes: where messages put it when it is one too many.
    surplus: &'static str,
    /// What it needs.
    required: &'static [&'static str],
    /// What else there is to it.
    check: fn(&Value, &VolumeContext, &Path, &mut Violations),
}

const fn plain(key: &'static str, required: &'static [&'static str]) -> VolumeSource {
    VolumeSource {
        key,
        shown: key,
        surplus: key,
        required,
        check: |_, _, _, _| {},
    }
}

const fn checked(
    key: &'static str,
    required: &'static [&'static str],
    check: fn(&Value, &VolumeContext, &Path, &mut Violations),
) -> VolumeSource {
    VolumeSource {
        key,
        shown: key,
        surplus: key,
        required,
        check,
    }
}

/// In the order in which upstream looks for them.
const SOURCES: [VolumeSource; 30] = [
    checked("emptyDir", &[], |source, _, path, violations| {
        if Quantity::parse_or_zero(source["sizeLimit"].str()).is_negative() {
            violations.forbidden(
                path.child("sizeLimit"),
                "SizeLimit field must be a valid resource quantity",
            );
        }
    }),
    checked("hostPath", &["path"], |source, _, path, violations| {
        const TYPES: [&str; 8] = [
            "",
            "BlockDevice",
            "CharDevice",
            "Directory",
            "DirectoryOrCreate",
            "File",
            "FileOrCreate",
            "Socket",
        ];
        if source["path"].str().is_empty() {
            return;
        }
        no_backsteps(source["path"].str(), &path.child("path"), violations);
        field::one_of(
            source["type"].str(),
            &TYPES,
            &path.child("type"),
            violations,
        );
    }),
    checked("gitRepo", &["repository"], |source, _, path, violations| {
        descending_path(
            source["directory"].str(),
            &path.child("directory"),
            violations,
        );
    }),
    VolumeSource {
        shown: "persistentDisk",
        ..checked("gcePersistentDisk", &["pdName"], validate_partition)
    },
    checked("awsElasticBlockStore", &["volumeID"], validate_partition),
    checked("secret", &["secretName"], validate_items),
    checked("nfs", &["server", "path"], |source, _, path, violations| {
        let text = source["path"].str();
        if !text.starts_with('/') {
            violations.invalid(path.child("path"), text, "must be an absolute path");
        }
    }),
    checked(
        "iscsi",
        &["targetPortal"],
        |source, around, path, violations| {
            match source["iqn"].str() {
                "" => violations.required(path.child("iqn"), ""),
                name => validate_iscsi_name(name, &path.child("iqn"), violations),
            }
            let lun = source["lun"].int();
            field::all(
                names::is_in_range(lun, 0, 255),
                lun,
                &path.child("lun"),
                violations,
            );
            let authenticates =
                source["chapAuthDiscovery"].bool() || source["chapAuthSession"].bool();
            if authenticates && source["secretRef"].is_null() {
                violations.required(path.child("secretRef"), "");
            }
            if let Some(initiator) = source["initiatorName"].as_str() {
                validate_iscsi_name(initiator, &path.child("initiatorname"), violations);
                if around.name.len() + 1 + source["targetPortal"].str().len() > 64 {
                    let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                          iscsi.initiatorName is specified.";
                    violations.invalid(around.path.child("name"), around.name, detail);
                }
            }
        },
    ),
    plain("glusterfs", &["endpoints", "path"]),
    checked("flocker", &[], |source, _, path, violations| {
        let (name, uuid) = (source["datasetName"].str(), source["datasetUUID"].str());
        match (name.is_empty(), uuid.is_empty()) {
            (true, true) => {
                violations.required(path, "one of datasetName and datasetUUID is required")
            }
            (false, false) => {
                let detail = "datasetName and datasetUUID can not be specified simultaneously";
                violations.invalid(path, "resource", detail);
            }
            _ => {}
        }
        if name.contains('/') {
            violations.invalid(path.child("datasetName"), name, "must not contain '/'");
        }
    }),
    plain("persistentVolumeClaim", &["claimName"]),
    plain("rbd", &["monitors", "image"]),
    checked("cinder", &["volumeID"], validate_secret_ref),
    VolumeSource {
        surplus: "cephFS",
        ..plain("cephfs", &["monitors"])
    },
    checked("quobyte", &[], |source, _, path, violations| {
        const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
        let registry = source["registry"].str();
        if registry.is_empty() {
            violations.required(path.child("registry"), PAIRS);
        } else if source["tenant"].str().len() >= 65 {
            let detail = "must be a UUID and may not exceed a length of 64 characters";
            violations.required(path.child("tenant"), detail);
        } else {
            for _ in registry.split(',').filter(|pair| !is_host_and_port(pair)) {
                violations.invalid(path.child("registry"), registry, PAIRS);
            }
        }
        require(source, &["volume"], path, violations);
    }),
    VolumeSource {
        surplus: "downwarAPI",
        ..checked("downwardAPI", &[], |source, _, path, violations| {
            validate_mode(
                &source["defaultMode"],
                &path.child("defaultMode"),
                violations,
            );
            for file in source["items"].list() {
                validate_file(file, path, violations);
            }
        })
    },
    checked("fc", &[], |source, _, path, violations| {
        fibre_channel(source, path, violations)
    }),
    checked("flexVolume", &["driver"], |source, _, path, violations| {
        let path = path.child("options");
        for (key, _) in source["options"].entries() {
            let domain = key.split_once('/').map_or(key, |(domain, _)| domain);
            let domain = format!(".{}", domain.to_lowercase());
            if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
                violations.invalid(
                    path.key(key),
                    key,
                    "kubernetes.io and k8s.io namespaces are reserved",
                );
            }
        }
    }),
    checked("configMap", &["name"], validate_items),
    plain("azureFile", &["secretName", "shareName"]),
    plain("vsphereVolume", &["volumePath"]),
    plain("photonPersistentDisk", &["pdID"]),
    plain("portworxVolume", &["volumeID"]),
    checked("azureDisk", &["diskName", "diskURI"], validate_azure_disk),
    checked("storageos", &[], |source, around, path, violations| {
        validate_name(
            source["volumeName"].str(),
            &path.child("volumeName"),
            violations,
        );
        if !source["volumeNamespace"].str().is_empty() {
            validate_name(
                source["volumeNamespace"].str(),
                &path.child("volumeNamespace"),
                violations,
            );
        }
        validate_secret_ref(source, around, path, violations);
    }),
    checked("projected", &[], projected::validate),
    plain("scaleIO", &["gateway", "system", "volumeName"]),
    checked("csi", &[], |source, _, path, violations| {
        csi_driver_name(source["driver"].str(), &path.child("driver"), violations);
        let secret = &source["nodePublishSecretRef"];
        match secret["name"].str() {
            _ if secret.is_null() => {}
            "" => violations.required(path.child("nodePublishSecretRef").child("name"), ""),
            name => field::all(
                names::name_is_dns_subdomain(name, false),
                name,
                &path.child("name"),
                violations,
            ),
        }
    }),
    checked("ephemeral", &[], |source, around, path, violations| {
        let template = &source["volumeClaimTemplate"];
        if template.is_null() {
            violations.required(path.child("volumeClaimTemplate"), "");
        } else {
            claim::validate_template(template, &path.child("volumeClaimTemplate"), violations);
        }
        if let Some(pod) = around
            .pod
            .filter(|pod| !pod.is_empty() && !around.name.is_empty())
        {
            let claim = format!("{pod}-{}", around.name);
            for message in names::name_is_dns_subdomain(&claim, false) {
                let detail = format!("PVC name \"{claim}\": {message}");
                violations.invalid(around.path.child("name"), around.name, &detail);
            }
        }
    }),
    checked("image", &[], |source, around, path, violations| {
        if around.options.is_pod {
            require(source, &["reference"], path, violations);
        }
        validate_pull_policy(
            source["pullPolicy"].str(),
            &path.child("pullPolicy"),
            violations,
        );
    }),
];

fn require(value: &Value, fields: &[&str], path: &Path, violations: &mut Violations) {
    for field in fields.iter().filter(|field| value[**field].is_empty()) {
        violations.required(path.child(field), "");
    }
}

fn validate_partition(source: &Value, _: &VolumeContext, path: &Path, violations: &mut Violations) {
    let partition = source["partition"].int();
    if !(0..=255).contains(&partition) {
        violations.invalid(
            path.child("partition"),
            partition,
            "must be between 1 and 255, inclusive",
        );
    }
}

fn validate_items(source: &Value, _: &VolumeContext, path: &Path, violations: &mut Violations) {
    validate_mode(
        &source["defaultMode"],
        &path.child("defaultMode"),
        violations,
    );
    let path = path.child("items");
    for (index, item) in source["items"].items().enumerate() {
        validate_item(item, &path.index(index), violations);
    }
}

/// A key and the file in which it is to be found.
pub(super) fn validate_item(item: &Value, path: &Path, violations: &mut Violations) {
    require(item, &["key", "path"], path, violations);
    local_path(item["path"].str(), &path.child("path"), violations);
    validate_mode(&item["mode"], &path.child("mode"), violations);
}

/// The permission bits of a file.
pub(super) fn validate_mode(mode: &Value, path: &Path, violations: &mut Violations) {
    if !(0..=0o777).contains(&mode.int()) {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        violations.invalid(path, mode.int(), detail);
    }
}

fn validate_iscsi_name(name: &str, path: &Path, violations: &mut Violations) {
    let is_sound = match name.get(..3) {
        Some("iqn") => {
            // `iqn.2001-04.com.example:storage`, at the end of whatever there is.
            let mut starts = name
                .match_indices("iqn.")
                .map(|(index, _)| &name[index + 4..]);
            starts.any(|rest| {
                let is_date = |date: &str| {
                    date.bytes().enumerate().all(|(at, byte)| {
                        if at == 4 {
                            byte == b'-'
                        } else {
                            byte.is_ascii_digit()
                        }
                    })
                };
                let Some((date, rest)) = rest.split_at_checked(7).filter(|(date, _)| is_date(date))
                else {
                    return false;
                };
                let Some((domain, target)) =
                    rest.strip_prefix('.').and_then(|rest| rest.split_once(':'))
                else {
                    return false;
                };
                date.len() == 7
                    && !domain.is_empty()
                    && domain
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
                    && !target.is_empty()
                    && !target
                        .contains([',', ';', '*', '&', '$', '|', ' ', '\t', '\n', '\r', '\x0c'])
            })
        }
        Some("eui") => is_identifier(name, 16),
        Some("naa") => is_identifier(name, 32),
        _ => {
            return violations.invalid(
                path,
                name,
                "must be valid format starting with iqn, eui, or naa",
            );
        }
    };
    if !is_sound {
        violations.invalid(path, name, "must be valid format");
    }
}

/// Three letters, any character, and so many letters or digits.
fn is_identifier(name: &str, length: usize) -> bool {
    let mut rest = name.chars();
    rest.nth(3).is_some_and(|separator| separator != '\n')
        && rest.as_str().len() == length
        && rest
            .as_str()
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric())
}

fn validate_secret_ref(
    source: &Value,
    _: &VolumeContext,
    path: &Path,
    violations: &mut Violations,
) {
    if !source["secretRef"].is_null() {
        require(
            &source["secretRef"],
            &["name"],
            &path.child("secretRef"),
            violations,
        );
    }
}

/// A file that shows something of the pod.
///
/// Kubernetes: its index is in no message.
pub(super) fn validate_file(file: &Value, path: &Path, violations: &mut Violations) {
    const FIELDS: [&str; 5] = [
        "metadata.annotations",
        "metadata.labels",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
    ];
    require(file, &["path"], path, violations);
    local_path(file["path"].str(), &path.child("path"), violations);
    match (
        file["fieldRef"].is_null(),
        file["resourceFieldRef"].is_null(),
    ) {
        (true, true) => {
            violations.required(path, "one of fieldRef and resourceFieldRef is required")
        }
        (true, false) => {
            env::validate_resource(
                &file["resourceFieldRef"],
                true,
                &path.child("resourceFieldRef"),
                violations,
            );
        }
        (false, alone) => {
            env::validate_field(
                &file["fieldRef"],
                &FIELDS,
                &path.child("fieldRef"),
                violations,
            );
            if !alone {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                violations.invalid(path, "resource", detail);
            }
        }
    }
    validate_mode(&file["mode"], &path.child("mode"), violations);
}

fn validate_azure_disk(
    source: &Value,
    _: &VolumeContext,
    path: &Path,
    violations: &mut Violations,
) {
    const CACHING: [&str; 3] = ["None", "ReadOnly", "ReadWrite"];
    const KINDS: [&str; 3] = ["Dedicated", "Managed", "Shared"];
    const MANAGED: &str = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str =
        "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    field::one_of(
        source["cachingMode"].str(),
        &CACHING,
        &path.child("cachingMode"),
        violations,
    );
    field::one_of(
        source["kind"].str(),
        &KINDS,
        &path.child("kind"),
        violations,
    );
    let uri = source["diskURI"].str();
    let (start, pattern) = if source["kind"].str() == "Managed" {
        ("/subscriptions/", MANAGED)
    } else {
        ("https://", BLOB)
    };
    if !uri.starts_with(start) {
        violations.not_supported(path.child("diskURI"), uri, &[pattern]);
    }
}

/// When an image is to be pulled.
pub(super) fn validate_pull_policy(policy: &str, path: &Path, violations: &mut Violations) {
    match policy {
        "" => violations.required(path, ""),
        policy => field::one_of(
            policy,
            &["Always", "IfNotPresent", "Never"],
            path,
            violations,
        ),
    }
}
