//! `anyOf`, `oneOf`, `allOf` and `not`: if all alternatives fail, the best match is reported.

use super::node::SchemaNode;
use super::result::ValidationOutcome;
use super::validate::Validator;
use mizzen_value::Value;
use mizzen_value::json;

impl Validator<'_> {
    /// Kubernetes: there is no ratcheting inside of alternatives.
    fn alternative(&mut self, node: &SchemaNode, value: &Value) -> ValidationOutcome {
        let mut outcome = ValidationOutcome::default();
        self.value(node, value, None, &mut outcome);
        outcome
    }

    fn complain(&self, words: &str, outcome: &mut ValidationOutcome) {
        let detail = format!("{} must {words}", json::quote(&self.path));
        outcome.invalid(self.nowhere(), "\"\"", &detail);
    }

    pub(super) fn any_of(
        &mut self,
        nodes: &[SchemaNode],
        value: &Value,
        outcome: &mut ValidationOutcome,
    ) {
        let mut best: Option<ValidationOutcome> = None;
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

    pub(super) fn one_of(
        &mut self,
        nodes: &[SchemaNode],
        value: &Value,
        outcome: &mut ValidationOutcome,
    ) {
        let (mut best, mut first): (Option<ValidationOutcome>, Option<ValidationOutcome>) =
            (None, None);
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

    pub(super) fn all_of(
        &mut self,
        nodes: &[SchemaNode],
        value: &Value,
        outcome: &mut ValidationOutcome,
    ) {
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

    pub(super) fn not(
        &mut self,
        node: &SchemaNode,
        value: &Value,
        outcome: &mut ValidationOutcome,
    ) {
        if self.alternative(node, value).is_valid() {
            self.complain("not validate the schema (not)", outcome);
        }
    }
}
