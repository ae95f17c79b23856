//! The composer: tokens become a tree of nodes.

use std::collections::HashMap;

use super::cursor::TextPosition;
use super::scan::{PlacedToken, YamlScanner, YamlToken};
use super::{MAX_DEPTH, Result, YamlError};

pub(super) struct NodeTree {
    nodes: Vec<YamlNode>,
    /// The index of the root.
    pub(super) root: usize,
}

impl NodeTree {
    pub(super) fn node(&self, index: usize) -> &YamlNode {
        &self.nodes[index]
    }
}

/// A node and the line where it starts, counted from 1.
pub(super) struct YamlNode {
    pub(super) line: usize,
    pub(super) content: NodeContent,
}

pub(super) enum NodeContent {
    Scalar(Scalar),
    List(Vec<usize>),
    /// Pairs of key and value.
    Map(Vec<(usize, usize)>),
    /// The anchor's name, and the node that it refers to.
    Alias(String, usize),
}

#[derive(Default)]
pub(super) struct Scalar {
    pub(super) text: String,
    pub(super) tag: Option<String>,
    /// Whether the type is resolved from the text.
    pub(super) is_plain: bool,
}

/// Composes the first document, if there is one.
pub(super) fn compose(text: &[u8]) -> Result<Option<NodeTree>> {
    let mut composer = Composer {
        scanner: YamlScanner::new(text)?,
        nodes: Vec::new(),
        anchors: HashMap::new(),
        tags: Vec::new(),
        depth: 0,
    };
    let Some(root) = composer.document()? else {
        return Ok(None);
    };
    Ok(Some(NodeTree {
        nodes: composer.nodes,
        root,
    }))
}

struct Composer {
    scanner: YamlScanner,
    nodes: Vec<YamlNode>,
    anchors: HashMap<String, usize>,
    /// Tag handles and their prefixes.
    tags: Vec<(String, String)>,
    depth: usize,
}

/// The anchor and the tag of a node.
struct Properties {
    start: TextPosition,
    anchor: Option<String>,
    tag: Option<String>,
}

impl Composer {
    fn document(&mut self) -> Result<Option<usize>> {
        let is_explicit = match self.peek()? {
            YamlToken::StreamEnd => return Ok(None),
            YamlToken::Version(..) | YamlToken::TagDirective(..) | YamlToken::DocumentStart => true,
            _ => false,
        };
        self.directives()?;
        if is_explicit {
            self.expect_document_start()?;
        }
        let root = match self.peek()? {
            YamlToken::Version(..)
            | YamlToken::TagDirective(..)
            | YamlToken::DocumentStart
            | YamlToken::DocumentEnd
            | YamlToken::StreamEnd
                if is_explicit =>
            {
                self.empty_here()?
            }
            _ => self.node(true, false)?,
        };
        // The token after the document shows whether it ends properly.
        self.peek()?;
        Ok(Some(root))
    }

    fn directives(&mut self) -> Result<()> {
        let mut has_version = false;
        while let YamlToken::Version(..) | YamlToken::TagDirective(..) = self.peek()? {
            let directive = self.scanner.take()?;
            match directive.token {
                YamlToken::Version(..) if has_version => {
                    return Err(refuse(
                        "found duplicate %YAML directive",
                        directive.start,
                        None,
                    ));
                }
                YamlToken::Version(1, 1) => has_version = true,
                YamlToken::TagDirective(handle, prefix) if self.tag_prefix(&handle).is_none() => {
                    self.tags.push((handle, prefix));
                }
                YamlToken::TagDirective(..) => {
                    return Err(refuse(
                        "found duplicate %TAG directive",
                        directive.start,
                        None,
                    ));
                }
                _ => {
                    return Err(refuse(
                        "found incompatible YAML document",
                        directive.start,
                        None,
                    ));
                }
            }
        }
        self.tags.push(("!".into(), "!".into()));
        self.tags.push(("!!".into(), "tag:yaml.org,2002:".into()));
        Ok(())
    }

    fn tag_prefix(&self, handle: &str) -> Option<&str> {
        let known = self.tags.iter().find(|(known, _)| known == handle);
        known.map(|(_, prefix)| prefix.as_str())
    }

    fn expect_document_start(&mut self) -> Result<()> {
        let placed = self.scanner.take()?;
        match placed.token {
            YamlToken::DocumentStart => Ok(()),
            _ => Err(refuse(
                "did not find expected <document start>",
                placed.start,
                None,
            )),
        }
    }

    /// Composes a block or flow node. The value of a key may be an indentless list.
    fn node(&mut self, in_block: bool, may_be_indentless: bool) -> Result<usize> {
        if let YamlToken::Alias(_) = self.peek()? {
            return self.alias();
        }
        let properties = self.properties()?;
        match self.peek()? {
            YamlToken::BlockEntry if may_be_indentless => {
                self.collection(properties, Composer::indentless_list)
            }
            YamlToken::Scalar(..) => self.scalar(properties),
            YamlToken::FlowListStart => self.collection(properties, Composer::flow_list),
            YamlToken::FlowMapStart => self.collection(properties, Composer::flow_map),
            YamlToken::BlockListStart if in_block => {
                self.collection(properties, Composer::block_list)
            }
            YamlToken::BlockMapStart if in_block => {
                self.collection(properties, Composer::block_map)
            }
            _ if properties.anchor.is_some() || properties.tag.is_some() => {
                let is_plain = properties.tag.is_none();
                Ok(self.add_scalar(properties, String::new(), is_plain))
            }
            _ => {
                let found = self.scanner.peek()?.start;
                Err(refuse(
                    "did not find expected node content",
                    found,
                    Some(properties.start),
                ))
            }
        }
    }

    fn alias(&mut self) -> Result<usize> {
        let placed = self.scanner.take()?;
        let YamlToken::Alias(name) = placed.token else {
            unreachable!("the caller saw an alias")
        };
        match self.anchors.get(&name) {
            Some(target) => {
                let content = NodeContent::Alias(name, *target);
                Ok(self.add(placed.start, None, content))
            }
            None => Err(YamlError::Anchor(name).into()),
        }
    }

    /// Composes an anchor and a tag, in either order, if present.
    fn properties(&mut self) -> Result<Properties> {
        let start = self.scanner.peek()?.start;
        let (mut anchor, mut tag) = (None, None);
        for _ in 0..2 {
            match self.peek()? {
                YamlToken::Anchor(_) if anchor.is_none() => anchor = Some(self.scanner.take()?),
                YamlToken::Tag(..) if tag.is_none() => tag = Some(self.scanner.take()?),
                _ => break,
            }
        }
        let anchor = anchor.and_then(|placed| match placed.token {
            YamlToken::Anchor(name) => Some(name),
            _ => None,
        });
        let tag = tag.map(|placed| self.full_tag(placed, start)).transpose()?;
        Ok(Properties { start, anchor, tag })
    }

    fn full_tag(&self, placed: PlacedToken, start: TextPosition) -> Result<String> {
        let YamlToken::Tag(handle, suffix) = placed.token else {
            return Ok(String::new());
        };
        if handle.is_empty() {
            return Ok(suffix);
        }
        match self.tag_prefix(&handle) {
            Some(prefix) => Ok(format!("{prefix}{suffix}")),
            None => Err(refuse(
                "found undefined tag handle",
                placed.start,
                Some(start),
            )),
        }
    }

    fn scalar(&mut self, properties: Properties) -> Result<usize> {
        let YamlToken::Scalar(text, is_plain) = self.scanner.take()?.token else {
            unreachable!("the caller saw a scalar")
        };
        // `!` alone is the non-specific tag, which makes even a quoted scalar a plain one.
        let is_plain = match properties.tag.as_deref() {
            None => is_plain,
            Some(tag) => tag == "!",
        };
        Ok(self.add_scalar(properties, text, is_plain))
    }

    fn add_scalar(&mut self, properties: Properties, text: String, is_plain: bool) -> usize {
        let scalar = Scalar {
            text,
            tag: properties.tag,
            is_plain,
        };
        self.add(
            properties.start,
            properties.anchor,
            NodeContent::Scalar(scalar),
        )
    }

    fn add(&mut self, start: TextPosition, anchor: Option<String>, content: NodeContent) -> usize {
        let index = self.nodes.len();
        self.nodes.push(YamlNode {
            line: start.line + 1,
            content,
        });
        if let Some(anchor) = anchor {
            self.anchors.insert(anchor, index);
        }
        index
    }

    fn empty(&mut self, mark: TextPosition) -> usize {
        self.add(
            mark,
            None,
            NodeContent::Scalar(Scalar {
                is_plain: true,
                ..Scalar::default()
            }),
        )
    }

    fn empty_here(&mut self) -> Result<usize> {
        let mark = self.scanner.peek()?.start;
        Ok(self.empty(mark))
    }

    /// Composes a list or map. It gets its index, and its anchor, before its items.
    fn collection(
        &mut self,
        properties: Properties,
        read: fn(&mut Composer) -> Result<NodeContent>,
    ) -> Result<usize> {
        let index = self.add(
            properties.start,
            properties.anchor,
            NodeContent::List(Vec::new()),
        );
        self.nodes[index].content = self.nested(read)?;
        Ok(index)
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Composer) -> Result<T>) -> Result<T> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(YamlError::Depth(MAX_DEPTH).into());
        }
        let content = read(self)?;
        self.depth -= 1;
        Ok(content)
    }

    fn block_list(&mut self) -> Result<NodeContent> {
        let start = self.scanner.take()?.start;
        let mut items = Vec::new();
        loop {
            let placed = self.scanner.take()?;
            match placed.token {
                YamlToken::BlockEntry => {}
                YamlToken::BlockEnd => return Ok(NodeContent::List(items)),
                _ => {
                    return Err(refuse(
                        "did not find expected '-' indicator",
                        placed.start,
                        Some(start),
                    ));
                }
            }
            items.push(match self.peek()? {
                YamlToken::BlockEntry | YamlToken::BlockEnd => self.empty(placed.end),
                _ => self.node(true, false)?,
            });
        }
    }

    fn indentless_list(&mut self) -> Result<NodeContent> {
        let mut items = Vec::new();
        while let YamlToken::BlockEntry = self.peek()? {
            let end = self.scanner.take()?.end;
            items.push(match self.peek()? {
                YamlToken::BlockEntry | YamlToken::Key | YamlToken::Value | YamlToken::BlockEnd => {
                    self.empty(end)
                }
                _ => self.node(true, false)?,
            });
        }
        Ok(NodeContent::List(items))
    }

    fn block_map(&mut self) -> Result<NodeContent> {
        let start = self.scanner.take()?.start;
        let mut pairs = Vec::new();
        loop {
            // A value may have no key.
            let key = match self.peek()? {
                YamlToken::Key => {
                    let end = self.scanner.take()?.end;
                    self.block_part(end)?
                }
                YamlToken::BlockEnd => {
                    self.scanner.take()?;
                    return Ok(NodeContent::Map(pairs));
                }
                _ => {
                    let found = self.scanner.peek()?.start;
                    return Err(refuse("did not find expected key", found, Some(start)));
                }
            };
            let value = match self.peek()? {
                YamlToken::Value => {
                    let end = self.scanner.take()?.end;
                    self.block_part(end)?
                }
                _ => self.empty_here()?,
            };
            pairs.push((key, value));
        }
    }

    fn block_part(&mut self, end: TextPosition) -> Result<usize> {
        match self.peek()? {
            YamlToken::Key | YamlToken::Value | YamlToken::BlockEnd => Ok(self.empty(end)),
            _ => self.node(true, true),
        }
    }

    fn flow_list(&mut self) -> Result<NodeContent> {
        let start = self.scanner.take()?.start;
        let mut items = Vec::new();
        loop {
            if *self.peek()? != YamlToken::FlowListEnd && !items.is_empty() {
                self.expect_entry("did not find expected ',' or ']'", start)?;
            }
            match self.peek()? {
                YamlToken::FlowListEnd => break,
                YamlToken::Key => items.push(self.single_pair()?),
                _ => items.push(self.node(false, false)?),
            }
        }
        self.scanner.take()?;
        Ok(NodeContent::List(items))
    }

    fn expect_entry(&mut self, problem: &'static str, start: TextPosition) -> Result<()> {
        match self.scanner.take()? {
            PlacedToken {
                token: YamlToken::FlowEntry,
                ..
            } => Ok(()),
            placed => Err(refuse(problem, placed.start, Some(start))),
        }
    }

    /// A map of one member as an item of a flow list: `[a: b]`.
    fn single_pair(&mut self) -> Result<usize> {
        let start = self.scanner.take()?.start;
        let index = self.add(start, None, NodeContent::Map(Vec::new()));
        let pair = self.nested(|composer| {
            let key = match composer.peek()? {
                YamlToken::Value | YamlToken::FlowEntry | YamlToken::FlowListEnd => {
                    // Kubernetes: what follows instead of a key is skipped (parserc.go).
                    let end = composer.scanner.take()?.end;
                    composer.empty(end)
                }
                _ => composer.node(false, false)?,
            };
            Ok((key, composer.flow_value(YamlToken::FlowListEnd)?))
        })?;
        self.nodes[index].content = NodeContent::Map(vec![pair]);
        Ok(index)
    }

    fn flow_value(&mut self, end: YamlToken) -> Result<usize> {
        if *self.peek()? == YamlToken::Value {
            self.scanner.take()?;
            let next = self.peek()?;
            if *next != YamlToken::FlowEntry && *next != end {
                return self.node(false, false);
            }
        }
        self.empty_here()
    }

    fn flow_map(&mut self) -> Result<NodeContent> {
        let start = self.scanner.take()?.start;
        let mut pairs = Vec::new();
        loop {
            if *self.peek()? != YamlToken::FlowMapEnd && !pairs.is_empty() {
                self.expect_entry("did not find expected ',' or '}'", start)?;
            }
            match self.peek()? {
                YamlToken::FlowMapEnd => break,
                YamlToken::Key => pairs.push(self.flow_pair()?),
                _ => {
                    let key = self.node(false, false)?;
                    pairs.push((key, self.empty_here()?));
                }
            }
        }
        self.scanner.take()?;
        Ok(NodeContent::Map(pairs))
    }

    fn flow_pair(&mut self) -> Result<(usize, usize)> {
        self.scanner.take()?;
        let key = match self.peek()? {
            YamlToken::Value | YamlToken::FlowEntry | YamlToken::FlowMapEnd => self.empty_here()?,
            _ => self.node(false, false)?,
        };
        Ok((key, self.flow_value(YamlToken::FlowMapEnd)?))
    }

    fn peek(&mut self) -> Result<&YamlToken> {
        self.scanner.peek().map(|placed| &placed.token)
    }
}

/// Kubernetes: go-yaml reports one line too low, and none for the first line (decode.go,
/// parser.fail).
fn refuse(
    problem: &'static str,
    found: TextPosition,
    context: Option<TextPosition>,
) -> Box<YamlError> {
    let line = match found.line {
        0 => context.unwrap_or_default().line,
        line => line,
    };
    Box::new(YamlError::Syntax { line, problem })
}
