//! Which volumes does a pod use, as far as its place depends on them?

use mizzen_value::{Str, Value};

/// A disk that a pod names itself, and that not everybody can have at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Disk {
    /// What it is of, and which.
    id: Str,
    /// Who serves it, if that tells disks apart: one in common makes it the same.
    servers: Box<[Str]>,
    /// Whether those who only read can share it, and this one does.
    only_reads: bool,
}

impl Disk {
    /// Whether two pods cannot both have it on one node.
    pub(crate) fn clashes(&self, other: &Disk) -> bool {
        let same_server =
            self.servers.is_empty() || self.servers.iter().any(|one| other.servers.contains(one));
        self.id == other.id && same_server && !(self.only_reads && other.only_reads)
    }

    fn of(volume: &Value) -> Option<Disk> {
        let disk = |kind: &str, id: &str, read_only: &Value| Disk {
            id: format!("{kind} {id}").into(),
            servers: Box::default(),
            only_reads: read_only.bool(),
        };
        if let Some(id) = volume["gcePersistentDisk"]["pdName"].as_str() {
            return Some(disk("gce", id, &volume["gcePersistentDisk"]["readOnly"]));
        }
        if let Some(id) = volume["awsElasticBlockStore"]["volumeID"].as_str() {
            return Some(disk("aws", id, &Value::Null));
        }
        if let Some(id) = volume["iscsi"]["iqn"].as_str() {
            return Some(disk("iscsi", id, &volume["iscsi"]["readOnly"]));
        }
        let rbd = &volume["rbd"];
        let image = rbd["image"].as_str()?;
        let servers = rbd["monitors"]
            .list()
            .iter()
            .map(|server| server.str().into())
            .collect();
        Some(Disk {
            servers,
            ..disk(
                "rbd",
                &format!("{} {image}", rbd["pool"].str()),
                &rbd["readOnly"],
            )
        })
    }
}

/// A claim that a pod uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClaimUse {
    /// Its name, in the pod's namespace.
    pub name: Str,
    /// Whether it is made for the pod and goes with it.
    pub ephemeral: bool,
}

/// The volumes of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Volumes {
    pub claims: Box<[ClaimUse]>,
    pub disks: Box<[Disk]>,
}

impl Volumes {
    pub(crate) fn of(pod_name: &str, volumes: &Value) -> Volumes {
        let volumes = volumes.list();
        Volumes {
            claims: volumes
                .iter()
                .filter_map(|volume| claim(pod_name, volume))
                .collect(),
            disks: volumes.iter().filter_map(Disk::of).collect(),
        }
    }
}

fn claim(pod_name: &str, volume: &Value) -> Option<ClaimUse> {
    if !volume["ephemeral"].is_null() {
        let name = format!("{pod_name}-{}", volume["name"].str()).into();
        return Some(ClaimUse {
            name,
            ephemeral: true,
        });
    }
    let name = volume["persistentVolumeClaim"]["claimName"]
        .as_str()?
        .into();
    Some(ClaimUse {
        name,
        ephemeral: false,
    })
}
