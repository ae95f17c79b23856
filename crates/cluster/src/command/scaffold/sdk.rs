//! Where does the SDK of a new project come from?

use std::path::{Path, PathBuf};

use mizzen_scaffold::SdkSource;

use super::ScaffoldError;

/// The checkout of the command line or of the environment, or the one that has this program; else the released version.
pub(super) fn find(given: Option<PathBuf>) -> Result<SdkSource, ScaffoldError> {
    let from_environment = std::env::var_os("MIZZEN_SDK_PATH").map(PathBuf::from);
    if let Some(directory) = given.or(from_environment) {
        let root = directory
            .canonicalize()
            .unwrap_or_else(|_| directory.clone());
        return match has_sdk(&root) {
            true => Ok(SdkSource::Path(root.display().to_string())),
            false => Err(ScaffoldError::NoSdk(directory)),
        };
    }
    let program = std::env::current_exe().and_then(|path| path.canonicalize());
    let program = program.unwrap_or_default();
    let checkout = program
        .ancestors()
        .skip(1)
        .find(|directory| has_sdk(directory));
    Ok(match checkout {
        Some(root) => SdkSource::Path(root.display().to_string()),
        None => SdkSource::Version(env!("CARGO_PKG_VERSION").into()),
    })
}

/// Whether a directory is a checkout of this repository.
fn has_sdk(root: &Path) -> bool {
    let manifest = std::fs::read_to_string(root.join("crates/sdk/Cargo.toml"));
    manifest.is_ok_and(|text| text.contains("name = \"mizzen-sdk\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkout_is_found_by_its_sdk() {
        let home = tempfile::tempdir().unwrap();
        let error = find(Some(home.path().to_owned())).unwrap_err().to_string();
        assert!(error.contains("is no checkout of mizzen"), "{error}");
        let sdk = home.path().join("crates/sdk");
        std::fs::create_dir_all(&sdk).unwrap();
        std::fs::write(sdk.join("Cargo.toml"), "[package]\nname = \"mizzen-sdk\"\n").unwrap();
        let root = home.path().canonicalize().unwrap();
        let expected = SdkSource::Path(root.display().to_string());
        assert_eq!(find(Some(home.path().to_owned())).unwrap(), expected);
    }
}
