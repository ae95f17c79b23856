//! A plugin and its extension points, with their types erased.

use std::pin::Pin;
use std::sync::Arc;

use super::{
    BoxError, CycleState, Filter, Permit, Pod, PostFilter, PreBind, PreFilter, Reserve, Score,
};
use crate::configuration::ExtensionPoint;

/// A plugin, made by [`Plugin::new`].
///
/// ```
/// use mizzen_scheduler::framework::{CycleState, Node, Plugin, Pod, Score};
///
/// /// Prefers nodes with few pods.
/// struct Spread;
///
/// impl Score for Spread {
///     fn score(&self, _: &CycleState, _: Pod, node: Node) -> i64 {
///         100 - node.requested("pods").min(100)
///     }
/// }
///
/// let plugin: Plugin = Plugin::new(Spread).score().build();
/// # drop(plugin);
/// ```
#[derive(Clone, Default)]
pub struct Plugin {
    pub(crate) pre_filter: Option<Arc<dyn PreFilter>>,
    pub(crate) filter: Option<Arc<dyn Filter>>,
    pub(crate) post_filter: Option<Arc<dyn PostFilter>>,
    pub(crate) score: Option<Arc<dyn Score>>,
    pub(crate) reserve: Option<Arc<dyn Reserve>>,
    pub(crate) permit: Option<Arc<dyn Permit>>,
    pub(crate) pre_bind: Option<Arc<dyn ErasedPreBind>>,
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// [`PreBind`] with a boxed future.
pub(crate) trait ErasedPreBind: Send + Sync {
    fn pre_bind<'a>(
        &'a self,
        state: &'a CycleState,
        pod: Pod<'a>,
        node: &'a str,
    ) -> BoxFuture<'a, Result<(), BoxError>>;
}

impl<P: PreBind> ErasedPreBind for P {
    fn pre_bind<'a>(
        &'a self,
        state: &'a CycleState,
        pod: Pod<'a>,
        node: &'a str,
    ) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(PreBind::pre_bind(self, state, pod, node))
    }
}

/// Says which extension points a plugin implements.
///
/// ```
/// use mizzen_scheduler::framework::{
///     CycleState, Plugin, PluginBuilder, Pod, PreFilter, PreFilterResult, Nodes, Rejection, Reserve,
/// };
///
/// #[derive(Default)]
/// struct Licences;
///
/// impl PreFilter for Licences {
///     fn pre_filter(&self, _: &mut CycleState, _: Pod, _: Nodes) -> Result<PreFilterResult, Rejection> {
///         Ok(PreFilterResult::AllNodes)
///     }
/// }
///
/// impl Reserve for Licences {
///     fn reserve(&self, _: &CycleState, _: Pod, _node: &str) -> Result<(), Rejection> {
///         Ok(())
///     }
///
///     fn unreserve(&self, _: &CycleState, _: Pod, _node: &str) {}
/// }
///
/// let builder: PluginBuilder<Licences> = Plugin::new(Licences);
/// let plugin = builder.pre_filter().reserve().build(); // and not filter(): it does not implement Filter
/// # drop(plugin);
/// ```
pub struct PluginBuilder<P> {
    inner: Arc<P>,
    plugin: Plugin,
}

impl Plugin {
    /// A plugin of this type. The methods of the builder name its extension points.
    #[expect(clippy::new_ret_no_self, reason = "the builder's build returns it")]
    pub fn new<P>(plugin: P) -> PluginBuilder<P> {
        PluginBuilder {
            inner: Arc::new(plugin),
            plugin: Plugin::default(),
        }
    }

    /// Whether the plugin implements an extension point.
    pub(crate) fn implements(&self, point: ExtensionPoint) -> bool {
        match point {
            ExtensionPoint::PreFilter => self.pre_filter.is_some(),
            ExtensionPoint::Filter => self.filter.is_some(),
            ExtensionPoint::PostFilter => self.post_filter.is_some(),
            ExtensionPoint::Score => self.score.is_some(),
            ExtensionPoint::Reserve => self.reserve.is_some(),
            ExtensionPoint::Permit => self.permit.is_some(),
            ExtensionPoint::PreBind => self.pre_bind.is_some(),
            _ => false,
        }
    }
}

impl<P> PluginBuilder<P> {
    /// It implements [`PreFilter`].
    pub fn pre_filter(mut self) -> Self
    where
        P: PreFilter,
    {
        self.plugin.pre_filter = Some(self.inner.clone());
        self
    }

    /// It implements [`Filter`].
    pub fn filter(mut self) -> Self
    where
        P: Filter,
    {
        self.plugin.filter = Some(self.inner.clone());
        self
    }

    /// It implements [`PostFilter`].
    pub fn post_filter(mut self) -> Self
    where
        P: PostFilter,
    {
        self.plugin.post_filter = Some(self.inner.clone());
        self
    }

    /// It implements [`Score`].
    pub fn score(mut self) -> Self
    where
        P: Score,
    {
        self.plugin.score = Some(self.inner.clone());
        self
    }

    /// It implements [`Reserve`].
    pub fn reserve(mut self) -> Self
    where
        P: Reserve,
    {
        self.plugin.reserve = Some(self.inner.clone());
        self
    }

    /// It implements [`Permit`].
    pub fn permit(mut self) -> Self
    where
        P: Permit,
    {
        self.plugin.permit = Some(self.inner.clone());
        self
    }

    /// It implements [`PreBind`].
    pub fn pre_bind(mut self) -> Self
    where
        P: PreBind,
    {
        self.plugin.pre_bind = Some(self.inner.clone());
        self
    }

    /// The plugin.
    pub fn build(self) -> Plugin {
        self.plugin
    }
}
