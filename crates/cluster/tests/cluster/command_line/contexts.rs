//! Contexts in the kubeconfig of the user: `--set-context`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use super::{Outcome, User, is_installed};

const OTHER: &str = "\
apiVersion: v1
kind: Config
# Mine.
preferences: {}
clusters:
- cluster:
    server: https://prod.example:6443
  name: prod
contexts:
- context:
    cluster: prod
    user: prod
  name: prod
current-context: prod
users:
- name: prod
  user:
    token: secret
";

/// Writes `~/.kube/config`.
fn write_config(user: &User, text: &str) -> PathBuf {
    let file = user.path().join(".kube/config");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    std::fs::write(&file, text).unwrap();
    file
}

#[tokio::test]
async fn a_context_is_set_and_removed_again() {
    let user = User::new();
    let file = write_config(&user, OTHER);
    let said = user.succeed("up --detach --name dev --set-context").await;
    let expected = format!(
        "; context mizzen-dev is set in {}; try: kubectl create",
        file.display()
    );
    assert!(said.contains(&expected), "{said}");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    if is_installed("kubectl") {
        let mut kubectl = user.program("kubectl");
        kubectl.args(["get", "nodes", "-o", "name"]);
        assert_eq!(Outcome::of(kubectl).await.expect(0).stdout, "node/node-0\n");
        let mut kubectl = user.program("kubectl");
        kubectl.args(["config", "get-contexts", "-o", "name"]);
        assert_eq!(
            Outcome::of(kubectl).await.expect(0).stdout,
            "mizzen-dev\nprod\n"
        );
    }
    let said = user
        .succeed("kubeconfig --name dev --user jane --set-context")
        .await;
    assert!(
        said.starts_with("context jane@mizzen-dev is set in "),
        "{said}"
    );
    let said = user.succeed("down --name dev").await;
    for context in ["mizzen-dev", "jane@mizzen-dev"] {
        assert!(
            said.contains(&format!("removed context {context} from ")),
            "{said}"
        );
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), OTHER);
}

#[tokio::test]
async fn no_kubeconfig_of_the_user_is_touched_without_being_asked() {
    let user = User::new();
    user.succeed("up --detach --name dev").await;
    user.succeed("kubeconfig --name dev").await;
    user.succeed("down --name dev --purge").await;
    assert!(!user.path().join(".kube").exists());
}

#[tokio::test]
async fn the_first_file_of_kubeconfig_is_changed() {
    let user = User::new();
    user.succeed("up --detach --name dev").await;
    let files = std::env::join_paths([user.path().join("a"), user.path().join("b")]).unwrap();
    let mut command = user.command("kubeconfig --name dev --set-context");
    command.env("KUBECONFIG", files);
    Outcome::of(command).await.expect(0);
    let text = std::fs::read_to_string(user.path().join("a")).unwrap();
    assert!(text.contains("current-context: mizzen-dev\n"), "{text}");
    assert!(!user.path().join("b").exists() && !user.path().join(".kube").exists());
    // Without the flag it is printed.
    let printed = user.succeed("kubeconfig --name dev").await;
    let own = std::fs::read_to_string(user.root().join("dev/admin.kubeconfig")).unwrap();
    assert_eq!(printed, own);
    let printed = user
        .succeed("kubeconfig --name dev --server https://h:1")
        .await;
    assert!(printed.contains("    server: https://h:1\n"), "{printed}");
}

#[tokio::test]
async fn a_kubeconfig_that_cannot_be_changed_is_an_error_before_the_start() {
    let user = User::new();
    let file = write_config(&user, "kind: Pod\n");
    let failed = user
        .mizzen("up --detach --name dev --set-context")
        .await
        .expect(1);
    failed.with_error(&["its kind is not Config; the file was not changed"]);
    assert!(!user.root().exists());
    assert_eq!(std::fs::read_to_string(file).unwrap(), "kind: Pod\n");
    let failed = user
        .mizzen("kubeconfig --name dev --set-context")
        .await
        .expect(1);
    failed.with_error(&["dev/admin.kubeconfig", "start the cluster first"]);
}
