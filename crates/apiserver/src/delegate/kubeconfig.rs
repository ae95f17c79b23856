//! Where the main server is and who we are: the part of a kubeconfig file that a server needs.
//!
//! Files named in it are relative to it; data win over files.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use mizzen_object::{Value, yaml};

use crate::outgoing::{Identity, Trust, clean_path};
use crate::request::decode;

/// The current context.
#[derive(Clone)]
pub(crate) struct Kubeconfig {
    /// `https://host:port`.
    pub url: String,
    /// The path of the server's URL, which counts where one address is called and no API: `/`, `/authorize`.
    pub path: String,
    /// `host:port`.
    pub address: String,
    pub server_name: String,
    pub trust: Trust,
    pub identity: Option<Identity>,
    pub token: Option<String>,
}

/// Tokens are not for logs.
impl fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kubeconfig({}{})", self.url, self.path)
    }
}

/// Why a kubeconfig file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// A file cannot be read.
    #[error("{}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// It says too little, or nothing sensible.
    #[error("{}: {problem}", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

impl Kubeconfig {
    pub(crate) fn load(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
        let text = read(path)?;
        let content = |problem: String| KubeconfigError::Content {
            path: path.into(),
            problem,
        };
        let file = yaml::read(text.as_bytes())
            .map_err(|error| content(error.to_string()))?
            .value;
        let context = named(&file, "context", file["current-context"].str()).map_err(content)?;
        let cluster = named(&file, "cluster", context["cluster"].str()).map_err(content)?;
        let user = match context["user"].str() {
            "" => &Value::Null,
            user => named(&file, "user", user).map_err(content)?,
        };
        let Place {
            url,
            path: below,
            address,
            host,
        } = place(cluster["server"].str()).map_err(content)?;
        let server_name = match cluster["tls-server-name"].str() {
            "" => host,
            name => name.to_owned(),
        };
        let trust = match cluster["insecure-skip-tls-verify"].bool() {
            true => Trust::Anyone,
            false => Trust::bundle(
                pem(cluster, "certificate-authority", path)?
                    .unwrap_or_default()
                    .into(),
            ),
        };
        let identity = match (
            pem(user, "client-certificate", path)?,
            pem(user, "client-key", path)?,
        ) {
            (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
            _ => None,
        };
        Ok(Kubeconfig {
            url,
            path: below,
            address,
            server_name,
            trust,
            identity,
            token: token(user, path)?,
        })
    }
}

fn read(path: &Path) -> Result<String, KubeconfigError> {
    fs::read_to_string(path).map_err(|source| KubeconfigError::Read {
        path: path.into(),
        source,
    })
}

/// The entry of `clusters`, `contexts` or `users` that is called `name`.
fn named<'a>(file: &'a Value, what: &str, name: &str) -> Result<&'a Value, String> {
    let entries = file[format!("{what}s").as_str()].list();
    let entry = entries.iter().find(|entry| entry["name"].str() == name);
    entry
        .map(|entry| &entry[what])
        .ok_or_else(|| format!("there is no {what} {name:?}"))
}

/// Where a server is.
struct Place {
    /// Without a path.
    url: String,
    path: String,
    address: String,
    host: String,
}

fn place(server: &str) -> Result<Place, String> {
    let refuse = || format!("{server:?} is not the URL of a server");
    let uri: Uri = server.parse().map_err(|_| refuse())?;
    let host = uri
        .host()
        .filter(|_| uri.scheme_str() == Some("https"))
        .ok_or_else(refuse)?;
    let address = format!("{host}:{}", uri.port_u16().unwrap_or(443));
    let path = clean_path(&decode(uri.path()));
    Ok(Place {
        url: format!("https://{address}"),
        path,
        address,
        host: host.to_owned(),
    })
}

/// What `FIELD-data` says, else the file that `FIELD` names.
fn pem(node: &Value, field: &str, path: &Path) -> Result<Option<String>, KubeconfigError> {
    let data = node[format!("{field}-data").as_str()].str();
    if !data.is_empty() {
        let text = STANDARD
            .decode(data)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok());
        let problem = format!("{field}-data is not PEM in base64");
        let refused = KubeconfigError::Content {
            path: path.into(),
            problem,
        };
        return text.map(Some).ok_or(refused);
    }
    match node[field].str() {
        "" => Ok(None),
        file => beside(path, file).map(Some),
    }
}

fn token(user: &Value, path: &Path) -> Result<Option<String>, KubeconfigError> {
    match (user["tokenFile"].str(), user["token"].str()) {
        ("", "") => Ok(None),
        ("", token) => Ok(Some(token.into())),
        (file, _) => Ok(Some(beside(path, file)?.trim().into())),
    }
}

/// A file that a kubeconfig names.
fn beside(path: &Path, file: &str) -> Result<String, KubeconfigError> {
    read(&path.parent().unwrap_or(Path::new(".")).join(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
current-context: here
contexts: [{name: here, context: {cluster: main, user: me}}]
clusters: [{name: main, cluster: {server: 'https://api.example.com/', certificate-authority: ca.crt}}]
users: [{name: me, user: {tokenFile: token}}]
";

    fn load(text: &str) -> Result<Kubeconfig, String> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("kubeconfig", text),
            ("ca.crt", "trusted"),
            ("token", "secret\n"),
        ] {
            fs::write(directory.path().join(name), text).unwrap();
        }
        Kubeconfig::load(&directory.path().join("kubeconfig")).map_err(|error| error.to_string())
    }

    #[test]
    fn files_are_beside_the_file_that_names_them() {
        let file = load(FILE).unwrap();
        assert_eq!(
            (file.url.as_str(), file.path.as_str()),
            ("https://api.example.com:443", "/")
        );
        assert_eq!(
            (file.address.as_str(), file.server_name.as_str()),
            ("api.example.com:443", "api.example.com")
        );
        assert_eq!(file.trust, Trust::Bundle(b"trusted".to_vec()));
        assert_eq!(file.token.as_deref(), Some("secret"));
    }

    #[test]
    fn a_path_counts_and_nobody_need_be_named() {
        let file = load(
            &FILE
                .replace("com/", "com/authorize/")
                .replace(", user: me", ""),
        )
        .unwrap();
        assert_eq!((file.path.as_str(), file.token), ("/authorize", None));
    }

    #[track_caller]
    fn check(from: &str, to: &str, problem: &str) {
        let error = load(&FILE.replace(from, to)).map(|_| ()).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }

    #[test]
    fn what_cannot_be_used_is_said() {
        check(
            "current-context: here",
            "current-context: there",
            "there is no context \"there\"",
        );
        check(
            "cluster: main",
            "cluster: other",
            "there is no cluster \"other\"",
        );
        check("https:", "http:", "is not the URL of a server");
        check("ca.crt", "lost.crt", "lost.crt: No such file");
        check(
            "certificate-authority: ca.crt",
            "certificate-authority-data: '?'",
            "is not PEM in base64",
        );
    }
}
