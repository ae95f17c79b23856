//! Names of definitions, operations and tags.

use mizzen_object::GroupVersionKind;
use mizzen_object::schema::Struct;
use mizzen_value::Str;

/// The package of the types that all groups share.
pub(super) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// The package of the types of CustomResourceDefinitions.
pub(super) const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";

/// The definition of a built-in type: `io.k8s.api.core.v1.Pod`.
pub(super) fn definition(ty: &Struct) -> String {
    format!("{}.{}", package(&ty.home), ty.name)
}

/// The package of the types of `core/v1`: `io.k8s.api.core.v1`.
pub(super) fn package(home: &str) -> String {
    let (group, version) = home.split_once('/').unwrap_or((home, ""));
    match group {
        "meta" => META.into(),
        "apiextensions.k8s.io" => format!("{EXTENSIONS}{}", version.trim_start_matches("v1")),
        "apiregistration.k8s.io" => {
            format!("io.k8s.kube-aggregator.pkg.apis.apiregistration.{version}")
        }
        // A group outside of k8s.io is named by its domain, as a custom one is.
        _ if group.contains('.') && !group.ends_with(".k8s.io") => {
            format!("{}.{version}", backwards(group))
        }
        _ => format!(
            "io.k8s.api.{}.{version}",
            group.split('.').next().unwrap_or_default()
        ),
    }
}

/// The definition name of a custom kind: its group reversed, `com.example.stable.v1.CronTab`.
pub(super) fn custom_definition(gvk: &GroupVersionKind) -> String {
    format!("{}.{}.{}", backwards(&gvk.group), gvk.version, gvk.kind)
}

fn backwards(group: &str) -> String {
    let parts: Vec<&str> = group.rsplit('.').collect();
    parts.join(".")
}

/// The group and version of the types of `home` on the wire.
pub(super) fn group_version(home: &str) -> (Str, Str) {
    let (group, version) = home.split_once('/').unwrap_or((home, ""));
    (
        if matches!(group, "core" | "meta") {
            ""
        } else {
            group
        }
        .into(),
        version.into(),
    )
}

/// Text as a part of an operation ID: other characters than letters and digits are dropped, and the
/// next letter is capitalized.
///
/// Kubernetes: ToValidOperationID of apiserver/pkg/endpoints/openapi/openapi.go.
pub(super) fn operation_word(text: &str, mut capitalize: bool) -> String {
    let mut word = String::with_capacity(text.len());
    for (at, letter) in text.char_indices() {
        let valid = letter.is_alphabetic() || letter == '_' || at != 0 && letter.is_numeric();
        match valid && std::mem::take(&mut capitalize) {
            true => word.extend(letter.to_uppercase()),
            false if valid => word.push(letter),
            false => capitalize = true,
        }
    }
    word
}

/// A group without the suffix `.k8s.io`.
fn short_group(group: &str) -> &str {
    if group.is_empty() {
        "core"
    } else {
        group.strip_suffix(".k8s.io").unwrap_or(group)
    }
}

/// A group in an operation ID: `Core`, `RbacAuthorization`, `StableExampleCom`.
pub(super) fn group_words(group: &str) -> String {
    operation_word(short_group(group), true)
}

/// The tag of a group's operations: `core_v1`, `rbacAuthorization_v1`, `apps`.
pub(super) fn tag(group: &str, version: Option<&str>) -> String {
    let group = operation_word(short_group(group), false);
    version.map_or(group.clone(), |version| {
        format!("{group}_{}", operation_word(version, false))
    })
}

/// `status` as `Status`.
pub(super) fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

/// A noun with its article; plurals have none.
pub(super) fn with_article(noun: &str) -> String {
    if noun.ends_with('s') && !noun.ends_with("ss") {
        return noun.into();
    }
    let vowel = noun.starts_with(|letter: char| "AEIOUaeiou".contains(letter));
    format!("{} {noun}", if vowel { "an" } else { "a" })
}
