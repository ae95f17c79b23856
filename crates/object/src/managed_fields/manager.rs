//! The default name of a manager.

/// The maximum length of a manager's name, in bytes.
const MAX_LEN: usize = 128;

/// The requested name, or else the User-Agent up to the first `/`. It may be empty; then the entry
/// says `unknown`.
pub fn manager_name(requested: &str, user_agent: &str) -> String {
    if !requested.is_empty() {
        return requested.into();
    }
    let product = user_agent.split('/').next().unwrap_or_default();
    let mut name = String::new();
    let is_printable = |char: &char| *char == ' ' || !char.is_control() && !char.is_whitespace();
    for char in product.chars().filter(is_printable) {
        if name.len() + char.len_utf8() > MAX_LEN {
            break;
        }
        name.push(char);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::manager_name;

    #[test]
    fn the_default_manager_is_the_user_agent() {
        assert_eq!(manager_name("me", "kubectl/v1.36.0 (linux/amd64)"), "me");
        assert_eq!(manager_name("", "kubectl/v1.36.0 (linux/amd64)"), "kubectl");
        assert_eq!(manager_name("", "plain tool"), "plain tool");
        assert_eq!(manager_name("", "a\tb\u{7f}c/1"), "abc");
        assert_eq!(manager_name("", ""), "");
        assert_eq!(manager_name("", &"ä".repeat(100)).len(), 128);
    }
}
