//! `anyOf`, `oneOf`, `allOf` and `not`: of alternatives that all fail, the one that came closest is told.

use super::node::Node;
use super::result::Outcome;
use super::validate::Validator;
use mizzen_value::Value;
use mizzen_value::json;

impl Validator<'_> {
    /// Kubernetes: inside `anyOf` and the like nothing is let through for being old.
    fn alternative(&mut self, node: &Node, value: &Value) -> Outcome {
        let mut outcome = Outcome::default();
        self.value(node, value, None, &mut outcome);
        outcome
    }

    fn complain(&self, words: &str, outcome: &mut Outcome) {
        let detail = format!("{} must {words}", json::quote(&self.path));
        outcome.invalid(self.nowhere(), "\"\"", &detail);
    }

    pub(super) fn any_of(&mut self, nodes: &[Node], value: &Value, outcome: &mut Outcome) {
        let mut best: Option<Outcome> = None;
        for node in nodes {
            let tried = self.alternative(node, value);
            if tried.is_valid() {
                return outcome.merge(tried);
            }
            if best
                .as_ref()
                .is_none_or(|best| tried.matches > best.matches)
            {
                best = Some(tried);
            }
        }
        self.complain("validate at least one schema (anyOf)", outcome);
        best.into_iter().for_each(|best| outcome.merge(best));
    }

    pub(super) fn one_of(&mut self, nodes: &[Node], value: &Value, outcome: &mut Outcome) {
        let (mut best, mut first): (Option<Outcome>, Option<Outcome>) = (None, None);
        let mut valid = 0;
        for node in nodes {
            let tried = self.alternative(node, value);
            if tried.is_valid() {
                valid += 1;
                best = None;
                first.get_or_insert(tried);
            } else if valid == 0
                && best
                    .as_ref()
                    .is_none_or(|best| tried.matches > best.matches)
            {
                best = Some(tried);
            }
        }
        match valid {
            1 => first.into_iter().for_each(|first| outcome.merge(first)),
            0 => self.complain(
                "validate one and only one schema (oneOf). Found none valid",
                outcome,
            ),
            _ => self.complain(
                &format!(
                    "validate one and only one schema (oneOf). Found {valid} valid alternatives"
                ),
                outcome,
            ),
        }
        best.into_iter().for_each(|best| outcome.merge(best));
    }

    pub(super) fn all_of(&mut self, nodes: &[Node], value: &Value, outcome: &mut Outcome) {
        let mut valid = 0;
        for node in nodes {
            let tried = self.alternative(node, value);
            valid += usize::from(tried.is_valid());
            outcome.merge(tried);
        }
        match valid {
            valid if valid == nodes.len() => {}
            0 => self.complain("validate all the schemas (allOf). None validated", outcome),
            _ => self.complain("validate all the schemas (allOf)", outcome),
        }
    }

    pub(super) fn not(&mut self, node: &Node, value: &Value, outcome: &mut Outcome) {
        if self.alternative(node, value).is_valid() {
            self.complain("not validate the schema (not)", outcome);
        }
    }
}
