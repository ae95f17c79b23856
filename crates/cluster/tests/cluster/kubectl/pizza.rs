//! `examples/pizza` with the real kubectl: as an aggregated API server, and as a CRD with a conversion webhook.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mizzen_apiserver::ClientIdentity;
use mizzen_apiserver::clock::{SystemRandom, WallClock};
use mizzen_apiserver::delegate::{Serving, Upstream};
use mizzen_registry::{Registry, Store};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdout};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{Kubectl, skip, text};
use crate::process::STEP_TIMEOUT;

const GROUP: &str = pizza::GROUP;

/// The pizza server, or its webhook.
struct Restaurant {
    port: u16,
    identity: ClientIdentity,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Restaurant {
    /// Runs the aggregated API server.
    async fn open(kubectl: &Kubectl) -> Restaurant {
        let store = Store::in_memory(Default::default());
        let registry = Registry::new(store, Arc::new(WallClock), Arc::new(SystemRandom));
        let upstream = Upstream::load(&kubectl.home.kubeconfig(), &registry).unwrap();
        let server = pizza::server(registry).upstream(&upstream);
        Restaurant::start(|listener, identity, stopped| async move {
            let serving = Serving { listener, identity };
            server.run(serving, stopped).await.unwrap();
        })
        .await
    }

    /// Runs the conversion webhook.
    async fn convert() -> Restaurant {
        Restaurant::start(|listener, identity, stopped| async move {
            let served = pizza::webhook::serve(listener, identity, stopped);
            served.await.unwrap();
        })
        .await
    }

    async fn start<Serving: Future<Output = ()> + Send + 'static>(
        serve: impl FnOnce(TcpListener, ClientIdentity, Stopped) -> Serving,
    ) -> Restaurant {
        let identity = pizza::certificate().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (stop, stopped) = oneshot::channel();
        let stopped: Stopped = Box::pin(async { drop(stopped.await) });
        let task = tokio::spawn(serve(listener, identity.clone(), stopped));
        Restaurant {
            port,
            identity,
            stop: Some(stop),
            task,
        }
    }

    /// Stops serving.
    async fn close(mut self) {
        drop(self.stop.take());
        timeout(STEP_TIMEOUT, self.task)
            .await
            .expect("ends in time")
            .unwrap();
    }

    /// Port and certificate.
    fn endpoint(&self) -> (u16, &str) {
        (self.port, &self.identity.certificate)
    }

    /// The certificate as a file for kubectl.
    fn certificate(&self, directory: &Path) -> PathBuf {
        let file = directory.join("pizza.crt");
        std::fs::write(&file, &self.identity.certificate).unwrap();
        file
    }
}

type Stopped = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

impl Kubectl {
    /// Applies a manifest of the example that names port and certificate of a restaurant.
    async fn apply_manifest(
        &self,
        file: &str,
        (port, certificate): (u16, &str),
        change: impl Fn(String) -> String,
    ) {
        let text = std::fs::read_to_string(manifest(file)).unwrap();
        let text = text.replace("PORT", &port.to_string());
        let bundle = STANDARD.encode(certificate);
        let path = self.home.path().join(file);
        std::fs::write(&path, change(text.replace("CA_BUNDLE", &bundle))).unwrap();
        self.run(&format!("apply -f {}", path.display())).await;
    }

    /// Creates a restaurant and waits until it exists.
    async fn register(&self, (port, certificate): (u16, &str)) {
        self.apply_manifest("apiservice.yaml", (port, certificate), |text| text)
            .await;
        let versions = [
            ("v1alpha1", GROUP),
            ("v1beta1", GROUP),
            ("v1", pizza::KITCHEN),
        ];
        for (version, group) in versions {
            self.run(&format!(
                "wait --for=condition=Available --timeout=60s apiservice/{version}.{group}"
            ))
            .await;
        }
        self.run(&format!("create -f {}", manifest("toppings.yaml")))
            .await;
    }

    /// A token of a service account in `default`.
    async fn token(&self, account: &str) -> String {
        let path = format!("/api/v1/namespaces/default/serviceaccounts/{account}/token");
        let admin = self.process.admin().await;
        let token = admin.call("POST", &path, "{}").await.expect(201).json();
        token["status"]["token"].as_str().unwrap().to_owned()
    }

    /// The value at a path of an object.
    async fn says(&self, what: &str, path: &str) -> String {
        self.run(&format!("get {what} -o jsonpath={path}")).await
    }

    /// An object as JSON.
    async fn json(&self, what: &str) -> serde_json::Value {
        serde_json::from_str(&self.run(&format!("get {what} -o json")).await).unwrap()
    }

    /// A watch of kubectl.
    fn watch(&self, what: &str) -> Watch {
        let mut command = self.command(&format!(
            "get {what} --watch --output-watch-events --no-headers"
        ));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Watch {
            lines,
            _child: child,
        }
    }
}

struct Watch {
    lines: Lines<BufReader<ChildStdout>>,
    /// Keeps the process alive.
    _child: Child,
}

impl Watch {
    /// The next line, its words one space apart.
    async fn next(&mut self) -> String {
        let line = timeout(STEP_TIMEOUT, self.lines.next_line())
            .await
            .expect("an event in time")
            .unwrap();
        let line = line.expect("kubectl still watches");
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

fn manifest(file: &str) -> String {
    let root: PathBuf = [
        env!("CARGO_MANIFEST_DIR"),
        "..",
        "..",
        "examples",
        "pizza",
        "manifests",
    ]
    .iter()
    .collect();
    root.join(file).display().to_string()
}

#[tokio::test]
async fn an_aggregated_server_serves_both_versions() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    let restaurant = Restaurant::open(&kubectl).await;
    kubectl.register(restaurant.endpoint()).await;
    let (alpha, beta) = (
        format!("pizzas.v1alpha1.{GROUP}"),
        format!("pizzas.v1beta1.{GROUP}"),
    );

    kubectl
        .run(&format!(
            "create -f {} -f {}",
            manifest("margherita.yaml"),
            manifest("quattro.yaml")
        ))
        .await;
    let toppings = "{.spec.toppings}";
    let named = kubectl.says(&format!("{alpha} margherita"), toppings).await;
    assert_eq!(named, r#"["tomato","mozzarella","mozzarella"]"#);
    let counted = kubectl.says(&format!("{beta} margherita"), toppings).await;
    assert_eq!(
        counted,
        r#"[{"name":"tomato","quantity":1},{"name":"mozzarella","quantity":2}]"#
    );
    let named = kubectl.says(&format!("{alpha} quattro"), toppings).await;
    assert_eq!(named, r#"["tomato","salami","salami","salami"]"#);
    kubectl
        .shows("get pizzas", &["TOPPINGS", "tomato×1, salami×3"])
        .await;
    kubectl
        .shows(&format!("get {alpha}"), &["tomato, salami, salami, salami"])
        .await;

    kubectl
        .shows("api-resources", &["pizzas", "toppings", "menus"])
        .await;
    let explain = format!("explain pizzas.spec.toppings --api-version={GROUP}/v1beta1");
    kubectl
        .shows(&explain, &["quantity", "<integer>", "name", "-required-"])
        .await;
    kubectl
        .shows("get menus", &["today", "mozzarella, salami, tomato"])
        .await;
    let receipt =
        format!("get --raw /apis/{GROUP}/v1beta1/namespaces/default/pizzas/quattro/receipt");
    kubectl
        .shows(&receipt, &[r#""kind":"Receipt""#, r#""total":6.5"#])
        .await;

    kubectl.shows("delete pizza margherita", &["deleted"]).await;
    let gone = kubectl.refused("get pizza margherita").await;
    assert!(gone.contains("not found"), "{gone}");
    restaurant.close().await;
}

#[tokio::test]
async fn an_aggregated_server_defaults_validates_and_warns() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    let restaurant = Restaurant::open(&kubectl).await;
    kubectl.register(restaurant.endpoint()).await;
    let mut watch = kubectl.watch("pizzas");

    let usual = format!(
        r#"{{"apiVersion":"{GROUP}/v1beta1","kind":"Pizza","metadata":{{"name":"usual"}}}}"#
    );
    let unknown = usual.replace("usual", "hawaii").replace(
        r#""kind""#,
        r#""spec":{"toppings":[{"name":"pineapple"}]},"kind""#,
    );
    let much = usual.replace(
        r#""kind""#,
        r#""spec":{"toppings":[{"name":"salami","quantity":101}]},"kind""#,
    );
    let file = |name: &str, text: &str| {
        let path = kubectl.home.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    kubectl
        .run(&format!("create -f {}", file("usual", &usual)))
        .await;
    let created = watch.next().await;
    assert_eq!(created, "ADDED usual tomato×1, mozzarella×1, salami×1");

    let refused = kubectl
        .refused(&format!("create -f {}", file("unknown", &unknown)))
        .await;
    assert!(
        refused.contains("is forbidden: unknown topping: pineapple"),
        "{refused}"
    );
    let refused = kubectl
        .refused(&format!("create -f {}", file("much", &much)))
        .await;
    assert!(
        refused.contains("spec.toppings[0].quantity: Invalid value: 101"),
        "{refused}"
    );
    let refused = kubectl.refused("delete menu today").await;
    assert!(
        refused.contains("the server does not allow this method"),
        "{refused}"
    );

    // As of a pod: a kind with graceful deletion gets its deletionTimestamp first, even if its grace period is 0.
    kubectl.run("delete pizza usual").await;
    for change in ["MODIFIED", "DELETED"] {
        let expected = format!("{change} usual tomato×1, mozzarella×1, salami×1");
        assert_eq!(watch.next().await, expected);
    }
    restaurant.close().await;
}

#[tokio::test]
async fn an_aggregated_server_delegates_authorization() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    let restaurant = Restaurant::open(&kubectl).await;
    kubectl.register(restaurant.endpoint()).await;
    for name in ["waiter", "guest"] {
        kubectl.run(&format!("create serviceaccount {name}")).await;
    }
    kubectl
        .run("create clusterrole serving --verb=get,list --resource=pizzas,toppings")
        .await;
    kubectl.run(&format!(
        "patch clusterrole serving --type=json -p [{{\"op\":\"replace\",\"path\":\"/rules/0/apiGroups\",\"value\":[\"{GROUP}\"]}}]"
    )).await;
    kubectl
        .run("create clusterrolebinding serving --clusterrole=serving --serviceaccount=default:waiter")
        .await;

    // Directly, not through the main server.
    let certificate = restaurant.certificate(kubectl.home.path());
    let directly = async |name: &str| {
        let token = kubectl.token(name).await;
        format!(
            "--kubeconfig /dev/null --server https://localhost:{} --token {token} --certificate-authority {} get --raw \
             /apis/{GROUP}/v1alpha1/toppings",
            restaurant.port,
            certificate.display()
        )
    };
    kubectl
        .shows(&directly("waiter").await, &["mozzarella"])
        .await;
    let refused = kubectl.refused(&directly("guest").await).await;
    assert!(
        refused.contains("User \"system:serviceaccount:default:guest\" cannot list resource"),
        "{refused}"
    );
    let nobody = directly("guest").await.replace("--token ey", "--token no");
    let refused = kubectl.refused(&nobody).await;
    assert!(
        refused.contains("Unauthorized") || refused.contains("must be logged in"),
        "{refused}"
    );
    restaurant.close().await;
}

#[tokio::test]
async fn an_aggregated_server_honours_namespaces_and_grace_periods_and_shares_toppings() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    let restaurant = Restaurant::open(&kubectl).await;
    kubectl.register(restaurant.endpoint()).await;
    let margherita = manifest("margherita.yaml");
    let refused = kubectl
        .refused(&format!("create -n nowhere -f {margherita}"))
        .await;
    assert!(
        refused.contains("namespaces \"nowhere\" not found"),
        "{refused}"
    );

    let kitchen = format!("toppings.{}", pizza::KITCHEN);
    let cents = "{.spec.cents}";
    assert_eq!(
        kubectl.says(&format!("{kitchen} mozzarella"), cents).await,
        "125"
    );
    let patch = r#"{"spec":{"cents":150}}"#;
    kubectl
        .run(&format!(
            "patch {kitchen} mozzarella --type=merge -p {patch}"
        ))
        .await;
    let topping = format!("toppings.{GROUP} mozzarella");
    assert_eq!(kubectl.says(&topping, "{.spec.cost}").await, "1.5");

    kubectl.run(&format!("create -f {margherita}")).await;
    kubectl
        .run("delete pizza margherita --grace-period=600 --wait=false")
        .await;
    let period = "{.metadata.deletionGracePeriodSeconds}";
    assert_eq!(kubectl.says("pizza margherita", period).await, "600");
    kubectl
        .run("delete pizza margherita --grace-period=0 --force")
        .await;
    restaurant.close().await;
}

/// The program, as a service account of the cluster.
struct Program {
    process: Child,
    address: String,
    identity: String,
}

impl Program {
    /// Starts the program with the kubeconfig of a service account. None, with a message, if it is not built.
    async fn start(kubectl: &Kubectl, account: &str) -> Option<Program> {
        let program = Path::new(env!("CARGO_BIN_EXE_mizzen")).with_file_name("pizza");
        if !program.exists() {
            skip("pizza is not built; use --workspace");
            return None;
        }
        let (kubeconfig, certificate) = (
            kubectl.home.path().join("pizza.kubeconfig"),
            kubectl.home.path().join("pizza.pem"),
        );
        let token = kubectl.token(account).await;
        std::fs::copy(kubectl.home.kubeconfig(), &kubeconfig).unwrap();
        for change in [
            format!("set-credentials {account} --token {token}"),
            format!("set-context --current --user {account}"),
        ] {
            // The last `--kubeconfig` wins.
            let file = kubeconfig.display();
            kubectl
                .run(&format!("config --kubeconfig {file} {change}"))
                .await;
        }
        let mut command = tokio::process::Command::new(program);
        command
            .args(["serve", "--port", "0", "--kubeconfig"])
            .arg(&kubeconfig)
            .arg("--certificate")
            .arg(&certificate)
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = timeout(STEP_TIMEOUT, lines.next_line()).await;
        let line = line.expect("it listens in time").unwrap().unwrap();
        let address = line.strip_prefix("pizza listens on ").unwrap().to_owned();
        let identity = std::fs::read_to_string(&certificate).unwrap();
        Some(Program {
            process,
            address,
            identity,
        })
    }
}

#[tokio::test]
async fn the_roles_of_the_example_suffice_and_sigterm_stops_it() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    let access = manifest("access.yaml");
    kubectl.run(&format!("apply -f {access}")).await;
    // The service account has these roles and no others.
    let may = |resource: &str| {
        format!("auth can-i watch {resource} --as system:serviceaccount:default:pizza")
    };
    kubectl.refused(&may("secrets")).await;
    // Webhooks that name a Service need these; writes do not wait for them.
    for resource in ["services", "endpointslices.discovery.k8s.io", "nodes"] {
        kubectl.run(&may(resource)).await;
    }
    let Some(mut program) = Program::start(&kubectl, "pizza").await else {
        return;
    };
    let port = program.address.rsplit(':').next().unwrap().parse().unwrap();
    kubectl.register((port, &program.identity)).await;

    // Toppings were created, so namespaces, policies and webhooks of the main server are known.
    let margherita = manifest("margherita.yaml");
    let policy = r#"{"apiVersion":"v1","kind":"List","items":[
        {"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"frugal"},
         "spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["restaurant.programming-kubernetes.info"],
         "apiVersions":["v1alpha1"],"resources":["pizzas"],"operations":["CREATE"]}]},
         "validations":[{"expression":"object.spec.toppings.size() < 3","message":"too many toppings"}]}},
        {"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"frugal"},
         "spec":{"policyName":"frugal","validationActions":["Deny"]}}]}"#;
    let file = kubectl.home.path().join("policy.json");
    std::fs::write(&file, policy).unwrap();
    kubectl
        .run(&format!("create --validate=false -f {}", file.display()))
        .await;
    let refused = async {
        loop {
            let output = kubectl.command(&format!("create -f {margherita}"));
            let output = kubectl.output(output).await;
            if !output.status.success() {
                return text(&output.stderr);
            }
            kubectl.run("delete pizza margherita --now").await;
        }
    };
    let refused = timeout(STEP_TIMEOUT, refused).await.expect("it arrives");
    assert!(refused.contains("too many toppings"), "{refused}");

    // A user without permissions, who connects directly: TokenReview and SubjectAccessReview work.
    kubectl.run("create serviceaccount guest").await;
    let token = kubectl.token("guest").await;
    let directly = format!(
        "--kubeconfig /dev/null --server https://localhost:{port} --token {token} --certificate-authority {} get --raw \
         /apis/{GROUP}/v1alpha1/toppings",
        kubectl.home.path().join("pizza.pem").display()
    );
    let refused = kubectl.refused(&directly).await;
    assert!(
        refused.contains("User \"system:serviceaccount:default:guest\" cannot list resource"),
        "{refused}"
    );

    let id = program.process.id().expect("it runs");
    let id = Pid::from_raw(i32::try_from(id).unwrap());
    kill(id, Signal::SIGTERM).unwrap();
    let ended = timeout(STEP_TIMEOUT, program.process.wait()).await;
    let ended = ended.expect("it ends in time").unwrap();
    assert_eq!(ended.code(), Some(0));
}

#[tokio::test]
async fn an_unavailable_aggregated_server_is_503() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    let restaurant = Restaurant::open(&kubectl).await;
    kubectl.register(restaurant.endpoint()).await;
    restaurant.close().await;
    let refused = kubectl
        .refused(&format!("get --raw /apis/{GROUP}/v1alpha1/toppings"))
        .await;
    assert!(refused.contains("ServiceUnavailable"), "{refused}");
    // Other requests are not affected.
    kubectl.shows("get namespaces", &["default"]).await;
}

#[tokio::test]
async fn a_crd_with_a_conversion_webhook_serves_both_versions() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    let webhook = Restaurant::convert().await;
    kubectl
        .apply_manifest("definition.yaml", webhook.endpoint(), |text| text)
        .await;
    let (alpha, beta) = (
        format!("pizzas.v1alpha1.{GROUP}"),
        format!("pizzas.v1beta1.{GROUP}"),
    );
    let mut watches = [kubectl.watch(&alpha), kubectl.watch(&beta)];

    kubectl
        .run(&format!(
            "create -f {} -f {}",
            manifest("margherita.yaml"),
            manifest("quattro.yaml")
        ))
        .await;
    for watch in &mut watches {
        let mut seen = [watch.next().await, watch.next().await];
        seen.sort();
        assert!(
            seen[0].starts_with("ADDED margherita") && seen[1].starts_with("ADDED quattro"),
            "{seen:?}"
        );
    }
    let lists = "{.items[*].spec.toppings}";
    let counted = r#"[{"name":"tomato","quantity":1},{"name":"mozzarella","quantity":2}]"#;
    let all = kubectl.says(&alpha, lists).await;
    assert_eq!(
        all,
        r#"["tomato","mozzarella","mozzarella"] ["tomato","salami","salami","salami"]"#
    );
    let all = kubectl.says(&beta, lists).await;
    assert!(all.starts_with(counted), "{all}");

    // Pizzas are stored in the other version now; existing ones when they are written again.
    let other_way = |text: String| {
        text.replace("storage: true", "storage: TRUE")
            .replace("storage: false", "storage: true")
            .replace("TRUE", "false")
    };
    kubectl
        .apply_manifest("definition.yaml", webhook.endpoint(), other_way)
        .await;
    for name in ["margherita", "quattro"] {
        kubectl
            .run(&format!("annotate {beta} {name} moved=yes"))
            .await;
    }
    let definition = format!("customresourcedefinition pizzas.{GROUP}");
    assert_eq!(
        kubectl.says(&definition, "{.status.storedVersions}").await,
        r#"["v1alpha1","v1beta1"]"#
    );
    let mut written = kubectl.json(&definition).await;
    written["status"]["storedVersions"] = serde_json::json!(["v1beta1"]);
    let file = kubectl.home.path().join("written.json");
    std::fs::write(&file, written.to_string()).unwrap();
    let path =
        format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/pizzas.{GROUP}/status");
    kubectl
        .run(&format!("replace --raw {path} -f {}", file.display()))
        .await;

    // Without the webhook only the stored version can be read.
    webhook.close().await;
    let all = kubectl.says(&beta, lists).await;
    assert!(all.starts_with(counted), "{all}");
    let refused = kubectl.refused(&format!("get {alpha}")).await;
    assert!(refused.contains("conversion webhook for"), "{refused}");
}
