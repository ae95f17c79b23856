//! Validation of projected volumes.

use std::collections::HashSet;

use mizzen_object::validate::{field, meta, names, selector};
use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use super::internal;
use super::sources::{validate_file, validate_item, validate_mode};
use super::volumes::{VolumeContext, local_path};

/// Several sources, of which no two may want the same file.
pub(super) fn validate(
    projected: &Value,
    around: &VolumeContext,
    path: &Path,
    violations: &mut Violations,
) {
    validate_mode(
        &projected["defaultMode"],
        &path.child("defaultMode"),
        violations,
    );
    let mut files = ProjectedFiles {
        path,
        taken: HashSet::new(),
    };
    let sources = path.child("sources");
    for (index, source) in projected["sources"].items().enumerate() {
        let place = sources.index(index);
        let mut n_sources = 0;
        for (key, check) in SOURCES {
            if !source[key].is_null() {
                n_sources += 1;
                check(
                    &source[key],
                    around,
                    &place.child(key),
                    &mut files,
                    violations,
                );
            }
        }
        if n_sources > 1 {
            violations.forbidden(place, "may not specify more than 1 volume type per source");
        }
    }
}

type Check =
    for<'a> fn(&'a Value, &VolumeContext, &Path, &mut ProjectedFiles<'a, '_>, &mut Violations);

const SOURCES: [(&str, Check); 6] = [
    ("secret", validate_items),
    ("configMap", validate_items),
    ("downwardAPI", |source, _, path, files, violations| {
        for file in source["items"].list() {
            validate_file(file, path, violations);
            let name = file["path"].str();
            if !name.is_empty() {
                files.take(name, name, violations);
            }
        }
    }),
    (
        "serviceAccountToken",
        |token, around, path, files, violations| {
            let seconds = token["expirationSeconds"].int();
            if seconds < 600 {
                let detail = "may not specify a duration less than 10 minutes";
                violations.invalid(path.child("expirationSeconds"), seconds, detail);
            }
            if seconds > 1 << 32 {
                let detail = "may not specify a duration larger than 2^32 seconds";
                violations.invalid(path.child("expirationSeconds"), seconds, detail);
            }
            // Kubernetes: the path is reported at the volume, not at the token.
            match token["path"].str() {
                "" => violations.required(files.path.child("path"), ""),
                _ if around.options.any_token_paths => {}
                text => local_path(text, &files.path.child("path"), violations),
            }
        },
    ),
    ("clusterTrustBundle", validate_trust_bundle),
    ("podCertificate", validate_certificate),
];

/// The files that are taken.
struct ProjectedFiles<'a, 'p> {
    path: &'p Path<'p>,
    taken: HashSet<&'a str>,
}

impl<'a> ProjectedFiles<'a, '_> {
    /// Claims the path of a file. `blamed` is shown in the message if another source has it already.
    fn take(&mut self, file: &'a str, blamed: &str, violations: &mut Violations) {
        if self.taken.contains(&file) {
            violations.invalid(self.path, blamed, "conflicting duplicate paths");
        } else {
            self.taken.insert(file);
        }
    }
}

fn validate_items<'a>(
    source: &'a Value,
    _: &VolumeContext,
    path: &Path,
    files: &mut ProjectedFiles<'a, '_>,
    violations: &mut Violations,
) {
    let name = source["name"].str();
    if name.is_empty() {
        violations.required(path.child("name"), "");
    }
    let path = path.child("items");
    for (index, item) in source["items"].items().enumerate() {
        validate_item(item, &path.index(index), violations);
        if !item["path"].str().is_empty() {
            files.take(item["path"].str(), name, violations);
        }
    }
}

fn validate_trust_bundle<'a>(
    bundle: &'a Value,
    _: &VolumeContext,
    path: &Path,
    files: &mut ProjectedFiles<'a, '_>,
    violations: &mut Violations,
) {
    match (bundle["name"].as_str(), bundle["signerName"].as_str()) {
        (Some(_), Some(_)) => {
            let shown = internal::form("ClusterTrustBundleProjection", bundle);
            violations.invalid(path, shown, "only one of name and signerName may be used");
        }
        (Some(name), None) => {
            if name.is_empty() {
                violations.required(path.child("name"), "must be a valid object name");
            }
            // What comes before the last colon is the signer's name, with colons for slashes.
            let own = name.rsplit_once(':').map_or(name, |(_, own)| own);
            for message in names::name_is_dns_subdomain(own, false) {
                let detail = format!("not a valid clustertrustbundlename: {message}");
                violations.invalid(path.child("name"), name, &detail);
            }
            let selector = &bundle["labelSelector"];
            if !selector.is_null() {
                let detail = "labelSelector must be unset if name is specified";
                violations.invalid(path.child("labelSelector"), selector.clone(), detail);
            }
        }
        (None, Some(signer)) => {
            if signer.is_empty() {
                violations.required(path.child("signerName"), "must be a valid signer name");
            }
            validate_signer(signer, &path.child("signerName"), violations);
            let options = selector::SelectorOptions::default();
            selector::label_selector(
                &bundle["labelSelector"],
                options,
                &path.child("labelSelector"),
                violations,
            );
        }
        (None, None) => violations.required(path, "either name or signerName must be specified"),
    }
    let file = bundle["path"].str();
    if file.is_empty() {
        violations.required(path.child("path"), "");
    }
    local_path(file, &path.child("path"), violations);
    files.take(file, file, violations);
}

fn validate_certificate<'a>(
    certificate: &'a Value,
    _: &VolumeContext,
    path: &Path,
    files: &mut ProjectedFiles<'a, '_>,
    violations: &mut Violations,
) {
    const KEY_TYPES: [&str; 6] = [
        "RSA3072",
        "RSA4096",
        "ECDSAP256",
        "ECDSAP384",
        "ECDSAP521",
        "ED25519",
    ];
    let signer = certificate["signerName"].str();
    validate_signer(signer, &path.child("signerName"), violations);
    let annotations = &certificate["userAnnotations"];
    for (key, _) in annotations.entries() {
        names::domain_prefixed_key(
            &key.to_lowercase(),
            &path.child("userAnnotations"),
            violations,
        );
    }
    let size: usize = annotations
        .entries()
        .map(|(key, value)| key.len() + value.str().len())
        .sum();
    if size > meta::ANNOTATIONS_SIZE {
        violations.too_long(path.child("userAnnotations"), meta::ANNOTATIONS_SIZE);
    }
    field::one_of(
        certificate["keyType"].str(),
        &KEY_TYPES,
        &path.child("keyType"),
        violations,
    );
    if let Some(seconds) = certificate["maxExpirationSeconds"].as_int() {
        let path = path.child("maxExpirationSeconds");
        let host = signer.split('/').next().unwrap_or_default();
        let is_kubernetes = host == "kubernetes.io" || host.ends_with(".kubernetes.io");
        let max = if is_kubernetes {
            24 * 60 * 60
        } else {
            91 * 24 * 60 * 60
        };
        if seconds < 3600 {
            violations.invalid(
                path,
                seconds,
                "if provided, maxExpirationSeconds must be >= 3600",
            );
        }
        if seconds > max {
            violations.invalid(
                path,
                seconds,
                &format!("if provided, maxExpirationSeconds must be <= {max}"),
            );
        }
    }
    let names = ["credentialBundlePath", "keyPath", "certificateChainPath"];
    let mut used = names
        .into_iter()
        .filter(|name| !certificate[*name].str().is_empty())
        .peekable();
    if used.peek().is_none() {
        let detail =
            "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        violations.required(path, detail);
    }
    for name in used {
        let file = certificate[name].str();
        local_path(file, &path.child(name), violations);
        files.take(file, file, violations);
    }
}

/// `example.com/signer`.
fn validate_signer(name: &str, path: &Path, violations: &mut Violations) {
    if name.is_empty() {
        return violations.required(path, "");
    }
    let Some((domain, rest)) = name.split_once('/').filter(|(_, rest)| !rest.contains('/')) else {
        let detail =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return violations.invalid(path, name, detail);
    };
    if domain.len() > names::SUBDOMAIN_LENGTH {
        violations.too_long(path, names::SUBDOMAIN_LENGTH);
    }
    validate_parts(domain, names::is_dns1123_label, path, violations);
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        violations.invalid(path, domain, detail);
    }
    validate_parts(rest, names::is_dns1123_subdomain, path, violations);
    let longest = 2 * names::SUBDOMAIN_LENGTH + names::LABEL_LENGTH + 2;
    if name.len() > longest {
        violations.too_long(path, longest);
    }
}

/// The first part between dots that is wrong.
fn validate_parts(
    text: &str,
    check: fn(&str) -> Vec<String>,
    path: &Path,
    violations: &mut Violations,
) {
    let parts = text.split('.').map(|part| (part, check(part)));
    if let Some((part, wrong)) = { parts }.find(|(_, wrong)| !wrong.is_empty()) {
        for message in wrong {
            violations.invalid(
                path,
                text,
                &format!("validating label \"{part}\": {message}"),
            );
        }
    }
}
