//! How does the source of a version become that of a spoke?
//!
//! A spoke derives `Convert` for its types. The lines are added to the source as it is, so that edits are kept.

/// What a source has once its types are converted.
const DERIVE: &str = "#[derive(mizzen_sdk::convert::Convert)]";

/// The source with conversions to the types of the same name in the hub. Types that have one keep it.
pub(crate) fn add_conversions(source: &str, kind: &str, hub: &str) -> String {
    let mut out = String::new();
    // The lines of the item so far: its documentation and attributes.
    let mut item = String::new();
    for line in source.split_inclusive('\n') {
        let mut words = ["pub struct ", "pub enum "].into_iter();
        let rest = words.find_map(|word| line.strip_prefix(word));
        if let Some(rest) = rest
            && item.contains("JsonSchema")
            && !item.contains(DERIVE)
        {
            let end = rest.find(|it: char| !it.is_ascii_alphanumeric());
            let name = &rest[..end.unwrap_or(rest.len())];
            out += &format!("{DERIVE}\n#[convert(hub = super::{hub}::{name})]\n");
            if item.contains("CustomResource") {
                out += "#[kube(derive = \"mizzen_sdk::convert::Convert\")]\n";
                out += &format!("#[kube(attr = \"convert(hub = super::{hub}::{kind})\")]\n");
            }
        }
        match line.trim().is_empty() || line.starts_with('}') {
            true => item.clear(),
            false => item += line,
        }
        out += line;
    }
    out
}

/// The source without the lines that [`add_conversions`] adds.
pub(crate) fn remove_conversions(source: &str) -> String {
    let is_added = |line: &&str| {
        line.starts_with(DERIVE)
            || line.starts_with("#[convert(hub = super::")
            || line.starts_with("#[kube(derive = \"mizzen_sdk::convert::Convert\")]")
            || line.starts_with("#[kube(attr = \"convert(hub = super::")
    };
    let lines = source.split_inclusive('\n');
    lines.filter(|line| !is_added(line)).collect()
}

/// The source of a spoke, with another hub.
pub(crate) fn move_hub(source: &str, old: &str, new: &str) -> String {
    let (old, new) = (
        format!("(hub = super::{old}::"),
        format!("(hub = super::{new}::"),
    );
    source.replace(&old, &new)
}

/// The source of a version as that of another version.
pub(crate) fn rename_version(source: &str, group: &str, old: &str, new: &str) -> String {
    let is_attribute = |name: &str| format!("version = \"{name}\"");
    let source = source.replace(&is_attribute(old), &is_attribute(new));
    let header = |version: &str| format!("{group}/{version}`");
    source.replace(&header(old), &header(new))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUB: &str = r#"//! `ovens.shop.example.com/v1`.

/// An Oven, with edits.
#[derive(
    CustomResource, Clone, JsonSchema,
)]
#[kube(group = "shop.example.com", version = "v1", kind = "Oven")]
pub struct OvenSpec {
    pub racks: Vec<Rack>,
}

#[derive(Clone, JsonSchema)]
pub enum Rack {
    Wide,
}

pub struct Helper(u8);
"#;

    #[test]
    fn types_of_the_schema_get_a_conversion_and_edits_stay() {
        let spoke = add_conversions(HUB, "Oven", "v2");
        let added = |name: &str| {
            format!(
                "#[derive(mizzen_sdk::convert::Convert)]\n#[convert(hub = super::v2::{name})]\n"
            )
        };
        let kind = "#[kube(derive = \"mizzen_sdk::convert::Convert\")]\n\
                    #[kube(attr = \"convert(hub = super::v2::Oven)\")]\n";
        let expected = HUB
            .replace(
                "pub struct OvenSpec",
                &(added("OvenSpec") + kind + "pub struct OvenSpec"),
            )
            .replace("pub enum Rack", &(added("Rack") + "pub enum Rack"));
        assert_eq!(spoke, expected);
        assert_eq!(
            add_conversions(&spoke, "Oven", "v2"),
            spoke,
            "once is enough"
        );
        assert_eq!(remove_conversions(&spoke), HUB);
        let moved = move_hub(&spoke, "v2", "v3");
        assert_eq!(moved, add_conversions(HUB, "Oven", "v3"));
    }

    #[test]
    fn a_version_is_renamed_in_its_attribute_and_header() {
        let renamed = rename_version(HUB, "shop.example.com", "v1", "v2");
        assert!(renamed.starts_with("//! `ovens.shop.example.com/v2`."));
        assert!(renamed.contains("version = \"v2\""));
        assert!(!renamed.contains("v1"));
    }
}
