//! `/logs`: the files of a directory, usually `/var/log`.
//!
//! Kubernetes: pkg/routes/logs.go, which serves files as Go's `http.ServeFile` does; there are no ranges
//! and no modification times here.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek as _};
use std::path::Path;

use http::{HeaderValue, header};
use mizzen_object::Status;

use crate::response::{self, Body, Response};

/// How much of a file is read to detect its content type.
const SNIFFED: usize = 512;
/// Characters that are not escaped in links.
const UNESCAPED: &[u8] = b"$&+,/:;=@-_.~!*'()";

/// The file or directory of a path that begins with `/logs`.
pub(crate) async fn serve(root: &Path, path: &str) -> Result<Response, Status> {
    let below = path.strip_prefix("/logs").unwrap_or_default();
    if below.split(['/', '\\']).any(|part| part == "..") {
        return Ok(response::text(400, "invalid URL path\n"));
    }
    let (file, is_slashed) = (root.join(below.trim_matches('/')), path.ends_with('/'));
    let last = path
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .to_owned();
    let opened = tokio::task::spawn_blocking(move || open(&file, is_slashed)).await;
    Ok(match opened.map_err(Status::internal)? {
        Ok(ServedFile::File { file, media_type }) => {
            response::with_body(200, media_type, Body::reader(file))
        }
        Ok(ServedFile::Directory(list)) => {
            response::with_body(200, "text/html; charset=utf-8", list)
        }
        Ok(ServedFile::Unslashed) => {
            let mut answer = response::text(301, "");
            if let Ok(location) = HeaderValue::try_from(format!("{}/", escape(&last))) {
                answer.headers_mut().insert(header::LOCATION, location);
            }
            answer
        }
        Err(error) if error.raw_os_error() == Some(NAME_TOO_LONG) => {
            response::text(404, "file not found\n")
        }
        Err(error) => match error.kind() {
            ErrorKind::NotFound => response::text(404, "404 page not found\n"),
            ErrorKind::PermissionDenied => response::text(403, "403 Forbidden\n"),
            _ => response::text(500, "500 Internal Server Error\n"),
        },
    })
}

/// `ENAMETOOLONG` of Linux.
const NAME_TOO_LONG: i32 = 36;

enum ServedFile {
    File {
        file: File,
        media_type: &'static str,
    },
    Directory(String),
    /// A directory without a trailing slash: the client is redirected, so that relative links work.
    Unslashed,
}

fn open(path: &Path, is_slashed: bool) -> io::Result<ServedFile> {
    let mut file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return if is_slashed {
            list(path).map(ServedFile::Directory)
        } else {
            Ok(ServedFile::Unslashed)
        };
    }
    let mut head = Vec::new();
    (&mut file).take(SNIFFED as u64).read_to_end(&mut head)?;
    file.rewind()?;
    Ok(ServedFile::File {
        file,
        media_type: detect_content_type(&head),
    })
}

/// Kubernetes: Go's `DetectContentType`, as far as it matters for logs.
fn detect_content_type(head: &[u8]) -> &'static str {
    let is_binary = |byte: &u8| matches!(byte, 0x00..=0x08 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    match head {
        [0x1f, 0x8b, 0x08, ..] => "application/x-gzip",
        head if head.iter().any(is_binary) => "application/octet-stream",
        _ => "text/plain; charset=utf-8",
    }
}

/// Kubernetes: Go's `dirList`.
fn list(path: &Path) -> io::Result<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let slash = if entry.file_type()?.is_dir() { "/" } else { "" };
        names.push(format!("{}{slash}", entry.file_name().to_string_lossy()));
    }
    names.sort_unstable();
    let link = |name: &String| {
        let shown = name
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        let shown = shown.replace('"', "&#34;").replace('\'', "&#39;");
        format!("<a href=\"{}\">{shown}</a>\n", escape(name))
    };
    let links: String = names.iter().map(link).collect();
    Ok(format!(
        "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n{links}</pre>\n"
    ))
}

fn escape(name: &str) -> String {
    let byte = |byte: u8| match byte.is_ascii_alphanumeric() || UNESCAPED.contains(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    name.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(root: &Path, path: &str) -> (u16, String) {
        let answer = serve(root, path).await.unwrap();
        let status = answer.status().as_u16();
        let location = answer
            .headers()
            .get(header::LOCATION)
            .map(|value| value.to_str().unwrap().to_owned());
        let body = http_body_util::BodyExt::collect(answer.into_body())
            .await
            .unwrap()
            .to_bytes();
        (
            status,
            location.unwrap_or_else(|| String::from_utf8(body.to_vec()).unwrap()),
        )
    }

    #[tokio::test]
    async fn files_and_lists_of_the_directory_are_served_and_nothing_else() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "secret").unwrap();
        let root = outside.path().join("log");
        fs::create_dir_all(root.join("pods")).unwrap();
        let long = "line\n".repeat(100_000);
        fs::write(root.join("a b.log"), &long).unwrap();
        fs::write(root.join("pods/x"), "x").unwrap();
        assert_eq!(get(&root, "/logs/a b.log").await, (200, long));
        assert_eq!(get(&root, "/logs/pods/x").await, (200, "x".into()));
        let list = "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n\
                    <a href=\"a%20b.log\">a b.log</a>\n<a href=\"pods/\">pods/</a>\n</pre>\n";
        assert_eq!(get(&root, "/logs/").await, (200, list.into()));
        assert_eq!(get(&root, "/logs").await, (301, "logs/".into()));
        assert_eq!(get(&root, "/logs/pods").await, (301, "pods/".into()));
        assert_eq!(
            get(&root, "/logs/none").await,
            (404, "404 page not found\n".into())
        );
        assert_eq!(
            get(&root, &format!("/logs/{}", "x".repeat(300))).await,
            (404, "file not found\n".into())
        );
        for path in ["/logs/../secret", "/logs/pods/../../secret", "/logs/.."] {
            assert_eq!(
                get(&root, path).await,
                (400, "invalid URL path\n".into()),
                "{path}"
            );
        }
        assert_eq!(get(&root, "/logs//secret").await.0, 404);
    }

    #[test]
    fn a_log_is_text_unless_it_has_other_bytes() {
        assert_eq!(
            detect_content_type("é\t\n".as_bytes()),
            "text/plain; charset=utf-8"
        );
        assert_eq!(detect_content_type(b"a\0"), "application/octet-stream");
        assert_eq!(
            detect_content_type(&[0x1f, 0x8b, 0x08, 0]),
            "application/x-gzip"
        );
    }
}
