//! Whether the certificates and keys of a server fit an etcd that servers use already.
//!
//! A data directory beside etcd has certificates and keys only, so that a new one says nothing about the etcd. Keys
//! that were generated for it would reject the clients, and the tokens of service accounts, of all other servers.
//!
//! Every server publishes its authorities in a ConfigMap, as upstream's do: an etcd that has it is in use, or was.
//! Before that it adds fingerprints of its authorities and token keys to a record in etcd, of which upstream knows
//! nothing. Of servers that start on a new etcd at the same time, with keys that each of them has generated, one
//! creates the record.
//!
//! Invariant: the keys of a server that serves are in the record; before they were added it had one of each sort, unless
//! an argument names others.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mizzen_authentication::{TokenSigner as _, TrustedAuthorities};
use mizzen_bootstrap::token_key::TokenKey;
use mizzen_etcd::client::{CallError, Client};
use mizzen_etcd::messages::{Compare, RangeRequest, RequestOp, TxnRequest};
use mizzen_metrics::hash;
use mizzen_value::{Value, json, value};
use tokio::time::sleep;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

/// How long to wait after etcd did not answer.
const RETRY: Duration = Duration::from_millis(100);

/// The certificates and keys with which a server would start.
pub(crate) struct ServerKeys<'a> {
    /// The data directory.
    pub directory: &'a Path,
    /// Whether an argument names authorities of clients.
    pub names_authorities: bool,
    /// Whether an argument names authorities of front proxies.
    pub names_front_proxies: bool,
    /// Whether an argument names keys of service account tokens.
    pub names_token_keys: bool,
}

/// The keys of a server are not those of the servers that use the etcd.
#[derive(Debug, thiserror::Error)]
#[error(
    "servers with other certificates and keys use this etcd: {}; copy ca.crt, ca.key, front-proxy-ca.crt, \
     front-proxy-ca.key and sa.key of their data directory to {}, or name their files with {flags}; to give up what \
     was signed with the old ones, delete the ConfigMap kube-system/extension-apiserver-authentication in etcd, and \
     the key {record}",
    .problems.join(", and "),
    .directory.display()
)]
pub(crate) struct ForeignKeys {
    problems: Vec<String>,
    directory: PathBuf,
    flags: String,
    record: String,
}

/// Fingerprints of the keys with which servers of an etcd have started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fingerprints {
    clients: BTreeSet<String>,
    front_proxies: BTreeSet<String>,
    token_keys: BTreeSet<String>,
}

/// Where the fingerprints are in etcd.
pub(crate) struct KeyRecord {
    client: Client,
    key: String,
}

/// A file that servers must have in common.
struct SharedFile<'a> {
    name: &'static str,
    /// Whether it is compared.
    is_compared: bool,
    /// Its keys or certificates; none if it is missing.
    own: Option<BTreeSet<String>>,
    /// What servers have published of it.
    known: &'a BTreeSet<String>,
    /// What is wrong with another one.
    is_foreign: &'static str,
    /// What names another file.
    flag: &'static str,
}

impl SharedFile<'_> {
    fn problem(&self) -> Option<&'static str> {
        match &self.own {
            _ if !self.is_compared => None,
            None => Some("is missing"),
            Some(own) if !self.known.is_empty() && own.is_disjoint(self.known) => {
                Some(self.is_foreign)
            }
            Some(_) => None,
        }
    }
}

impl ServerKeys<'_> {
    /// Rejects keys that do not fit what servers have `published`, or `recorded`. What an argument names is accepted:
    /// the user knows what signed the clients and tokens of that etcd. Of a file with several certificates one is
    /// enough.
    fn check(
        &self,
        published: &TrustedAuthorities,
        recorded: &Fingerprints,
        record: &str,
    ) -> Result<(), ForeignKeys> {
        let mut clients = fingerprints(&published.clients);
        clients.extend(recorded.clients.iter().cloned());
        if clients.is_empty()
            && fingerprints(&published.front_proxies).is_empty()
            && *recorded == Fingerprints::default()
        {
            return Ok(());
        }
        let files = self.files(&clients, recorded);
        let foreign = files.iter().filter_map(|file| {
            let path = self.directory.join(file.name);
            let problem = format!("{} {}", path.display(), file.problem()?);
            Some((problem, file.flag))
        });
        let (problems, flags): (Vec<_>, Vec<_>) = foreign.unzip();
        match problems.is_empty() {
            true => Ok(()),
            false => Err(ForeignKeys {
                problems,
                directory: self.directory.into(),
                flags: flags.join(" and "),
                record: record.into(),
            }),
        }
    }

    /// The files, beside servers that trust these `clients` and have these keys.
    fn files<'a>(
        &self,
        clients: &'a BTreeSet<String>,
        recorded: &'a Fingerprints,
    ) -> [SharedFile<'a>; 3] {
        let front_proxies = &recorded.front_proxies;
        [
            SharedFile {
                name: "ca.crt",
                is_compared: !clients.is_empty() && !self.names_authorities,
                own: self.certificates("ca.crt"),
                known: clients,
                is_foreign: "is not among their authorities",
                flag: "--client-ca-file",
            },
            SharedFile {
                name: "front-proxy-ca.crt",
                // A server whose argument names the authority of clients has one of its own for front proxies, too.
                is_compared: !front_proxies.is_empty()
                    && !self.names_authorities
                    && !self.names_front_proxies,
                own: self.certificates("front-proxy-ca.crt"),
                known: front_proxies,
                is_foreign: "is not among their authorities of front proxies",
                flag: "--requestheader-client-ca-file",
            },
            SharedFile {
                name: "sa.key",
                is_compared: !self.names_token_keys,
                own: self.token_key(),
                known: &recorded.token_keys,
                is_foreign: "is not among their keys",
                flag: "--service-account-key-file",
            },
        ]
    }

    /// Rejects keys that do not fit those of other servers, before any are generated.
    pub(crate) async fn check_before(
        &self,
        published: &TrustedAuthorities,
        record: &KeyRecord,
    ) -> Result<(), ForeignKeys> {
        let (recorded, _) = record.read().await;
        self.check(published, &recorded, &record.key)
    }

    /// Adds the keys with which the server starts to the record, unless other servers use other keys by now. Waits for
    /// etcd, however long that takes.
    pub(crate) async fn publish(
        &self,
        published: &TrustedAuthorities,
        own: &Fingerprints,
        record: &KeyRecord,
    ) -> Result<(), ForeignKeys> {
        loop {
            let (recorded, revision) = record.read().await;
            self.check(published, &recorded, &record.key)?;
            let all = recorded.clone().with(own);
            if all == recorded {
                return Ok(());
            }
            // What another server has written meanwhile, or this one without an answer, is read again.
            match record.write(&all, revision).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => log_and_wait(error).await,
            }
        }
    }

    /// The certificates of a file in the data directory.
    fn certificates(&self, name: &str) -> Option<BTreeSet<String>> {
        let text = std::fs::read_to_string(self.directory.join(name));
        text.ok().map(|text| fingerprints(&text))
    }

    /// The signing key in the data directory.
    fn token_key(&self) -> Option<BTreeSet<String>> {
        let file = self.directory.join("sa.key");
        let id = |key: TokenKey| key.key_id().to_owned();
        let ids = TokenKey::read(&file).map(id).into_iter().collect();
        file.exists().then_some(ids)
    }
}

impl Fingerprints {
    /// The fingerprints of the authorities that a server trusts, and of the keys of tokens, which have such an id.
    pub(crate) fn new(
        trusted: &TrustedAuthorities,
        token_keys: impl IntoIterator<Item = String>,
    ) -> Fingerprints {
        Fingerprints {
            clients: fingerprints(&trusted.clients),
            front_proxies: fingerprints(&trusted.front_proxies),
            token_keys: token_keys.into_iter().collect(),
        }
    }

    fn with(mut self, other: &Fingerprints) -> Fingerprints {
        self.clients.extend(other.clients.iter().cloned());
        self.front_proxies
            .extend(other.front_proxies.iter().cloned());
        self.token_keys.extend(other.token_keys.iter().cloned());
        self
    }

    fn parse(text: &[u8]) -> Fingerprints {
        let record = json::parse(text).unwrap_or_default();
        let all = |field: &str| {
            let texts = record[field].list().iter();
            texts.map(|text| text.str().to_owned()).collect()
        };
        Fingerprints {
            clients: all("clientAuthorities"),
            front_proxies: all("frontProxyAuthorities"),
            token_keys: all("tokenKeys"),
        }
    }

    fn to_text(&self) -> String {
        let list = |all: &BTreeSet<String>| Value::List(all.iter().map(Value::from).collect());
        json::to_string(&value!({
            "clientAuthorities": (list(&self.clients)),
            "frontProxyAuthorities": (list(&self.front_proxies)),
            "tokenKeys": (list(&self.token_keys))
        }))
    }
}

impl KeyRecord {
    /// The record below a prefix.
    pub(crate) fn new(client: Client, prefix: &str) -> KeyRecord {
        let key = format!("{prefix}server-keys");
        KeyRecord { client, key }
    }

    /// The fingerprints, and the revision of the record; 0 if there is none. Waits for etcd.
    async fn read(&self) -> (Fingerprints, i64) {
        loop {
            let request = RangeRequest {
                key: self.key.clone().into(),
                ..RangeRequest::default()
            };
            match self.client.range(request).await {
                Ok(read) => {
                    let record = read.kvs.first();
                    return record.map_or_else(Default::default, |kv| {
                        (Fingerprints::parse(&kv.value), kv.mod_revision)
                    });
                }
                Err(error) => log_and_wait(error).await,
            }
        }
    }

    /// Writes the record, if it is still that of the revision.
    async fn write(&self, all: &Fingerprints, revision: i64) -> Result<bool, CallError> {
        let txn = TxnRequest {
            compare: vec![Compare::mod_revision(self.key.clone(), revision)],
            success: vec![RequestOp::put(self.key.clone(), all.to_text(), 0)],
            ..TxnRequest::default()
        };
        Ok(self.client.txn(txn).await?.succeeded)
    }
}

async fn log_and_wait(error: CallError) {
    tracing::warn!(%error, "cannot compare keys with those of other servers of this etcd, will retry");
    sleep(RETRY).await;
}

/// The fingerprints of the certificates in PEM.
fn fingerprints(pem: &str) -> BTreeSet<String> {
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).flatten();
    certificates.map(|certificate| hash(&certificate)).collect()
}

#[cfg(test)]
mod tests {
    use mizzen_bootstrap::pki::Authority;
    use mizzen_bootstrap::token_key::TokenKey;

    use super::*;

    /// What is wrong with the keys of a directory beside an etcd without a record; empty if nothing is.
    fn problems(directory: &Path, flags: [bool; 2], published: &TrustedAuthorities) -> String {
        let [names_authorities, names_token_keys] = flags;
        let flags = [names_authorities, false, names_token_keys];
        problems_with(directory, flags, published, &Fingerprints::default())
    }

    /// The same with this record.
    fn problems_with(
        directory: &Path,
        flags: [bool; 3],
        published: &TrustedAuthorities,
        recorded: &Fingerprints,
    ) -> String {
        let [names_authorities, names_front_proxies, names_token_keys] = flags;
        let keys = ServerKeys {
            directory,
            names_authorities,
            names_front_proxies,
            names_token_keys,
        };
        let checked = keys.check(published, recorded, "/registry/mizzen/server-keys");
        let text = checked
            .map_err(|error| error.to_string())
            .err()
            .unwrap_or_default();
        text.replace(&format!("{}/", directory.display()), "")
    }

    #[test]
    fn keys_fit_an_etcd_without_servers_or_whose_authorities_they_are() {
        let (new, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let authority = Authority::open(own.path()).unwrap();
        TokenKey::open(own.path()).unwrap();
        let empty = TrustedAuthorities::default();
        assert_eq!(problems(new.path(), [false, false], &empty), "");
        let several = TrustedAuthorities {
            clients: Authority::in_memory().unwrap().certificate + &authority.certificate,
            ..TrustedAuthorities::default()
        };
        assert_eq!(problems(own.path(), [false, false], &several), "");
        let other = TrustedAuthorities {
            clients: Authority::in_memory().unwrap().certificate,
            ..several
        };
        let foreign = problems(own.path(), [false, false], &other);
        assert!(
            foreign.contains("etcd: ca.crt is not among their authorities; copy"),
            "{foreign}"
        );
        assert_eq!(problems(own.path(), [true, false], &other), "");
    }

    #[test]
    fn keys_fit_a_record_that_has_one_of_each() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let old = Authority::open(path).unwrap().certificate;
        let front_proxies = Authority::front_proxy(Some(path)).unwrap().certificate;
        let token_key = TokenKey::open(path).unwrap();
        let of = |clients: &str, front_proxies: &str, keys: &[&TokenKey]| {
            let trusted = TrustedAuthorities {
                clients: clients.into(),
                front_proxies: front_proxies.into(),
                ..TrustedAuthorities::default()
            };
            Fingerprints::new(&trusted, keys.iter().map(|key| key.key_id().to_owned()))
        };
        let (none, nothing) = (TrustedAuthorities::default(), Fingerprints::default());
        let own = of(&old, &front_proxies, &[&token_key]);
        let problems =
            |flags: [bool; 3], recorded: &Fingerprints| problems_with(path, flags, &none, recorded);
        for recorded in [&nothing, &own] {
            assert_eq!(problems([false; 3], recorded), "");
        }
        let (new, other_key) = (
            Authority::in_memory().unwrap().certificate,
            TokenKey::in_memory().unwrap(),
        );
        let other_proxies = Authority::front_proxy(None).unwrap().certificate;
        let other = of(&new, &other_proxies, &[&other_key]);
        assert_eq!(problems([false; 3], &own.clone().with(&other)), "");
        let said = problems([false; 3], &other);
        let expected = "etcd: ca.crt is not among their authorities, and front-proxy-ca.crt is not among their \
                        authorities of front proxies, and sa.key is not among their keys; copy";
        assert!(said.contains(expected), "{said}");
        assert!(
            said.ends_with("and the key /registry/mizzen/server-keys"),
            "{said}"
        );
        let other_token_key = of(&old, &front_proxies, &[&other_key]);
        let said = problems([false; 3], &other_token_key);
        assert!(said.contains("etcd: sa.key is not among"), "{said}");
        let other_front_proxies = of(&old, &other_proxies, &[&token_key]);
        let said = problems([false; 3], &other_front_proxies);
        assert!(said.contains("etcd: front-proxy-ca.crt is not"), "{said}");
        for (flags, recorded) in [
            ([false, false, true], &other_token_key),
            ([false, true, false], &other_front_proxies),
            ([true, false, true], &other),
        ] {
            assert_eq!(problems(flags, recorded), "");
        }
        // During a rotation the file has two authorities, and servers know one of them.
        std::fs::write(path.join("ca.crt"), format!("{new}{old}")).unwrap();
        assert_eq!(problems([false; 3], &own), "");
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let trusted = TrustedAuthorities {
            clients: Authority::in_memory().unwrap().certificate,
            ..TrustedAuthorities::default()
        };
        let written = Fingerprints::new(&trusted, ["b".into(), "a".into()]);
        assert_eq!(Fingerprints::parse(written.to_text().as_bytes()), written);
        assert_eq!(Fingerprints::parse(b"damaged"), Fingerprints::default());
    }

    #[test]
    fn each_missing_key_is_named_unless_an_argument_names_it() {
        let new = tempfile::tempdir().unwrap();
        let authority = Authority::in_memory().unwrap().certificate;
        let clients = TrustedAuthorities {
            clients: authority.clone(),
            ..TrustedAuthorities::default()
        };
        // A server without client certificates publishes authorities of front proxies alone.
        let front_proxies = TrustedAuthorities {
            front_proxies: authority,
            ..TrustedAuthorities::default()
        };
        let both = "--client-ca-file and --service-account-key-file;";
        for (published, flags, missing, remedy) in [
            (
                &clients,
                [false, false],
                "ca.crt is missing, and sa.key is missing",
                both,
            ),
            (
                &clients,
                [true, false],
                "sa.key is missing",
                "--service-account-key-file;",
            ),
            (
                &clients,
                [false, true],
                "ca.crt is missing",
                "--client-ca-file;",
            ),
            (
                &front_proxies,
                [false, false],
                "sa.key is missing",
                "--service-account-key-file;",
            ),
        ] {
            let text = problems(new.path(), flags, published);
            assert!(text.contains(&format!("etcd: {missing}; copy")), "{text}");
            assert!(text.contains(&format!("files with {remedy}")), "{text}");
        }
        assert_eq!(problems(new.path(), [true, true], &clients), "");
        assert_eq!(problems(new.path(), [false, true], &front_proxies), "");
        assert_eq!(std::fs::read_dir(new.path()).unwrap().count(), 0);
    }
}
