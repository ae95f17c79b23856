//! What a manager is called who does not say.

/// The longest name of a manager, in bytes.
const MAX_LEN: usize = 128;

/// The name that a request asks for, or else what stands before the first `/` of its User-Agent. It may be
/// empty; then the entry says `unknown`.
pub fn manager_name(asked: &str, user_agent: &str) -> String {
    if !asked.is_empty() {
        return asked.into();
    }
    let product = user_agent.split('/').next().unwrap_or_default();
    let mut name = String::new();
    for char in product.chars().filter(|char| is_printable(*char)) {
        if name.len() + char.len_utf8() > MAX_LEN {
            break;
        }
        name.push(char);
    }
    name
}

fn is_printable(char: char) -> bool {
    char == ' ' || !char.is_control() && !char.is_whitespace()
}

#[cfg(test)]
mod tests {
    use super::manager_name;

    #[test]
    fn a_manager_is_called_as_he_asks_or_as_his_program() {
        assert_eq!(manager_name("me", "kubectl/v1.36.0 (linux/amd64)"), "me");
        assert_eq!(manager_name("", "kubectl/v1.36.0 (linux/amd64)"), "kubectl");
        assert_eq!(manager_name("", "plain tool"), "plain tool");
        assert_eq!(manager_name("", "a\tb\u{7f}c/1"), "abc");
        assert_eq!(manager_name("", ""), "");
        assert_eq!(manager_name("", &"ä".repeat(100)).len(), 128);
    }
}
