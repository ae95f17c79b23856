//! Which components of this process have metrics?

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::Families;

/// A component that has metrics.
pub trait Collector: Send + Sync {
    /// Adds its series to a scrape.
    fn collect(&self, families: &mut Families);
}

impl<C: Collector + ?Sized> Collector for Arc<C> {
    fn collect(&self, families: &mut Families) {
        (**self).collect(families);
    }
}

/// The components of a process whose metrics are shown together. Clones are the same registry.
///
/// A component is shown for as long as it exists: the registry does not keep it alive.
#[derive(Clone, Default)]
pub struct Registry(Arc<Mutex<Vec<Weak<dyn Collector>>>>);

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Registry({})", self.0.lock().len())
    }
}

impl Registry {
    /// Shows the metrics of a component.
    pub fn register<C: Collector + 'static>(&self, collector: &Arc<C>) {
        let weak: Weak<C> = Arc::downgrade(collector);
        let mut collectors = self.0.lock();
        collectors.retain(|known| known.strong_count() > 0);
        collectors.push(weak);
    }
}

impl Collector for Registry {
    fn collect(&self, families: &mut Families) {
        // A collector may take its time, or register another.
        let collectors: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        collectors
            .iter()
            .for_each(|collector| collector.collect(families));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(&'static str);

    impl Collector for Fixed {
        fn collect(&self, families: &mut Families) {
            families
                .gauge("up", "Components.")
                .add(&[("name", self.0)], 1);
        }
    }

    #[test]
    fn a_component_is_shown_for_as_long_as_it_exists() {
        let registry = Registry::default();
        let shown = || {
            let families = Families::of(&[&registry]);
            families.to_string().matches("\nup{").count()
        };
        let (one, other) = (Arc::new(Fixed("a")), Arc::new(Fixed("b")));
        registry.register(&one);
        registry.clone().register(&other);
        assert_eq!(shown(), 2);
        drop(other);
        assert_eq!(shown(), 1);
        drop(one);
        assert_eq!(shown(), 0);
    }
}
