//! Copies of objects that another server stores. They are stored as they are, uid included, except for the resourceVersion,
//! which is this store's.

use std::collections::HashSet;
use std::sync::Arc;

use mizzen_object::{Status, schema};
use mizzen_store::{Draft, Expect, Write, WriteError};
use mizzen_value::Value;

use crate::encode::draft;
use crate::resource::set_type_meta;
use crate::status::write_status;
use crate::{Key, Registry, Resource};

impl Registry {
    /// Stores a copy of an object in place of the earlier copy.
    pub async fn put_copy(&self, resource: &Resource, mut object: Value) -> Result<(), Status> {
        let kind = resource.kind();
        set_type_meta(kind, &mut object);
        schema::canonical(&kind.root, &mut object);
        let metadata = &object["metadata"];
        let key = Key::new(metadata["namespace"].str(), metadata["name"].str());
        let draft = draft(kind, &mut object, self.now());
        let write = Write::put(resource.space(), key.stored(), Expect::Any, draft);
        let stored = self.store.commit_one(write).await;
        stored
            .map(drop)
            .map_err(|error| write_status(kind, &key.name, error))
    }

    /// The key and the record of a copy of an object, in the storage version, for a store that does not have it yet. A
    /// conversion webhook may be called.
    pub async fn draft_copy(
        &self,
        resource: &Resource,
        mut object: Value,
    ) -> Result<(Arc<str>, Draft), Status> {
        let kind = resource.kind();
        set_type_meta(kind, &mut object);
        schema::canonical(&kind.root, &mut object);
        let metadata = &object["metadata"];
        let key = Key::new(metadata["namespace"].str(), metadata["name"].str());
        resource.to_hub(&mut object);
        resource.to_stored(&mut object).await?;
        Ok((
            key.stored(),
            draft(resource.stored(), &mut object, self.now()),
        ))
    }

    /// Stores a copy of an object, if `expect` holds for the earlier one.
    pub async fn import_copy(
        &self,
        resource: &Resource,
        object: Value,
        expect: Expect,
    ) -> Result<(), Status> {
        let (key, draft) = self.draft_copy(resource, object).await?;
        let write = Write::put(resource.space(), key.clone(), expect, draft);
        let stored = self.store.commit_one(write).await;
        stored
            .map(drop)
            .map_err(|error| write_status(resource.kind(), &Key::of(&key).name, error))
    }

    /// Removes a copy, if it is there.
    pub async fn remove_copy(&self, resource: &Resource, key: &Key) -> Result<(), Status> {
        let Some(record) = resource.record(key) else {
            return Ok(());
        };
        let last = Draft {
            value: record.value.clone(),
            ..Draft::default()
        };
        let write = Write::delete(resource.space(), key.stored(), Expect::Any, last);
        match self.store.commit_one(write).await {
            Ok(_) | Err(WriteError::Missing { .. }) => Ok(()),
            Err(error) => Err(write_status(resource.kind(), &key.name, error)),
        }
    }

    /// Replaces all copies.
    pub async fn replace_copies(
        &self,
        resource: &Resource,
        objects: Vec<Value>,
    ) -> Result<(), Status> {
        let snapshot = resource.space().snapshot();
        let known = snapshot.range("", None).map(|record| Key::of(&record.key));
        let mut surplus: HashSet<Key> = known.collect();
        for object in objects {
            let metadata = &object["metadata"];
            let key = Key::new(metadata["namespace"].str(), metadata["name"].str());
            surplus.remove(&key);
            self.put_copy(resource, object).await?;
        }
        for key in surplus {
            self.remove_copy(resource, &key).await?;
        }
        Ok(())
    }
}
