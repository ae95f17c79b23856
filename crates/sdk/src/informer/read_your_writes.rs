//! Waits until the cache has a write, so that a controller does not repeat it.
//!
//! The server has acknowledged the write, so its event will arrive.

use std::time::Duration;

use tokio::time::timeout;

use super::shared::Informer;
use crate::cache::{Entry, Version};
use crate::object::Object;

impl Informer<Object> {
    /// Waits until the cache has an object as it was written.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// # let config = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default"}}"#)?;
    /// use mizzen_sdk::Object;
    /// use mizzen_sdk::dynamic::DynamicClient;
    /// use mizzen_sdk::informer::Informer;
    /// use mizzen_sdk::resource::CONFIG_MAPS;
    /// use mizzen_sdk::watch::ListWatch;
    ///
    /// let configs: Informer<Object> = Informer::new(ListWatch::at(client.clone(), CONFIG_MAPS.path("")));
    /// configs.start();
    /// let api = DynamicClient::new(client);
    /// let config = api.create(&CONFIG_MAPS, &config).await?;
    /// configs.wait_for_write(&config).await;
    /// assert!(configs.store().get(&config.key()).is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn wait_for_write(&self, object: &Object) {
        let version = Version::parse(object.version());
        self.wait_for(&object.key(), version).await;
    }

    /// The same for at most `limit`; whether the cache has it.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// # let config = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default"}}"#)?;
    /// use mizzen_sdk::Object;
    /// use mizzen_sdk::dynamic::DynamicClient;
    /// use mizzen_sdk::informer::Informer;
    /// use mizzen_sdk::resource::CONFIG_MAPS;
    /// use mizzen_sdk::watch::ListWatch;
    ///
    /// let configs: Informer<Object> = Informer::new(ListWatch::at(client.clone(), CONFIG_MAPS.path("")));
    /// configs.start();
    /// let api = DynamicClient::new(client);
    /// let config = api.create(&CONFIG_MAPS, &config).await?;
    /// assert!(configs.has_write_within(std::time::Duration::from_secs(5), &config).await);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn has_write_within(&self, limit: Duration, object: &Object) -> bool {
        timeout(limit, self.wait_for_write(object)).await.is_ok()
    }

    /// Waits until the cache has the object's deletionTimestamp, or not the object.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// # let config = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default"}}"#)?;
    /// use mizzen_sdk::Object;
    /// use mizzen_sdk::dynamic::DynamicClient;
    /// use mizzen_sdk::informer::Informer;
    /// use mizzen_sdk::resource::CONFIG_MAPS;
    /// use mizzen_sdk::watch::ListWatch;
    ///
    /// let configs: Informer<Object> = Informer::new(ListWatch::at(client.clone(), CONFIG_MAPS.path("")));
    /// configs.start();
    /// let api = DynamicClient::new(client);
    /// let config = api.create(&CONFIG_MAPS, &config).await?;
    /// use mizzen_sdk::dynamic::DeleteOptions;
    ///
    /// api.delete(&CONFIG_MAPS, &config.key(), &DeleteOptions::default()).await?;
    /// configs.wait_for_deletion(&config).await;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn wait_for_deletion(&self, object: &Object) {
        let is_deleted = |known: Option<Entry<Object>>| {
            let known = known.filter(|known| known.uid() == object.uid());
            known.is_none_or(|known| known.object().is_ok_and(|known| known.is_terminating()))
        };
        self.wait_until(&object.key(), is_deleted).await;
    }
}
