//! Tarballs of images, as `docker save`, `ctr images export` and `skopeo copy` make them: plain or
//! compressed with gzip.
//!
//! Two formats are known: the OCI image layout (`index.json`, blobs by digest), and that of Docker
//! (`manifest.json`, layers by path). A tarball with both is read as an image layout.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Component, Path};

use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;
use mizzen_value::{Value, json};
use tar::{Archive, EntryType};

use crate::image_name::ImageName;

/// The documents that name the images.
const DOCUMENTS: [&str; 2] = ["index.json", "manifest.json"];
/// The most bytes of such a document.
const MAX_DOCUMENT: u64 = 8 << 20;
/// The size of the parts in which blobs are read.
const PART: usize = 1 << 20;
/// The first bytes of compressed files.
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Why a tarball is not read.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It is another file.
    #[error("not a tarball of images, such as docker save makes")]
    NotATarball,
    /// It is compressed with zstd.
    #[error("compressed with zstd; decompress it first")]
    Zstd,
    /// It ends too early, or cannot be read.
    #[error("cannot read the tarball: {0}")]
    Read(#[source] io::Error),
    /// A document in it is not what it should be.
    #[error("{document}: {why}")]
    Document {
        /// The file in the tarball.
        document: String,
        /// What is wrong.
        why: String,
    },
    /// Its images have no names.
    #[error("the image has no name: save it by its name and not by its ID")]
    NoName,
}

/// A part of a tarball, in the order in which it is read.
#[derive(Debug, PartialEq)]
pub(super) enum Part {
    /// A document that names images.
    Document(String, Bytes),
    /// A blob begins: its path and its size.
    Blob(String, u64),
    /// A part of that blob.
    Data(Bytes),
    /// Another path of a blob.
    Link(String, String),
}

/// Reads a tarball once, from its begin to its end. It stops when `take` returns false.
pub(super) fn read(
    archive: impl Read,
    mut take: impl FnMut(Part) -> bool,
) -> Result<(), ArchiveError> {
    let mut archive = BufReader::new(archive);
    let start = archive.fill_buf().map_err(ArchiveError::Read)?;
    if start.starts_with(ZSTD) {
        return Err(ArchiveError::Zstd);
    }
    match start.starts_with(GZIP) {
        true => read_plain(MultiGzDecoder::new(archive), &mut take),
        false => read_plain(archive, &mut take),
    }
}

fn read_plain(archive: impl Read, take: &mut impl FnMut(Part) -> bool) -> Result<(), ArchiveError> {
    let mut archive = Archive::new(archive);
    let mut is_first = true;
    for entry in archive.entries().map_err(ArchiveError::Read)? {
        let mut entry = match entry {
            Err(_) if is_first => return Err(ArchiveError::NotATarball),
            entry => entry.map_err(ArchiveError::Read)?,
        };
        is_first = false;
        let path = normal(&entry.path().map_err(ArchiveError::Read)?);
        let size = entry.size();
        let part = match entry.header().entry_type() {
            EntryType::Symlink | EntryType::Link => {
                let target = entry.link_name().map_err(ArchiveError::Read)?;
                let target = target.as_deref().unwrap_or(Path::new(""));
                let base = match entry.header().entry_type() {
                    EntryType::Symlink => Path::new(&path).parent(),
                    _ => None,
                };
                let target = normal(&base.unwrap_or(Path::new("")).join(target));
                Part::Link(path, target)
            }
            kind if !kind.is_file() || size == 0 => continue,
            _ if DOCUMENTS.contains(&path.as_str()) && size <= MAX_DOCUMENT => {
                let mut text = Vec::new();
                entry.read_to_end(&mut text).map_err(ArchiveError::Read)?;
                Part::Document(path, text.into())
            }
            _ => Part::Blob(path, size),
        };
        let mut has_data = matches!(part, Part::Blob(..));
        if !take(part) {
            return Ok(());
        }
        while has_data {
            let mut data = Vec::with_capacity(PART);
            let n_read = (&mut entry).take(PART as u64).read_to_end(&mut data);
            has_data = n_read.map_err(ArchiveError::Read)? > 0;
            if has_data && !take(Part::Data(data.into())) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// A path in the tarball without `.` and `..`.
fn normal(path: &Path) -> String {
    let mut names: Vec<String> = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => names.push(name.to_string_lossy().into_owned()),
            Component::ParentDir => drop(names.pop()),
            _ => {}
        }
    }
    names.join("/")
}

/// What was read of a tarball.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// The documents that name images.
    pub documents: BTreeMap<String, Bytes>,
    /// The digests of blobs by path.
    pub blobs: BTreeMap<String, String>,
    /// The targets of links by path.
    pub links: BTreeMap<String, String>,
}

/// An image of a tarball.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ArchivedImage {
    /// One with a manifest, or with an index of manifests, among the blobs.
    Manifest {
        names: Vec<String>,
        media_type: String,
        digest: String,
        size: i64,
    },
    /// One whose manifest must be made: the digests of its configuration and its layers.
    Parts {
        names: Vec<String>,
        config: String,
        layers: Vec<String>,
    },
}

impl Contents {
    /// The digest of a blob by its path, or by that of a link to it.
    fn blob(&self, path: &str) -> Option<&String> {
        let mut path = &normal(Path::new(path));
        // A chain of links is not longer than there are links.
        for _ in 0..=self.links.len() {
            match self.links.get(path) {
                Some(target) => path = target,
                None => return self.blobs.get(path),
            }
        }
        None
    }

    fn document(&self, name: &str) -> Option<Result<Value, ArchiveError>> {
        let text = self.documents.get(name)?;
        Some(json::parse(text).map_err(|error| ArchiveError::Document {
            document: name.into(),
            why: error.to_string(),
        }))
    }

    /// The images, of which each has a name.
    pub(super) fn images(&self) -> Result<Vec<ArchivedImage>, ArchiveError> {
        let images = match (self.document("index.json"), self.document("manifest.json")) {
            (Some(index), _) => layout_images(&index?)?,
            (None, Some(manifest)) => self.docker_images(&manifest?)?,
            (None, None) => return Err(ArchiveError::NotATarball),
        };
        match images.is_empty() {
            true => Err(ArchiveError::NoName),
            false => Ok(images),
        }
    }

    fn docker_images(&self, manifest: &Value) -> Result<Vec<ArchivedImage>, ArchiveError> {
        let mut images = Vec::new();
        for entry in manifest.list() {
            let find = |path: &Value| {
                let missing = || ArchiveError::Document {
                    document: "manifest.json".into(),
                    why: format!("the tarball has no {:?}", path.str()),
                };
                self.blob(path.str()).cloned().ok_or_else(missing)
            };
            let names = entry["RepoTags"].list().iter();
            let names: Vec<String> = names
                .map(|name| whole_name("manifest.json", name.str()))
                .collect::<Result<_, _>>()?;
            if names.is_empty() {
                continue;
            }
            images.push(ArchivedImage::Parts {
                names,
                config: find(&entry["Config"])?,
                layers: entry["Layers"]
                    .list()
                    .iter()
                    .map(find)
                    .collect::<Result<_, _>>()?,
            });
        }
        Ok(images)
    }
}

/// The images of an image layout.
fn layout_images(index: &Value) -> Result<Vec<ArchivedImage>, ArchiveError> {
    let mut images = Vec::new();
    for entry in index["manifests"].list() {
        let annotation = |name: &str| entry["annotations"][name].str();
        let name = match annotation("io.containerd.image.name") {
            "" => annotation("org.opencontainers.image.ref.name"),
            name => name,
        };
        // The name may be a tag alone, of an image without a name.
        if !name.contains(['/', ':']) {
            continue;
        }
        images.push(ArchivedImage::Manifest {
            names: vec![whole_name("index.json", name)?],
            media_type: entry["mediaType"].str().into(),
            digest: entry["digest"].str().into(),
            size: entry["size"].int(),
        });
    }
    Ok(images)
}

/// The name of an image with its registry and a tag.
fn whole_name(document: &str, name: &str) -> Result<String, ArchiveError> {
    let parsed = ImageName::parse(name).map_err(|error| ArchiveError::Document {
        document: document.into(),
        why: format!("the name {name:?} of an image: {error}"),
    });
    Ok(parsed?.with_default_tag().to_string())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn tarball(files: &[(&str, &str)]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            match content.strip_prefix("-> ") {
                Some(target) => {
                    header.set_entry_type(EntryType::Symlink);
                    header.set_size(0);
                    archive.append_link(&mut header, path, target).unwrap();
                }
                None => {
                    header.set_size(content.len() as u64);
                    archive
                        .append_data(&mut header, path, content.as_bytes())
                        .unwrap();
                }
            }
        }
        archive.into_inner().unwrap()
    }

    /// The images of a tarball whose blobs have their paths as digests.
    fn images(archive: &[u8]) -> Result<Vec<ArchivedImage>, ArchiveError> {
        let mut contents = Contents::default();
        read(archive, |part| {
            match part {
                Part::Document(name, text) => drop(contents.documents.insert(name, text)),
                Part::Blob(path, _) => drop(contents.blobs.insert(path.clone(), path)),
                Part::Link(path, target) => drop(contents.links.insert(path, target)),
                Part::Data(_) => {}
            }
            true
        })?;
        contents.images()
    }

    #[track_caller]
    fn check_error(archive: &[u8], expected: &str) {
        let error = images(archive).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    const DOCKER: [(&str, &str); 4] = [
        ("aa/layer.tar", "layer"),
        ("bb/layer.tar", "-> ../aa/layer.tar"),
        ("cc.json", "{}"),
        (
            "manifest.json",
            r#"[{"Config":"cc.json","RepoTags":["web:1"],"Layers":["aa/layer.tar","bb/layer.tar"]}]"#,
        ),
    ];

    #[test]
    fn a_tarball_of_docker_has_its_layers_by_path() {
        let expected = [ArchivedImage::Parts {
            names: vec!["docker.io/library/web:1".into()],
            config: "cc.json".into(),
            layers: vec!["aa/layer.tar".into(), "aa/layer.tar".into()],
        }];
        assert_eq!(images(&tarball(&DOCKER)).unwrap(), expected);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&tarball(&DOCKER)).unwrap();
        assert_eq!(images(&gzip.finish().unwrap()).unwrap(), expected);
    }

    #[test]
    fn an_image_layout_has_its_manifests_by_digest() {
        let index = |name: &str, value: &str| {
            format!(
                r#"{{"manifests":[{{"mediaType":"m","digest":"sha256:aa","size":2,"annotations":{{"{name}":"{value}"}}}}]}}"#
            )
        };
        let read =
            |name: &str, value: &str| images(&tarball(&[("index.json", &index(name, value))]));
        let expected = |name: &str| {
            [ArchivedImage::Manifest {
                names: vec![name.into()],
                media_type: "m".into(),
                digest: "sha256:aa".into(),
                size: 2,
            }]
        };
        let (own, common) = (
            "io.containerd.image.name",
            "org.opencontainers.image.ref.name",
        );
        assert_eq!(read(own, "a.test/b:1").unwrap(), expected("a.test/b:1"));
        let short = read(common, "b:1").unwrap();
        assert_eq!(short, expected("docker.io/library/b:1"));
        assert!(matches!(read(common, "1"), Err(ArchiveError::NoName)));
    }

    #[test]
    fn what_is_not_a_tarball_of_images_is_refused() {
        check_error(b"hello", "not a tarball of images");
        check_error(&[7; 4096], "not a tarball of images");
        check_error(&[], "not a tarball of images");
        check_error(&tarball(&[("a", "b")]), "not a tarball of images");
        check_error(ZSTD, "zstd");
        let whole = tarball(&DOCKER);
        check_error(&whole[..600], "cannot read the tarball");
        check_error(&tarball(&[("manifest.json", "{")]), "manifest.json: ");
        check_error(
            &tarball(&DOCKER[1..]),
            "the tarball has no \"aa/layer.tar\"",
        );
        let nameless = r#"[{"Config":"c","RepoTags":null,"Layers":[]}]"#;
        check_error(&tarball(&[("manifest.json", nameless)]), "has no name");
    }

    #[test]
    fn links_that_lead_in_a_circle_end() {
        let mut files = DOCKER;
        files[0] = ("aa/layer.tar", "-> ../bb/layer.tar");
        check_error(&tarball(&files), "the tarball has no");
    }
}
