//! Where the server is and who we are: the part of a kubeconfig file that a load generator needs.
//!
//! Files named in it are relative to it, as kubectl has it; data win over files. Credential plugins (`exec`,
//! `auth-provider`) are refused instead of ignored.

use std::fmt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use saphyr::{LoadableYamlNode, Yaml};

/// One context of a kubeconfig file, with every file it names already read.
#[derive(PartialEq)]
pub(crate) struct Kubeconfig {
    /// `https://host:port`, perhaps with a path below which the API lives.
    pub server: String,
    /// The name to expect in the server's certificate, if it is not the host.
    pub tls_server_name: Option<String>,
    pub trust: Trust,
    pub client_certificate: Option<ClientCertificate>,
    pub token: Option<String>,
}

/// How the server proves who it is.
#[derive(Debug, PartialEq)]
pub(crate) enum Trust {
    /// By a certificate of this authority (PEM).
    Authority(Vec<u8>),
    /// Not at all: `insecure-skip-tls-verify`.
    Anyone,
    /// The file does not say.
    Unsaid,
}

/// How we prove who we are (PEM).
#[derive(PartialEq)]
pub(crate) struct ClientCertificate {
    pub chain: Vec<u8>,
    pub key: Vec<u8>,
}

/// Tokens and keys are not for logs.
impl fmt::Debug for Kubeconfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Kubeconfig")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ClientCertificate")
            .finish_non_exhaustive()
    }
}

/// Why a kubeconfig file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error("{}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("not YAML: {0}")]
    Syntax(#[from] saphyr::ScanError),
    #[error("no {what} named {name:?}")]
    Missing { what: &'static str, name: String },
    #[error("{field} is not base64")]
    Base64 { field: String },
    #[error("{0} is required")]
    Required(&'static str),
    #[error("credentials from {0} are not supported, use a certificate or a token")]
    Unsupported(&'static str),
}

impl Kubeconfig {
    /// Reads `path` and takes the context called `context`, or the current one.
    pub(super) fn load(path: &Path, context: Option<&str>) -> Result<Self, LoadError> {
        let text = String::from_utf8_lossy(&read(path)?).into_owned();
        let base = path.parent().unwrap_or(Path::new("."));
        Self::parse(&text, base, context)
    }

    fn parse(text: &str, base: &Path, context: Option<&str>) -> Result<Self, LoadError> {
        let documents = Yaml::load_from_str(text)?;
        let file = documents
            .first()
            .ok_or(LoadError::Required("a YAML document"))?;

        let context = context
            .or(string(file, "current-context"))
            .unwrap_or_default();
        let context = named(file, "contexts", "context", context)?;
        let cluster = named(
            file,
            "clusters",
            "cluster",
            string(context, "cluster").unwrap_or_default(),
        )?;
        let user = match string(context, "user") {
            Some(name) => named(file, "users", "user", name)?,
            None => &Yaml::BadValue,
        };
        for plugin in ["exec", "auth-provider"] {
            if user.as_mapping_get(plugin).is_some() {
                return Err(LoadError::Unsupported(plugin));
            }
        }
        Ok(Self {
            server: string(cluster, "server")
                .ok_or(LoadError::Required("cluster.server"))?
                .to_owned(),
            tls_server_name: string(cluster, "tls-server-name").map(str::to_owned),
            trust: trust(cluster, base)?,
            client_certificate: client_certificate(user, base)?,
            token: token(user, base)?,
        })
    }
}

fn trust(cluster: &Yaml, base: &Path) -> Result<Trust, LoadError> {
    if cluster
        .as_mapping_get("insecure-skip-tls-verify")
        .and_then(Yaml::as_bool)
        == Some(true)
    {
        return Ok(Trust::Anyone);
    }
    Ok(data_or_file(cluster, "certificate-authority", base)?
        .map_or(Trust::Unsaid, Trust::Authority))
}

fn client_certificate(user: &Yaml, base: &Path) -> Result<Option<ClientCertificate>, LoadError> {
    let Some(chain) = data_or_file(user, "client-certificate", base)? else {
        return Ok(None);
    };
    let key =
        data_or_file(user, "client-key", base)?.ok_or(LoadError::Required("user.client-key"))?;
    Ok(Some(ClientCertificate { chain, key }))
}

/// Kubernetes: a token file wins over a token (client-go, tools/clientcmd/client_config.go).
fn token(user: &Yaml, base: &Path) -> Result<Option<String>, LoadError> {
    match string(user, "tokenFile") {
        Some(file) => Ok(Some(
            String::from_utf8_lossy(&read(&base.join(file))?)
                .trim()
                .to_owned(),
        )),
        None => Ok(string(user, "token").map(str::to_owned)),
    }
}

/// The bytes of `FIELD-data`, else of the file that `FIELD` names.
fn data_or_file(node: &Yaml, field: &str, base: &Path) -> Result<Option<Vec<u8>>, LoadError> {
    let data_field = format!("{field}-data");
    if let Some(data) = string(node, &data_field) {
        let packed: String = data.split_whitespace().collect();
        let decoded = BASE64_STANDARD.decode(packed);
        return decoded
            .map(Some)
            .map_err(|_| LoadError::Base64 { field: data_field });
    }
    string(node, field)
        .map(|file| read(&base.join(file)))
        .transpose()
}

/// The `inner` of the entry called `name` in the list `list`.
fn named<'a>(
    file: &'a Yaml<'a>,
    list: &'static str,
    inner: &'static str,
    name: &str,
) -> Result<&'a Yaml<'a>, LoadError> {
    file.as_mapping_get(list)
        .and_then(Yaml::as_sequence)
        .and_then(|entries| {
            entries
                .iter()
                .find(|entry| string(entry, "name") == Some(name))
        })
        .and_then(|entry| entry.as_mapping_get(inner))
        .ok_or_else(|| LoadError::Missing {
            what: inner,
            name: name.to_owned(),
        })
}

/// A string field; an empty one counts as absent, as everywhere in kubeconfig files.
fn string<'a>(node: &'a Yaml<'a>, field: &str) -> Option<&'a str> {
    node.as_mapping_get(field)?
        .as_str()
        .filter(|text| !text.is_empty())
}

fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    fs::read(path).map_err(|source| LoadError::Read {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
apiVersion: v1
kind: Config
current-context: here
clusters:
- name: local
  cluster: {server: "https://127.0.0.1:6443", certificate-authority-data: Y2E=}
- name: lax
  cluster:
    server: https://lax:1
    insecure-skip-tls-verify: true
    tls-server-name: strict
contexts:
- name: here
  context: {cluster: local, user: admin}
- name: there
  context: {cluster: lax, user: robot}
- name: nobody
  context: {cluster: lax, user: ""}
- name: plugged
  context: {cluster: lax, user: cloud}
users:
- name: admin
  user:
    client-certificate-data: Y2hh
      aW4=
    client-key-data: a2V5
- name: robot
  user: {token: secret}
- name: cloud
  user: {exec: {command: aws}}
"#;

    fn parse(context: Option<&str>) -> Result<Kubeconfig, LoadError> {
        Kubeconfig::parse(FILE, Path::new("."), context)
    }

    #[test]
    fn takes_the_current_context_and_decodes_its_data() {
        let expected = Kubeconfig {
            server: "https://127.0.0.1:6443".into(),
            tls_server_name: None,
            trust: Trust::Authority(b"ca".to_vec()),
            client_certificate: Some(ClientCertificate {
                chain: b"chain".to_vec(),
                key: b"key".to_vec(),
            }),
            token: None,
        };
        assert_eq!(parse(None).unwrap(), expected);
    }

    #[test]
    fn takes_a_context_by_name() {
        let expected = Kubeconfig {
            server: "https://lax:1".into(),
            tls_server_name: Some("strict".into()),
            trust: Trust::Anyone,
            client_certificate: None,
            token: Some("secret".into()),
        };
        assert_eq!(parse(Some("there")).unwrap(), expected);
    }

    #[test]
    fn a_context_without_a_user_is_anonymous() {
        let kubeconfig = parse(Some("nobody")).unwrap();
        assert_eq!(
            (kubeconfig.client_certificate, kubeconfig.token),
            (None, None)
        );
    }

    #[test]
    fn says_what_is_missing_or_unsupported() {
        let refusal = |context| parse(Some(context)).unwrap_err().to_string();
        assert_eq!(refusal("nowhere"), r#"no context named "nowhere""#);
        assert_eq!(
            refusal("plugged"),
            "credentials from exec are not supported, use a certificate or a token"
        );
    }

    #[test]
    fn files_are_relative_to_the_kubeconfig() {
        let dir = std::env::temp_dir().join(format!("mizzen-kubeconfig-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("ca.crt"), "from a file").unwrap();
        let text = "current-context: a\nclusters: [{name: a, cluster: {server: 'https://a', certificate-authority: ca.crt}}]\n\
                    contexts: [{name: a, context: {cluster: a}}]";
        let kubeconfig = Kubeconfig::parse(text, &dir, None).unwrap();
        assert_eq!(kubeconfig.trust, Trust::Authority(b"from a file".to_vec()));
        fs::remove_dir_all(dir).unwrap();
    }
}
