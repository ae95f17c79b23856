//! Warnings for projected volumes whose files overlap.

use mizzen_value::Value;
use mizzen_value::json::quote;

/// Keys that are to be found in the same file, or in a file and below it.
pub(super) fn warnings(volumes: &Value) -> Vec<String> {
    volumes.items().flat_map(volume_warnings).collect()
}

fn volume_warnings(volume: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let plain = [
        ("configMap", "ConfigMap", "name"),
        ("secret", "Secret", "secretName"),
        ("downwardAPI", "DownwardAPI", ""),
    ];
    for (key, word, name) in plain {
        let about = describe(word, volume[key][name].str());
        let files = files(&volume[key]["items"], "");
        warnings.extend(
            clashes(files)
                .into_iter()
                .map(|clash| warning(volume, &about, &clash)),
        );
    }
    let mut projected = Vec::new();
    for source in volume["projected"]["sources"].list() {
        if source.entries().all(|(_, source)| source.is_null()) {
            let name = quote(volume["name"].str());
            warnings.push(format!("volume {name} (Projected) has no sources provided"));
        }
        projected.extend(projected_files(source));
    }
    warnings.extend(
        clashes(projected)
            .into_iter()
            .map(|clash| warning(volume, "Projected", &clash)),
    );
    warnings
}

fn warning(volume: &Value, about: &str, clash: &str) -> String {
    format!(
        "volume {} ({about}): overlapping paths: {clash}",
        quote(volume["name"].str())
    )
}

fn describe(word: &str, name: &str) -> String {
    if word == "DownwardAPI" {
        word.into()
    } else {
        format!("{word} {}", quote(name))
    }
}

/// A file and where it comes from.
type File<'a> = (&'a str, String);

fn files<'a>(items: &'a Value, source: &str) -> Vec<File<'a>> {
    items
        .items()
        .map(|item| (item["path"].str(), source.to_string()))
        .collect()
}

fn projected_files(source: &Value) -> Vec<File<'_>> {
    for (key, word) in [
        ("configMap", "ConfigMap"),
        ("secret", "Secret"),
        ("downwardAPI", "DownwardAPI"),
    ] {
        if !source[key]["items"].is_null() {
            return files(
                &source[key]["items"],
                &describe(word, source[key]["name"].str()),
            );
        }
    }
    let token = &source["serviceAccountToken"];
    if !token.is_null() {
        return vec![(token["path"].str(), "ServiceAccountToken".into())];
    }
    let bundle = &source["clusterTrustBundle"];
    if !bundle.is_null() {
        let name = bundle["name"]
            .as_str()
            .unwrap_or(bundle["signerName"].str());
        return vec![(bundle["path"].str(), describe("ClusterTrustBundle", name))];
    }
    let parts = [
        ("certificateChainPath", "PodCertificate chain"),
        ("keyPath", "PodCertificate key"),
        ("credentialBundlePath", "PodCertificate credential bundle"),
    ];
    let certificate = &source["podCertificate"];
    let given = parts
        .into_iter()
        .map(|(key, word)| (certificate[key].str(), word.to_string()));
    given.filter(|(path, _)| !path.is_empty()).collect()
}

fn clashes(files: Vec<File>) -> Vec<String> {
    let mut clashes = Vec::new();
    let files: Vec<File> = files
        .into_iter()
        .map(|(path, source)| (path.trim_end_matches('/'), source))
        .collect();
    for (index, file) in files.iter().enumerate() {
        for other in files[..index].iter().filter(|other| {
            let path = file.0;
            let other = other.0;
            let (long, short) = if path.len() > other.len() {
                (path, other)
            } else {
                (other, path)
            };
            let below = long
                .strip_prefix(short)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            !short.is_empty() && below
        }) {
            clashes.push(format!("{} with {}", show(file), show(other)));
        }
    }
    clashes
}

fn show((path, source): &File) -> String {
    if source.is_empty() {
        quote(path)
    } else {
        format!("{} ({source})", quote(path))
    }
}
