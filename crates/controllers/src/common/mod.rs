//! What do several loops do alike?

pub(crate) mod batch;
pub(crate) mod claim;
pub(crate) mod failure;
pub(crate) mod fresh;
pub(crate) mod hash;
pub(crate) mod owned;
pub(crate) mod percent;
pub(crate) mod pod;
pub(crate) mod pods;
pub(crate) mod rank;
pub(crate) mod seen;
pub(crate) mod template;
pub(crate) mod wake;
