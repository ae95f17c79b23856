//! Contexts of a cluster in the kubeconfig files of the user. They are recorded, so that `mizzen down` removes those that
//! were added, and no others.

use std::path::{Path, PathBuf};

use mizzen_bootstrap::pki::write_private;
use mizzen_value::{Value, json, value, yaml};

use super::directory::{CONTEXTS, ClusterDirectory};
use super::kubeconfig_file::{ChangeKubeconfigError, KubeconfigFile};

/// A context with its cluster and user.
pub(crate) struct Context {
    /// The name of the context, of its user and, without the user, of its cluster.
    pub(crate) name: String,
    /// The name of the cluster entry.
    cluster_name: String,
    cluster: Value,
    user: Value,
}

/// A context that was added to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AddedContext {
    file: PathBuf,
    name: String,
    /// The server of the context. A context of the same name with another server is not ours.
    server: String,
    /// The current context before; empty if there was none.
    previous: String,
}

/// All contexts that were added for a cluster.
#[derive(Debug, Default)]
pub(crate) struct AddedContexts(Vec<AddedContext>);

impl Context {
    /// The context of the administrator, from the cluster's own kubeconfig.
    pub(crate) fn from_kubeconfig(
        file: &Path,
        name: String,
    ) -> Result<Context, ChangeKubeconfigError> {
        let text = std::fs::read(file).map_err(|source| ChangeKubeconfigError::File {
            file: file.into(),
            source,
        })?;
        Context::parse(&text, name.clone(), name).ok_or_else(|| ChangeKubeconfigError::Invalid {
            file: file.into(),
            why: "is not the kubeconfig of a cluster".into(),
        })
    }

    /// The context in the text of a kubeconfig with one cluster and one user.
    pub(crate) fn parse(text: &[u8], name: String, cluster_name: String) -> Option<Context> {
        let value = yaml::read(text).ok()?.value;
        Some(Context {
            name,
            cluster_name,
            cluster: value["clusters"].list().first()?.get("cluster")?.clone(),
            user: value["users"].list().first()?.get("user")?.clone(),
        })
    }

    /// Adds the context to `file`, makes it the current one, and records that.
    pub(crate) async fn add(
        &self,
        file: &KubeconfigFile,
        directory: &ClusterDirectory,
    ) -> Result<(), ChangeKubeconfigError> {
        let mut previous = String::new();
        let path = file.change(|config| {
            previous = config["current-context"].str().into();
            set_entry(
                config,
                "clusters",
                &self.cluster_name,
                "cluster",
                &self.cluster,
            );
            set_entry(config, "users", &self.name, "user", &self.user);
            // A namespace that the user has set is kept.
            let mut context = find_entry(config, "contexts", &self.name)["context"].clone();
            context.make_map();
            context.set("cluster", &self.cluster_name);
            context.set("user", &self.name);
            set_entry(config, "contexts", &self.name, "context", &context);
            config.set("current-context", &self.name);
        });
        let path = path.await?;
        let mut added = directory.contexts();
        // With the context already current, the one before is known from the first time.
        if previous == self.name {
            let known = added.0.iter().find(|known| known.is_at(&path, &self.name));
            previous = known.map_or_else(String::new, |known| known.previous.clone());
        }
        added.0.retain(|known| !known.is_at(&path, &self.name));
        added.0.push(AddedContext {
            file: path,
            name: self.name.clone(),
            server: self.cluster["server"].str().into(),
            previous,
        });
        added.write(directory)
    }
}

impl AddedContexts {
    /// The contexts in a file; none if there is no such file.
    pub(super) fn read(path: &Path) -> AddedContexts {
        let value = std::fs::read(path)
            .ok()
            .and_then(|text| json::parse(&text).ok());
        let items = value.unwrap_or_default();
        let contexts = items.items().map(|item| AddedContext {
            file: item["file"].str().into(),
            name: item["name"].str().into(),
            server: item["server"].str().into(),
            previous: item["previous"].str().into(),
        });
        AddedContexts(contexts.collect())
    }

    fn write(&self, directory: &ClusterDirectory) -> Result<(), ChangeKubeconfigError> {
        let items = self.0.iter().map(|context| {
            value!({
                "file": (context.file.display().to_string()),
                "name": (&context.name),
                "server": (&context.server),
                "previous": (&context.previous),
            })
        });
        let text = json::to_string(&Value::List(items.collect())) + "\n";
        Ok(write_private(&directory.path.join(CONTEXTS), &text)?)
    }

    /// Removes the contexts from their files, and returns a line about each that was there.
    pub(crate) async fn remove(
        mut self,
        directory: &ClusterDirectory,
    ) -> Result<Vec<String>, ChangeKubeconfigError> {
        let mut removed = Vec::new();
        // The last one first, so that each restores the context that was current before it.
        for context in std::mem::take(&mut self.0).into_iter().rev() {
            let file = KubeconfigFile::at(context.file.clone());
            let is_ours = file.read()?.is_some_and(|config| context.is_in(&config));
            if is_ours {
                file.change(|config| context.remove_from(config)).await?;
                removed.push(format!(
                    "removed context {} from {}",
                    context.name,
                    context.file.display()
                ));
            }
        }
        if directory.path.join(CONTEXTS).exists() {
            self.write(directory)?;
        }
        Ok(removed)
    }
}

impl AddedContext {
    fn is_at(&self, file: &Path, name: &str) -> bool {
        self.file == file && self.name == name
    }

    /// Whether a kubeconfig has this context, with this server.
    fn is_in(&self, config: &Value) -> bool {
        let context = &find_entry(config, "contexts", &self.name)["context"];
        let cluster = &find_entry(config, "clusters", context["cluster"].str())["cluster"];
        cluster["server"].str() == self.server
    }

    /// Removes the context, and its cluster and user if no other context uses them.
    fn remove_from(&self, config: &mut Value) {
        let context = find_entry(config, "contexts", &self.name)["context"].clone();
        remove_entry(config, "contexts", &self.name);
        for (list, key) in [("clusters", "cluster"), ("users", "user")] {
            let name = context[key].str();
            let is_used = config["contexts"]
                .items()
                .any(|other| other["context"][key].str() == name);
            if !is_used {
                remove_entry(config, list, name);
            }
        }
        if config["current-context"].str() == self.name {
            let is_there = !find_entry(config, "contexts", &self.previous).is_null();
            let current = if is_there { self.previous.as_str() } else { "" };
            config.set("current-context", current);
        }
    }
}

/// The entry of a list with a name; null if there is none.
fn find_entry<'a>(config: &'a Value, list: &str, name: &str) -> &'a Value {
    let mut entries = config[list].items();
    entries
        .find(|entry| entry["name"].str() == name)
        .unwrap_or(&Value::Null)
}

/// Sets `key` of the entry with a name, which is appended if it is missing.
fn set_entry(config: &mut Value, list: &str, name: &str, key: &str, content: &Value) {
    let entries = config.entry(list).make_list();
    let known = entries.iter_mut().find(|entry| entry["name"].str() == name);
    match known {
        Some(entry) => entry.set(key, content.clone()),
        None => {
            let mut entry = Value::object();
            entry.set(key, content.clone());
            entry.set("name", name);
            entries.push(entry);
        }
    }
}

/// Removes the entry with a name.
fn remove_entry(config: &mut Value, list: &str, name: &str) {
    if let Some(entries) = config.get_mut(list) {
        entries
            .make_list()
            .retain(|entry| entry["name"].str() != name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusters::ClusterName;

    /// A kubeconfig of the user with unknown fields, and another context.
    const USERS: &str = "\
# Written by hand.
apiVersion: v1
kind: Config
preferences:
  colors: true
x-unknown:
- 1e3
clusters:
- cluster:
    server: https://prod:6443
    extensions:
    - name: minikube
      extension: {a: b}
  name: prod
contexts:
- context: {cluster: prod, user: prod, namespace: shop}
  name: prod
current-context: prod
users:
- name: prod
  user:
    exec:
      command: login
      apiVersion: client.authentication.k8s.io/v1
      env: null
";

    const OWN: &str = "\
clusters:
- name: mizzen
  cluster: {server: 'https://127.0.0.1:1', certificate-authority-data: YQ==}
users:
- name: admin
  user: {client-certificate-data: Yg==, client-key-data: Yw==}
";

    struct Fixture {
        home: tempfile::TempDir,
        directory: ClusterDirectory,
        file: KubeconfigFile,
    }

    impl Fixture {
        fn new() -> Fixture {
            let home = tempfile::tempdir().unwrap();
            let directory = ClusterDirectory {
                name: Some("dev".parse::<ClusterName>().unwrap()),
                path: home.path().join("dev"),
            };
            let file = KubeconfigFile::at(home.path().join(".kube/config"));
            Fixture {
                home,
                directory,
                file,
            }
        }

        fn path(&self) -> PathBuf {
            self.home.path().join(".kube/config")
        }

        fn config(&self) -> Value {
            yaml::read(&std::fs::read(self.path()).unwrap())
                .unwrap()
                .value
        }

        async fn add(&self) {
            let context = Context::parse(OWN.as_bytes(), "mizzen-dev".into(), "mizzen-dev".into());
            context
                .unwrap()
                .add(&self.file, &self.directory)
                .await
                .unwrap();
        }

        async fn remove(&self) -> Vec<String> {
            let added = self.directory.contexts();
            added.remove(&self.directory).await.unwrap()
        }
    }

    #[tokio::test]
    async fn everything_else_in_the_file_is_kept() {
        let fixture = Fixture::new();
        std::fs::create_dir(fixture.home.path().join(".kube")).unwrap();
        std::fs::write(fixture.path(), USERS).unwrap();
        let before = fixture.config();
        fixture.add().await;
        let once = std::fs::read_to_string(fixture.path()).unwrap();
        fixture.add().await;
        assert_eq!(std::fs::read_to_string(fixture.path()).unwrap(), once);
        let config = fixture.config();
        assert_eq!(config["current-context"].str(), "mizzen-dev");
        let keys = |value: &Value| {
            value
                .entries()
                .map(|(key, _)| key.to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(keys(&config), keys(&before));
        for list in ["clusters", "contexts", "users"] {
            let names: Vec<&str> = config[list]
                .items()
                .map(|item| item["name"].str())
                .collect();
            assert_eq!(names, ["prod", "mizzen-dev"]);
            assert_eq!(config[list][0], before[list][0]);
        }
        assert_eq!(config["x-unknown"], before["x-unknown"]);

        fixture.remove().await;
        assert_eq!(std::fs::read_to_string(fixture.path()).unwrap(), USERS);
        assert!(fixture.remove().await.is_empty());
    }

    #[tokio::test]
    async fn a_new_file_is_private_and_is_left_empty() {
        use std::os::unix::fs::PermissionsExt as _;
        let fixture = Fixture::new();
        fixture.add().await;
        let mode = std::fs::metadata(fixture.path())
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let config = fixture.config();
        assert_eq!(config["kind"].str(), "Config");
        assert_eq!(config["contexts"][0]["context"]["user"].str(), "mizzen-dev");
        fixture.remove().await;
        assert!(fixture.config()["contexts"].list().is_empty());
        assert_eq!(fixture.config()["current-context"].str(), "");
    }

    #[tokio::test]
    async fn the_namespace_of_the_context_and_another_current_context_are_kept() {
        let fixture = Fixture::new();
        fixture.add().await;
        let change = |config: &mut Value| {
            config.entry("contexts").make_list()[0]
                .entry("context")
                .set("namespace", "shop");
            config.set("current-context", "chosen");
        };
        fixture.file.change(change).await.unwrap();
        fixture.add().await;
        let context = &fixture.config()["contexts"][0]["context"];
        assert_eq!(context["namespace"].str(), "shop");
        fixture
            .file
            .change(|config| config.set("current-context", "chosen"))
            .await
            .unwrap();
        fixture.remove().await;
        assert_eq!(fixture.config()["current-context"].str(), "chosen");
    }

    #[tokio::test]
    async fn a_context_of_the_same_name_with_another_server_is_kept() {
        let fixture = Fixture::new();
        fixture.add().await;
        let change = |config: &mut Value| {
            config.entry("clusters").make_list()[0]
                .entry("cluster")
                .set("server", "https://other:1");
        };
        fixture.file.change(change).await.unwrap();
        assert!(fixture.remove().await.is_empty());
        assert_eq!(fixture.config()["contexts"].list().len(), 1);
    }
}
