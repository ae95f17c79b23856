//! What does a file say now? Looked at again and again while the server runs.

use std::path::PathBuf;
use std::time::Duration;

/// How often a file is looked at. Kubernetes is told by the system at once; a second later will do.
const EVERY: Duration = Duration::from_secs(1);

/// Tells `changed` each time that a file says something new. A file that cannot be read says what it said before.
pub(crate) async fn follow(file: PathBuf, mut known: String, mut changed: impl FnMut(&str)) {
    let mut is_readable = true;
    loop {
        tokio::time::sleep(EVERY).await;
        match std::fs::read_to_string(&file) {
            Ok(text) => {
                is_readable = true;
                if text != known {
                    changed(&text);
                    known = text;
                }
            }
            Err(error) => {
                if std::mem::replace(&mut is_readable, false) {
                    tracing::error!(file = %file.display(), %error, "a file cannot be read any more");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::sync::Arc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_new_is_told_once() {
        let directory = tempfile::tempdir().unwrap();
        let (file, told) = (
            directory.path().join("file"),
            Arc::new(Mutex::new(Vec::new())),
        );
        let seen = told.clone();
        let changed = move |text: &str| seen.lock().push(text.to_owned());
        let task = tokio::spawn(follow(file.clone(), "a".into(), changed));
        let check = async |content: Option<&str>, expected: &[&str]| {
            match content {
                Some(text) => std::fs::write(&file, text).unwrap(),
                None => std::fs::remove_file(&file).unwrap(),
            }
            tokio::time::sleep(EVERY * 3).await;
            assert_eq!(*told.lock(), expected);
        };
        check(Some("a"), &[]).await;
        check(Some("b"), &["b"]).await;
        check(None, &["b"]).await;
        check(Some("b"), &["b"]).await;
        check(Some("c"), &["b", "c"]).await;
        task.abort();
    }
}
