//! Looking at an object that may have to go: as it is now, with its owners as they are now.

use mizzen_sdk::Object;
use mizzen_value::Value;

use super::Collector;
use super::decide::{self, Case, Verdict, decide};
use super::graph::Item;
use super::live::Trouble;
use super::name::{Identity, Uid};
use super::seen::{FOREGROUND, ORPHAN, Owner, has_finalizer};

/// What is left to be done for an object that was looked at.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing until something happens.
    Nothing,
    /// Another look later: it is not known yet what becomes of it.
    Again,
}

impl Collector {
    /// Looks whether an object must go, and sees to it.
    pub(super) async fn attempt(&self, uid: &Uid) -> Result<Next, Trouble> {
        let Some(item) = self.graph().item(uid) else {
            return Ok(Next::Nothing);
        };
        // What goes does not come back; when it is gone, its dependents are looked at.
        if item.end.is_going && !item.end.is_foreground {
            return Ok(Next::Nothing);
        }
        let Some(latest) = self.live.find(&item.identity).await? else {
            self.note_absent(&item.identity);
            return Ok(Next::Nothing);
        };
        if item.end.is_foreground {
            self.go_on(&item).await?;
        } else if !self.judge(&item, &latest).await? {
            self.note_absent(&item.identity);
            return Ok(Next::Nothing);
        }
        // An owner that exists but was never seen may come and go unseen, and would stay in the graph forever.
        Ok(if item.is_virtual {
            Next::Again
        } else {
            Next::Nothing
        })
    }

    /// Goes on with an object that waits for its dependents to go before it.
    async fn go_on(&self, item: &Item) -> Result<(), Trouble> {
        let blocking = self.graph().blocking(&item.identity.uid);
        if blocking.is_empty() {
            return self.live.remove_finalizer(&item.identity, FOREGROUND).await;
        }
        for dependent in blocking
            .into_iter()
            .filter(|dependent| !dependent.end.is_foreground)
        {
            self.to_delete.add(dependent.identity.uid);
        }
        Ok(())
    }

    /// Does with an object what its owners want; false if it is gone already.
    async fn judge(&self, item: &Item, latest: &Object) -> Result<bool, Trouble> {
        let Item { identity, .. } = item;
        match decide(&self.case(identity, latest).await?) {
            Verdict::Keep => Ok(true),
            Verdict::Strip(owners) => self.live.strip(identity, &owners).await.map(|()| true),
            Verdict::Delete(propagation) => self.live.delete(identity, latest, propagation).await,
            Verdict::DeleteForeground => {
                let dependents = self.graph().dependents(&identity.uid);
                if dependents
                    .iter()
                    .any(|dependent| dependent.end.is_foreground)
                {
                    // It may be a circle, in which everybody waits for somebody else.
                    let owners = self.graph().blocked_owners(&identity.uid);
                    self.live.unblock(identity, &owners).await?;
                    return self.delete_anew(identity).await;
                }
                self.live.delete(identity, latest, "Foreground").await
            }
        }
    }

    /// Deletes an object that was just changed.
    async fn delete_anew(&self, identity: &Identity) -> Result<bool, Trouble> {
        let Some(latest) = self.live.find(identity).await? else {
            return Ok(false);
        };
        self.live.delete(identity, &latest, "Foreground").await
    }

    async fn case(&self, identity: &Identity, latest: &Object) -> Result<Case, Trouble> {
        let metadata = &latest["metadata"];
        let references = self.graph().owners(latest);
        let mut owners = Vec::new();
        for reference in &references {
            owners.push((
                reference.uid.clone(),
                self.owner(identity, reference).await?,
            ));
        }
        Ok(Case {
            owners,
            has_dependents: !self.graph().dependents(&identity.uid).is_empty(),
            is_foreground: has_finalizer(metadata, FOREGROUND),
            is_orphaning: has_finalizer(metadata, ORPHAN),
        })
    }

    /// What has become of an owner.
    async fn owner(
        &self,
        dependent: &Identity,
        reference: &Owner,
    ) -> Result<decide::Owner, Trouble> {
        let beside = reference.identity(dependent.namespace.clone());
        let above = Identity {
            namespace: "".into(),
            ..beside.clone()
        };
        if self.is_absent(&above) || self.is_absent(&beside) {
            return Ok(decide::Owner::Absent);
        }
        let is_namespaced = self.live.is_namespaced(&beside)?;
        match self.live.find(&beside).await? {
            None => {
                self.graph()
                    .note_absent(if is_namespaced { beside } else { above });
                Ok(decide::Owner::Absent)
            }
            Some(owner) if waits(&owner["metadata"]) => Ok(decide::Owner::Waiting),
            Some(_) => Ok(decide::Owner::Solid),
        }
    }

    fn is_absent(&self, identity: &Identity) -> bool {
        self.graph().is_absent(identity)
    }

    fn note_absent(&self, identity: &Identity) {
        let effects = self.graph().absent(identity);
        self.follow_up(effects);
    }
}

fn waits(metadata: &Value) -> bool {
    !metadata["deletionTimestamp"].is_null() && has_finalizer(metadata, FOREGROUND)
}
