//! What keeps pods off a node, and which pods do not mind?

use mizzen_object::{Str, Value};

/// What a taint does to pods that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Effect {
    /// They are not placed there.
    NoSchedule,
    /// They are rather placed elsewhere.
    PreferNoSchedule,
    /// They are not placed there, and those that are there leave.
    NoExecute,
}

impl Effect {
    fn of(text: &str) -> Option<Effect> {
        match text {
            "NoSchedule" => Some(Effect::NoSchedule),
            "PreferNoSchedule" => Some(Effect::PreferNoSchedule),
            "NoExecute" => Some(Effect::NoExecute),
            _ => None,
        }
    }

    /// Whether it keeps pods from being placed.
    pub(crate) fn forbids(self) -> bool {
        self != Effect::PreferNoSchedule
    }
}

/// What keeps pods off a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Taint {
    pub key: Str,
    pub value: Str,
    pub effect: Effect,
}

impl Taint {
    pub(crate) fn list(taints: &Value) -> Box<[Taint]> {
        let taint = |taint: &Value| {
            let effect = Effect::of(taint["effect"].str())?;
            Some(Taint {
                key: taint["key"].str().into(),
                value: taint["value"].str().into(),
                effect,
            })
        };
        taints.list().iter().filter_map(taint).collect()
    }
}

/// Which taints a pod does not mind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Toleration {
    key: Str,
    /// None for whatever value.
    value: Option<Str>,
    /// None for whatever effect.
    pub effect: Option<Effect>,
}

impl Toleration {
    pub(crate) fn list(tolerations: &Value) -> Box<[Toleration]> {
        let toleration = |toleration: &Value| Toleration {
            key: toleration["key"].str().into(),
            value: (toleration["operator"].str() != "Exists")
                .then(|| toleration["value"].str().into()),
            effect: Effect::of(toleration["effect"].str()),
        };
        tolerations.list().iter().map(toleration).collect()
    }

    /// Without a key every taint is tolerated, by whatever its key.
    fn tolerates(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|effect| effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && self
                .value
                .as_ref()
                .is_none_or(|value| *value == taint.value)
    }
}

/// Whether one of these tolerates a taint.
pub(crate) fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations
        .iter()
        .any(|toleration| toleration.tolerates(taint))
}

/// The first taint that keeps a pod with these tolerations away.
pub(crate) fn first_untolerated<'a>(
    taints: &'a [Taint],
    tolerations: &[Toleration],
) -> Option<&'a Taint> {
    taints
        .iter()
        .find(|taint| taint.effect.forbids() && !tolerates(tolerations, taint))
}
