//! Objects in a file: YAML documents separated by `---`, or JSON objects one after the other, compressed by gzip or not.
//!
//! What is read is recognised by its content, what is written depends on the name: `.json` and `.jsonl` are JSON, an object per
//! line, everything else YAML; `.gz` at the end is compressed. Both are what `kubectl apply -f` reads. The file appears
//! under its name once it is complete.
//!
//! An export that keeps revisions ends with a document that is no object: the revision of the store that was exported
//! (`REVISION_FORMAT`). Without it the writes that no object shows, such as deletes, would not be counted.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use mizzen_store::Revision;
use mizzen_value::json::{self, JsonScanner};
use mizzen_value::{Value, value, yaml};
use tempfile::NamedTempFile;

use super::group_of;

/// The most that a file may have when it is decompressed.
const MAX_BYTES: u64 = 4 << 30;

/// The group of documents that are about the file, and not objects of the cluster.
const FILE_GROUP: &str = "export.mizzen.dev";

/// The apiVersion of the document with the revision of the store.
const REVISION_FORMAT: &str = "export.mizzen.dev/v1";

/// Its kind.
const REVISION_KIND: &str = "StoreRevision";

/// The first bytes of what gzip wrote.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Why objects cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// The file cannot be used.
    #[error("cannot use {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file exists.
    #[error("{} exists; name another file, or replace it with --force", .0.display())]
    Exists(PathBuf),
    /// The file has more than can be read.
    #[error("{} has more than 4 GiB", .0.display())]
    TooLarge(PathBuf),
    /// The text is invalid.
    #[error("{}, line {line}: {why}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
}

/// The format in which objects are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// YAML documents
    Yaml,
    /// A JSON object per line
    Json,
}

impl Format {
    /// The format for the name of a file.
    fn of(path: &Path) -> Format {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.unwrap_or_default().to_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        match name.ends_with(".json") || name.ends_with(".jsonl") {
            true => Format::Json,
            false => Format::Yaml,
        }
    }
}

/// Whether a path stands for standard input or output.
fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn in_file(path: &Path) -> impl Fn(io::Error) -> FileError + '_ {
    move |source| FileError::Io {
        path: path.into(),
        source,
    }
}

/// A file of objects that is being written.
pub(crate) struct ObjectFile {
    path: PathBuf,
    format: Format,
    force: bool,
    is_empty: bool,
    output: Output,
}

enum Output {
    Standard(BufWriter<io::Stdout>),
    Plain(BufWriter<NamedTempFile>),
    Compressed(GzEncoder<BufWriter<NamedTempFile>>),
    Memory(FileContent),
}

impl ObjectFile {
    /// Begins a file. `-` is standard output.
    pub(crate) fn create(
        path: &Path,
        format: Option<Format>,
        force: bool,
    ) -> Result<ObjectFile, FileError> {
        let output = if is_standard(path) {
            Output::Standard(BufWriter::new(io::stdout()))
        } else {
            if path.exists() && !force {
                return Err(FileError::Exists(path.into()));
            }
            let draft = NamedTempFile::new_in(parent(path)).map_err(in_file(path))?;
            let draft = BufWriter::new(draft);
            match path.extension().is_some_and(|extension| extension == "gz") {
                true => Output::Compressed(GzEncoder::new(draft, Compression::default())),
                false => Output::Plain(draft),
            }
        };
        Ok(ObjectFile {
            path: path.into(),
            format: format.unwrap_or_else(|| Format::of(path)),
            force,
            is_empty: true,
            output,
        })
    }

    /// Begins one that is kept in memory, for [`ObjectFile::into_content`].
    pub(crate) fn in_memory() -> ObjectFile {
        ObjectFile {
            path: PathBuf::new(),
            format: Format::Json,
            force: false,
            is_empty: true,
            output: Output::Memory(FileContent::default()),
        }
    }

    /// What was written to one in memory.
    pub(crate) fn into_content(self) -> FileContent {
        match self.output {
            Output::Memory(content) => content,
            _ => FileContent::default(),
        }
    }

    /// Appends an object.
    pub(crate) fn write(&mut self, object: &Value) -> Result<(), FileError> {
        let (format, is_first) = (self.format, std::mem::replace(&mut self.is_empty, false));
        let text = || match format {
            Format::Json => json::to_string(object) + "\n",
            Format::Yaml if is_first => yaml::write(object),
            Format::Yaml => format!("---\n{}", yaml::write(object)),
        };
        let written = match &mut self.output {
            Output::Standard(output) => output.write_all(text().as_bytes()),
            Output::Plain(output) => output.write_all(text().as_bytes()),
            Output::Compressed(output) => output.write_all(text().as_bytes()),
            Output::Memory(content) => {
                content.objects.push(object.clone());
                Ok(())
            }
        };
        written.map_err(in_file(&self.path))
    }

    /// Appends the revision of the store in which the objects are.
    pub(crate) fn write_revision(&mut self, revision: Revision) -> Result<(), FileError> {
        if let Output::Memory(content) = &mut self.output {
            content.revision = revision;
            return Ok(());
        }
        let revision = revision.to_string();
        self.write(&value!({
            "apiVersion": (REVISION_FORMAT),
            "kind": (REVISION_KIND),
            "metadata": { "resourceVersion": (revision.as_str()) },
        }))
    }

    /// Makes the file appear under its name.
    pub(crate) fn finish(self) -> Result<(), FileError> {
        let fail = in_file(&self.path);
        let draft = match self.output {
            Output::Standard(mut output) => return output.flush().map_err(fail),
            Output::Plain(output) => output,
            Output::Compressed(output) => output.finish().map_err(&fail)?,
            Output::Memory(_) => return Ok(()),
        };
        let draft = draft
            .into_inner()
            .map_err(|error| fail(error.into_error()))?;
        draft.as_file().sync_all().map_err(&fail)?;
        let persisted = match self.force {
            true => draft.persist(&self.path),
            false => draft.persist_noclobber(&self.path),
        };
        persisted.map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => FileError::Exists(self.path.clone()),
            _ => fail(error.error),
        })?;
        File::open(parent(&self.path))
            .and_then(|parent| parent.sync_all())
            .map_err(fail)
    }
}

fn parent(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// What is in files.
#[derive(Debug, Default)]
pub(crate) struct FileContent {
    /// The objects; those of lists one by one.
    pub(crate) objects: Vec<Value>,
    /// The revision of the store in which they were, the latest if there are several; zero if none is given.
    pub(crate) revision: Revision,
}

impl FileContent {
    /// Adds what is in a file; `-` is standard input.
    pub(crate) fn read(&mut self, path: &Path) -> Result<(), FileError> {
        let text = read_text(path)?;
        parse(&text, self).map_err(|(line, why)| FileError::Invalid {
            path: path.into(),
            line,
            why,
        })
    }
}

fn read_text(path: &Path) -> Result<Vec<u8>, FileError> {
    let read = |input: &mut dyn Read| {
        let mut text = Vec::new();
        input.take(MAX_BYTES + 1).read_to_end(&mut text)?;
        Ok(text)
    };
    let text = match is_standard(path) {
        true => read(&mut io::stdin().lock()),
        false => fs::File::open(path).and_then(|mut file| read(&mut file)),
    };
    let mut text = text.map_err(in_file(path))?;
    if text.starts_with(&GZIP) {
        text = read(&mut MultiGzDecoder::new(&*text)).map_err(in_file(path))?;
    }
    match text.len() as u64 > MAX_BYTES {
        true => Err(FileError::TooLarge(path.into())),
        false => Ok(text),
    }
}

/// A line, and what is wrong there.
type Invalid = (usize, String);

fn parse(text: &[u8], content: &mut FileContent) -> Result<(), Invalid> {
    let (mut start, mut at, mut start_line) = (0, 0, 1);
    for (index, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let end = at + line.len();
        // YAML may end a document with dots; what follows is another one.
        let rest = line.strip_prefix(b"---").or(line.strip_prefix(b"...\n"));
        if let Some(rest) = rest {
            let rest = rest.trim_ascii();
            // Kubernetes: only a comment may follow (apimachinery's util/yaml/decoder.go).
            if !rest.is_empty() && !rest.starts_with(b"#") {
                return Err((index + 1, "only a comment may follow ---".into()));
            }
            parse_document(&text[start..at], start_line, content)?;
            (start, start_line) = (end, index + 2);
        }
        at = end;
    }
    parse_document(&text[start..], start_line, content)
}

fn parse_document(
    text: &[u8],
    first_line: usize,
    content: &mut FileContent,
) -> Result<(), Invalid> {
    if text.trim_ascii_start().starts_with(b"{") {
        let n_before = content.objects.len();
        let Err(error) = parse_json(text, first_line, content) else {
            return Ok(());
        };
        content.objects.truncate(n_before);
        // A map of YAML may begin so, too. As an item of a list it cannot be followed by anything.
        let list = yaml::read(&[b"[", text, b"\n]"].concat());
        return match list {
            Ok(document) if document.complaint.is_none() && document.value.list().len() == 1 => {
                add(document.value.list()[0].clone(), first_line, content)
            }
            _ => Err(error),
        };
    }
    let document = yaml::read(text).map_err(|error| match error {
        yaml::YamlError::Syntax { line, problem } => {
            (first_line + line.max(1) - 1, problem.to_owned())
        }
        error => (first_line, error.to_string()),
    })?;
    if let Some(complaint) = document.complaint {
        return Err((first_line, complaint));
    }
    match document.value {
        Value::Null => Ok(()),
        value => add(value, first_line, content),
    }
}

/// JSON objects one after the other.
fn parse_json(text: &[u8], first_line: usize, content: &mut FileContent) -> Result<(), Invalid> {
    let (mut counted, mut line) = (0, first_line);
    let mut line_at = |offset: usize| {
        let passed = text.get(counted..offset).unwrap_or_default();
        line += passed.iter().filter(|byte| **byte == b'\n').count();
        counted = counted.max(offset);
        line
    };
    let mut at = 0;
    loop {
        let rest = &text[at..];
        at += rest.len() - rest.trim_ascii_start().len();
        if at == text.len() {
            return Ok(());
        }
        let begins = line_at(at);
        let mut scanner = JsonScanner::new(&text[at..]);
        match json::read(&mut scanner) {
            Ok(value) => add(value, begins, content)?,
            Err(error) => return Err((line_at(at + scanner.offset()), error.to_string())),
        }
        at += scanner.offset();
    }
}

/// Adds an object, or those of a list, or what is said about the file.
fn add(value: Value, line: usize, content: &mut FileContent) -> Result<(), Invalid> {
    let invalid = |why: &str| Err((line, why.to_owned()));
    if value.as_map().is_none() {
        return invalid("expected an object");
    }
    let (api_version, kind) = (value["apiVersion"].str(), value["kind"].str());
    if api_version.is_empty() || kind.is_empty() {
        return invalid("the object has no apiVersion or no kind");
    }
    if group_of(api_version) == FILE_GROUP {
        let revision = store_revision(&value).map_err(|why| (line, why))?;
        content.revision = content.revision.max(revision);
        return Ok(());
    }
    if let (Some(item_kind), Value::List(items)) = (kind.strip_suffix("List"), &value["items"]) {
        for item in items {
            let mut item = item.clone();
            if item.as_map().is_none() {
                return invalid("an item of the list is no object");
            }
            if item["kind"].str().is_empty() && !item_kind.is_empty() {
                item.set("apiVersion", api_version);
                item.set("kind", item_kind);
            }
            add(item, line, content)?;
        }
        return Ok(());
    }
    if value["metadata"]["name"].str().is_empty() {
        return Err((line, format!("the {kind} has no metadata.name")));
    }
    content.objects.push(value);
    Ok(())
}

/// The revision of the store, from the document of an export that has it.
fn store_revision(document: &Value) -> Result<Revision, String> {
    let (api_version, kind) = (document["apiVersion"].str(), document["kind"].str());
    if (api_version, kind) != (REVISION_FORMAT, REVISION_KIND) {
        return Err(format!(
            "{kind} in {api_version} is of another version, this one reads {REVISION_KIND} in {REVISION_FORMAT}"
        ));
    }
    let revision = document["metadata"]["resourceVersion"].str();
    let invalid = |_| format!("the {kind} has no metadata.resourceVersion that is a number");
    revision.parse().map(Revision).map_err(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn titles(text: &str) -> Result<Vec<String>, Invalid> {
        let mut content = FileContent::default();
        parse(text.as_bytes(), &mut content)?;
        Ok(content.objects.iter().map(super::super::title).collect())
    }

    #[track_caller]
    fn rejects(text: &str, line: usize, why: &str) {
        let (found, message) = titles(text).unwrap_err();
        assert!(message.contains(why), "{message}");
        assert_eq!(found, line, "{message}");
    }

    const A: &str = r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}"#;

    #[test]
    fn yaml_and_json_are_recognised() {
        let yaml = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n";
        for text in [
            A.to_owned(),
            yaml.to_owned(),
            format!("# nothing\n---\n{yaml}---\n"),
            "{apiVersion: v1, kind: Secret, metadata: {name: a}}".to_owned(),
        ] {
            assert_eq!(titles(&text).unwrap(), ["secret a"], "{text}");
        }
        let text = format!("{A}{A}\n{A}\n---\n{yaml}");
        assert_eq!(titles(&text).unwrap().len(), 4);
        assert_eq!(titles("").unwrap(), [""; 0]);
    }

    #[test]
    fn objects_of_lists_are_read_one_by_one() {
        let text = format!(r#"{{"apiVersion":"v1","kind":"List","items":[{A},{A}]}}"#);
        assert_eq!(titles(&text).unwrap(), ["secret a", "secret a"]);
        let text = "apiVersion: apps/v1\nkind: DeploymentList\nitems:\n- metadata: {name: web, namespace: shop}\n";
        assert_eq!(titles(text).unwrap(), ["deployment.apps shop/web"]);
    }

    #[test]
    fn the_revision_of_the_store_is_no_object() {
        let of = |version: &str, revision: &str| {
            format!(
                r#"{{"apiVersion":"export.mizzen.dev/{version}","kind":"StoreRevision","metadata":{{"resourceVersion":"{revision}"}}}}"#
            )
        };
        let read = |text: &str| {
            let mut content = FileContent::default();
            parse(text.as_bytes(), &mut content).map(|()| (content.objects.len(), content.revision))
        };
        let v1 = |revision| of("v1", revision);
        assert_eq!(read(A), Ok((1, Revision::ZERO)), "older exports have none");
        assert_eq!(read(&format!("{A}\n{}", v1("7"))), Ok((1, Revision(7))));
        // Two exports in one file.
        let both = [A, &v1("9"), A, &v1("7")].join("\n");
        assert_eq!(read(&both), Ok((2, Revision(9))));
        rejects(&format!("{A}\n{}", of("v2", "7")), 2, "of another version");
        rejects(&v1("seven"), 1, "no metadata.resourceVersion");
        let file = tempfile::tempdir().unwrap();
        let path = file.path().join("a.yaml");
        let mut written = ObjectFile::create(&path, None, false).unwrap();
        written.write_revision(Revision(12)).unwrap();
        written.finish().unwrap();
        let mut content = FileContent::default();
        content.read(&path).unwrap();
        assert_eq!((content.objects.len(), content.revision), (0, Revision(12)));
    }

    #[test]
    fn errors_name_their_lines() {
        rejects(&format!("{A}\n\n{{\"a\":}}\n"), 3, "invalid character");
        rejects(&format!("{A}\n{{\"a\":"), 2, "unexpected end");
        rejects(&format!("{A}\n{{}}\n"), 2, "no apiVersion");
        rejects("---\n\n---\na: [\nb: c\n---\n", 5, "");
        rejects("apiVersion: v1\nkind: Secret\n", 1, "no metadata.name");
        rejects("---\n...\n\n- c\n", 3, "expected an object");
        rejects("{kind: a}\n{kind: b}\n", 1, "invalid character");
        rejects("# a\n---x\n", 2, "only a comment");
        rejects("a: b\n---\n- c\n", 1, "no apiVersion");
        rejects("---\n- c\n", 2, "expected an object");
        rejects("---\na: b\na: c\n", 2, "already");
    }

    #[test]
    fn the_name_of_a_file_tells_its_format() {
        let format = |name: &str| Format::of(Path::new(name));
        assert_eq!(format("a.yaml"), Format::Yaml);
        assert_eq!(format("-"), Format::Yaml);
        assert_eq!(format("a.jsonl.gz"), Format::Json);
        assert_eq!(format("a.json"), Format::Json);
    }
}
