//! Leader election: of several candidates one works, and another takes over when it ends.

use std::io::Write;

use clients::Error;
use kube::{Client, Config};
use mizzen_sdk::election::{Election, Options};
use tokio::sync::oneshot;

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Outside of a cluster from the kubeconfig, inside from the service account of the pod.
    let config = Config::infer().await?;
    run(Client::try_from(config)?, &mut std::io::stdout()).await
}

/// Two candidates for one lease. In a cluster each would be a pod, with its name as identity.
pub(crate) async fn run(client: Client, out: &mut impl Write) -> Result<(), Error> {
    let namespace = client.default_namespace().to_owned();
    let candidate = |identity: &str| {
        let options = Options::new(identity); // client-go's durations; released at the end
        Election::new(client.clone(), &namespace, "clients", options)
    };

    let first = candidate("pod-1")?;
    let mut observer = first.observe();
    let (stop, stopped) = oneshot::channel::<()>();
    // OnStartedLeading: the work begins with the lease, and is dropped when the lease is lost.
    let work = async { drop(stopped.await) };
    let first = tokio::spawn(first.lead(work));
    while !observer.changed().await.leading {}
    writeln!(out, "pod-1 leads")?;

    let second = candidate("pod-2")?;
    let mut observer = second.observe();
    let second = tokio::spawn(second.lead(async { "worked" }));
    while observer.changed().await.leader != "pod-1" {} // OnNewLeader
    writeln!(out, "pod-2 waits for pod-1")?;

    drop(stop);
    match first.await? {
        Some(()) => writeln!(out, "pod-1 has ended and released the lease")?,
        None => writeln!(out, "pod-1 has lost the lease")?, // OnStoppedLeading
    }
    let worked = second.await?.ok_or("pod-2 has lost the lease")?;
    writeln!(out, "pod-2 has {worked}")?;
    Ok(())
}
