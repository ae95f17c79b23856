//! The server and credentials of a kubeconfig file, as a webhook or delegating server needs them.
//!
//! The `kube` crate parses the file; paths are relative to it. Data takes precedence over files, a
//! token file over a token.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use kube::config::{self, AuthInfo};
use mizzen_value::json;
use mizzen_value::percent::decode;
use secrecy::{ExposeSecret as _, SecretString};

use crate::{ClientIdentity, Trust, clean_path};

/// The current context.
#[derive(Clone)]
pub struct WebhookKubeconfig {
    /// `https://host:port`.
    pub url: String,
    /// The path of the server's URL, for webhooks: `/`, `/authorize`.
    pub path: String,
    /// `host:port`.
    pub address: String,
    /// The name that the server's certificate must have.
    pub server_name: String,
    /// Who must have signed the server's certificate.
    pub trust: Trust,
    /// The client certificate.
    pub identity: Option<ClientIdentity>,
    /// The bearer token.
    pub token: Option<String>,
}

/// Does not show tokens.
impl fmt::Debug for WebhookKubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kubeconfig({}{})", self.url, self.path)
    }
}

/// Why a kubeconfig file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WebhookKubeconfigError {
    /// A file cannot be read.
    #[error("{}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The content is invalid.
    #[error("{}: {problem}", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The error.
        problem: String,
    },
}

impl WebhookKubeconfig {
    /// Reads a kubeconfig file.
    pub fn load(path: &Path) -> Result<WebhookKubeconfig, WebhookKubeconfigError> {
        let content = |problem: String| WebhookKubeconfigError::Content {
            path: path.into(),
            problem,
        };
        let file = config::Kubeconfig::read_from(path).map_err(|error| match error {
            config::KubeconfigError::ReadConfig(source, path) => {
                WebhookKubeconfigError::Read { path, source }
            }
            error => content(error.to_string()),
        })?;
        let missing =
            |what: &str, name: &str| content(format!("there is no {what} {}", json::quote(name)));
        let name = file.current_context.as_deref().unwrap_or_default();
        let context = file.contexts.iter().find(|named| named.name == name);
        let context = context
            .and_then(|named| named.context.as_ref())
            .ok_or_else(|| missing("context", name))?;
        let cluster = file
            .clusters
            .iter()
            .find(|named| named.name == context.cluster);
        let cluster = cluster
            .and_then(|named| named.cluster.as_ref())
            .ok_or_else(|| missing("cluster", &context.cluster))?;
        let user = match context.user.as_deref().unwrap_or_default() {
            "" => AuthInfo::default(),
            name => {
                let user = file.auth_infos.iter().find(|named| named.name == name);
                user.and_then(|named| named.auth_info.clone())
                    .ok_or_else(|| missing("user", name))?
            }
        };
        let ServerUrl {
            url,
            path: below,
            address,
            host,
        } = ServerUrl::parse(cluster.server.as_deref().unwrap_or_default()).map_err(content)?;
        let server_name = non_empty(&cluster.tls_server_name).map_or(host, str::to_owned);
        let trust = match cluster.insecure_skip_tls_verify {
            Some(true) => Trust::Anyone,
            _ => {
                let (data, file) = (
                    non_empty(&cluster.certificate_authority_data),
                    non_empty(&cluster.certificate_authority),
                );
                let bundle = read_pem(data, file)
                    .map_err(|error| error.of("certificate-authority", path))?;
                Trust::bundle(bundle.unwrap_or_default().into())
            }
        };
        let certificate = read_pem(
            non_empty(&user.client_certificate_data),
            non_empty(&user.client_certificate),
        )
        .map_err(|error| error.of("client-certificate", path))?;
        let key = read_pem(
            non_empty_secret(&user.client_key_data),
            non_empty(&user.client_key),
        )
        .map_err(|error| error.of("client-key", path))?;
        let identity = certificate
            .zip(key)
            .map(|(certificate, key)| ClientIdentity { certificate, key });
        let token = match non_empty(&user.token_file) {
            Some(file) => Some(read(Path::new(file))?.trim().to_owned()),
            None => non_empty_secret(&user.token).map(str::to_owned),
        };
        Ok(WebhookKubeconfig {
            url,
            path: below,
            address,
            server_name,
            trust,
            identity,
            token,
        })
    }
}

fn read(path: &Path) -> Result<String, WebhookKubeconfigError> {
    fs::read_to_string(path).map_err(|source| WebhookKubeconfigError::Read {
        path: path.into(),
        source,
    })
}

/// The parts of a server URL.
struct ServerUrl {
    url: String,
    path: String,
    address: String,
    host: String,
}

impl ServerUrl {
    fn parse(server: &str) -> Result<ServerUrl, String> {
        let invalid = || format!("{server:?} is not the URL of a server");
        let uri: Uri = server.parse().map_err(|_| invalid())?;
        let host = uri
            .host()
            .filter(|_| uri.scheme_str() == Some("https"))
            .ok_or_else(invalid)?;
        let address = format!("{host}:{}", uri.port_u16().unwrap_or(443));
        Ok(ServerUrl {
            url: format!("https://{address}"),
            path: clean_path(&decode(uri.path())),
            address,
            host: host.to_owned(),
        })
    }
}

/// A non-empty field.
fn non_empty(field: &Option<String>) -> Option<&str> {
    field.as_deref().filter(|text| !text.is_empty())
}

fn non_empty_secret(field: &Option<SecretString>) -> Option<&str> {
    let text = field.as_ref().map(|secret| secret.expose_secret());
    text.filter(|text| !text.is_empty())
}

/// PEM from base64 data, or from a file.
fn read_pem(data: Option<&str>, file: Option<&str>) -> Result<Option<String>, PemError> {
    match (data, file) {
        (Some(data), _) => {
            let bytes = STANDARD.decode(data.replace(['\r', '\n'], "")).ok();
            let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
            text.map(Some).ok_or(PemError::Base64)
        }
        (None, Some(file)) => read(Path::new(file)).map(Some).map_err(PemError::File),
        (None, None) => Ok(None),
    }
}

enum PemError {
    File(WebhookKubeconfigError),
    Base64,
}

impl PemError {
    /// The error of a field of the kubeconfig file at `path`.
    fn of(self, field: &str, path: &Path) -> WebhookKubeconfigError {
        match self {
            PemError::File(error) => error,
            PemError::Base64 => WebhookKubeconfigError::Content {
                path: path.into(),
                problem: format!("{field}-data is not PEM in base64"),
            },
        }
    }
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

    fn load(text: &str) -> Result<WebhookKubeconfig, String> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("kubeconfig", text),
            ("ca.crt", "trusted"),
            ("token", "secret\n"),
        ] {
            fs::write(directory.path().join(name), text).unwrap();
        }
        WebhookKubeconfig::load(&directory.path().join("kubeconfig"))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn relative_paths_are_resolved_against_the_kubeconfig() {
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
    fn a_path_is_kept_and_a_user_is_optional() {
        let file = load(
            &FILE
                .replace("com/", "com/authorize/")
                .replace(", user: me", ""),
        )
        .unwrap();
        assert_eq!((file.path.as_str(), file.token), ("/authorize", None));
    }

    #[test]
    fn inline_data_override_a_file_and_a_token_file_overrides_a_token() {
        let file = load(
            &FILE
                .replace(
                    "ca.crt",
                    "lost.crt, certificate-authority-data: dHJ1c3RlZA==",
                )
                .replace("tokenFile: token", "tokenFile: token, token: other"),
        )
        .unwrap();
        assert_eq!(file.trust, Trust::Bundle(b"trusted".to_vec()));
        assert_eq!(file.token.as_deref(), Some("secret"));
        let file = load(&FILE.replace("tokenFile: token", "token: other")).unwrap();
        assert_eq!(file.token.as_deref(), Some("other"));
    }

    #[track_caller]
    fn check(from: &str, to: &str, problem: &str) {
        let error = load(&FILE.replace(from, to)).map(|_| ()).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }

    #[test]
    fn an_unusable_kubeconfig_is_an_error() {
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
        check("user: me}", "user: you}", "there is no user \"you\"");
        check("https:", "http:", "is not the URL of a server");
        check("ca.crt", "lost.crt", "lost.crt: No such file");
        check(
            "certificate-authority: ca.crt",
            "certificate-authority-data: '?'",
            "is not PEM in base64",
        );
    }
}
