//! From tokens to nodes: what stands where, before anybody asks what it means.

use std::collections::HashMap;

use super::cursor::Mark;
use super::scan::{Placed, Scanner, Token};
use super::{MAX_DEPTH, Result, YamlError};

/// A document's nodes.
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// Where its root is.
    pub(super) root: usize,
}

impl Tree {
    pub(super) fn node(&self, index: usize) -> &Node {
        &self.nodes[index]
    }
}

/// A node, and the line in which it begins, counted from 1.
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) content: Content,
}

pub(super) enum Content {
    Scalar(Scalar),
    List(Vec<usize>),
    /// Keys and values.
    Map(Vec<(usize, usize)>),
    /// The anchor's name, and the node it stands for.
    Alias(String, usize),
}

#[derive(Default)]
pub(super) struct Scalar {
    pub(super) text: String,
    pub(super) tag: Option<String>,
    /// Whether what it means is to be seen from its text.
    pub(super) is_plain: bool,
}

/// Reads the nodes of the first document, if there is one.
pub(super) fn compose(text: &[u8]) -> Result<Option<Tree>> {
    let mut composer = Composer {
        scanner: Scanner::new(text)?,
        nodes: Vec::new(),
        anchors: HashMap::new(),
        tags: Vec::new(),
        depth: 0,
    };
    let Some(root) = composer.document()? else {
        return Ok(None);
    };
    Ok(Some(Tree {
        nodes: composer.nodes,
        root,
    }))
}

struct Composer {
    scanner: Scanner,
    nodes: Vec<Node>,
    anchors: HashMap<String, usize>,
    /// What handles of tags stand for.
    tags: Vec<(String, String)>,
    depth: usize,
}

/// What may stand before a node.
struct Properties {
    start: Mark,
    anchor: Option<String>,
    tag: Option<String>,
}

impl Composer {
    fn document(&mut self) -> Result<Option<usize>> {
        let is_explicit = match self.peek()? {
            Token::StreamEnd => return Ok(None),
            Token::Version(..) | Token::TagDirective(..) | Token::DocumentStart => true,
            _ => false,
        };
        self.directives()?;
        if is_explicit {
            self.expect_document_start()?;
        }
        let root = match self.peek()? {
            Token::Version(..)
            | Token::TagDirective(..)
            | Token::DocumentStart
            | Token::DocumentEnd
            | Token::StreamEnd
                if is_explicit =>
            {
                self.empty_here()?
            }
            _ => self.node(true, false)?,
        };
        // Whether the document ends properly shows in the token after it.
        self.peek()?;
        Ok(Some(root))
    }

    fn directives(&mut self) -> Result<()> {
        let mut has_version = false;
        while let Token::Version(..) | Token::TagDirective(..) = self.peek()? {
            let directive = self.scanner.take()?;
            match directive.token {
                Token::Version(..) if has_version => {
                    return Err(refuse(
                        "found duplicate %YAML directive",
                        directive.start,
                        None,
                    ));
                }
                Token::Version(1, 1) => has_version = true,
                Token::TagDirective(handle, prefix) if self.tag_prefix(&handle).is_none() => {
                    self.tags.push((handle, prefix));
                }
                Token::TagDirective(..) => {
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
            Token::DocumentStart => Ok(()),
            _ => Err(refuse(
                "did not find expected <document start>",
                placed.start,
                None,
            )),
        }
    }

    /// A node, in a block or in a flow. The value of a key may be a list that is not indented.
    fn node(&mut self, in_block: bool, may_be_indentless: bool) -> Result<usize> {
        if let Token::Alias(_) = self.peek()? {
            return self.alias();
        }
        let properties = self.properties()?;
        match self.peek()? {
            Token::BlockEntry if may_be_indentless => {
                self.collection(properties, Composer::indentless_list)
            }
            Token::Scalar(..) => self.scalar(properties),
            Token::FlowListStart => self.collection(properties, Composer::flow_list),
            Token::FlowMapStart => self.collection(properties, Composer::flow_map),
            Token::BlockListStart if in_block => self.collection(properties, Composer::block_list),
            Token::BlockMapStart if in_block => self.collection(properties, Composer::block_map),
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
        let Token::Alias(name) = placed.token else {
            unreachable!("the caller saw an alias")
        };
        match self.anchors.get(&name) {
            Some(target) => {
                let content = Content::Alias(name, *target);
                Ok(self.add(placed.start, None, content))
            }
            None => Err(YamlError::Anchor(name).into()),
        }
    }

    /// An anchor and a tag, in either order, if they are there.
    fn properties(&mut self) -> Result<Properties> {
        let start = self.scanner.peek()?.start;
        let (mut anchor, mut tag) = (None, None);
        for _ in 0..2 {
            match self.peek()? {
                Token::Anchor(_) if anchor.is_none() => anchor = Some(self.scanner.take()?),
                Token::Tag(..) if tag.is_none() => tag = Some(self.scanner.take()?),
                _ => break,
            }
        }
        let anchor = anchor.and_then(|placed| match placed.token {
            Token::Anchor(name) => Some(name),
            _ => None,
        });
        let tag = tag.map(|placed| self.full_tag(placed, start)).transpose()?;
        Ok(Properties { start, anchor, tag })
    }

    fn full_tag(&self, placed: Placed, start: Mark) -> Result<String> {
        let Token::Tag(handle, suffix) = placed.token else {
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
        let Token::Scalar(text, is_plain) = self.scanner.take()?.token else {
            unreachable!("the caller saw a scalar")
        };
        // A lone mark is a tag that says nothing, which makes even a quoted text a plain one.
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
        self.add(properties.start, properties.anchor, Content::Scalar(scalar))
    }

    fn add(&mut self, start: Mark, anchor: Option<String>, content: Content) -> usize {
        let index = self.nodes.len();
        self.nodes.push(Node {
            line: start.line + 1,
            content,
        });
        if let Some(anchor) = anchor {
            self.anchors.insert(anchor, index);
        }
        index
    }

    /// Nothing, where something could be.
    fn empty(&mut self, mark: Mark) -> usize {
        self.add(
            mark,
            None,
            Content::Scalar(Scalar {
                is_plain: true,
                ..Scalar::default()
            }),
        )
    }

    fn empty_here(&mut self) -> Result<usize> {
        let mark = self.scanner.peek()?.start;
        Ok(self.empty(mark))
    }

    /// A list or map: it has its place, and its name if it has one, before what is in it.
    fn collection(
        &mut self,
        properties: Properties,
        read: fn(&mut Composer) -> Result<Content>,
    ) -> Result<usize> {
        let index = self.add(
            properties.start,
            properties.anchor,
            Content::List(Vec::new()),
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

    fn block_list(&mut self) -> Result<Content> {
        let start = self.scanner.take()?.start;
        let mut items = Vec::new();
        loop {
            let placed = self.scanner.take()?;
            match placed.token {
                Token::BlockEntry => {}
                Token::BlockEnd => return Ok(Content::List(items)),
                _ => {
                    return Err(refuse(
                        "did not find expected '-' indicator",
                        placed.start,
                        Some(start),
                    ));
                }
            }
            items.push(match self.peek()? {
                Token::BlockEntry | Token::BlockEnd => self.empty(placed.end),
                _ => self.node(true, false)?,
            });
        }
    }

    fn indentless_list(&mut self) -> Result<Content> {
        let mut items = Vec::new();
        while let Token::BlockEntry = self.peek()? {
            let end = self.scanner.take()?.end;
            items.push(match self.peek()? {
                Token::BlockEntry | Token::Key | Token::Value | Token::BlockEnd => self.empty(end),
                _ => self.node(true, false)?,
            });
        }
        Ok(Content::List(items))
    }

    fn block_map(&mut self) -> Result<Content> {
        let start = self.scanner.take()?.start;
        let mut pairs = Vec::new();
        loop {
            // A value may stand without its key.
            let key = match self.peek()? {
                Token::Key => {
                    let end = self.scanner.take()?.end;
                    self.block_part(end)?
                }
                Token::BlockEnd => {
                    self.scanner.take()?;
                    return Ok(Content::Map(pairs));
                }
                _ => {
                    let found = self.scanner.peek()?.start;
                    return Err(refuse("did not find expected key", found, Some(start)));
                }
            };
            let value = match self.peek()? {
                Token::Value => {
                    let end = self.scanner.take()?.end;
                    self.block_part(end)?
                }
                _ => self.empty_here()?,
            };
            pairs.push((key, value));
        }
    }

    fn block_part(&mut self, end: Mark) -> Result<usize> {
        match self.peek()? {
            Token::Key | Token::Value | Token::BlockEnd => Ok(self.empty(end)),
            _ => self.node(true, true),
        }
    }

    fn flow_list(&mut self) -> Result<Content> {
        let start = self.scanner.take()?.start;
        let mut items = Vec::new();
        loop {
            if *self.peek()? != Token::FlowListEnd && !items.is_empty() {
                self.expect_entry("did not find expected ',' or ']'", start)?;
            }
            match self.peek()? {
                Token::FlowListEnd => break,
                Token::Key => items.push(self.single_pair()?),
                _ => items.push(self.node(false, false)?),
            }
        }
        self.scanner.take()?;
        Ok(Content::List(items))
    }

    fn expect_entry(&mut self, problem: &'static str, start: Mark) -> Result<()> {
        match self.scanner.take()? {
            Placed {
                token: Token::FlowEntry,
                ..
            } => Ok(()),
            placed => Err(refuse(problem, placed.start, Some(start))),
        }
    }

    /// A map of one member among the items of a list: `[a: b]`.
    fn single_pair(&mut self) -> Result<usize> {
        let start = self.scanner.take()?.start;
        let index = self.add(start, None, Content::Map(Vec::new()));
        let pair = self.nested(|composer| {
            let key = match composer.peek()? {
                Token::Value | Token::FlowEntry | Token::FlowListEnd => {
                    // Kubernetes: what follows instead of a key is passed over (parserc.go).
                    let end = composer.scanner.take()?.end;
                    composer.empty(end)
                }
                _ => composer.node(false, false)?,
            };
            Ok((key, composer.flow_value(Token::FlowListEnd)?))
        })?;
        self.nodes[index].content = Content::Map(vec![pair]);
        Ok(index)
    }

    fn flow_value(&mut self, end: Token) -> Result<usize> {
        if *self.peek()? == Token::Value {
            self.scanner.take()?;
            let next = self.peek()?;
            if *next != Token::FlowEntry && *next != end {
                return self.node(false, false);
            }
        }
        self.empty_here()
    }

    fn flow_map(&mut self) -> Result<Content> {
        let start = self.scanner.take()?.start;
        let mut pairs = Vec::new();
        loop {
            if *self.peek()? != Token::FlowMapEnd && !pairs.is_empty() {
                self.expect_entry("did not find expected ',' or '}'", start)?;
            }
            match self.peek()? {
                Token::FlowMapEnd => break,
                Token::Key => pairs.push(self.flow_pair()?),
                _ => {
                    let key = self.node(false, false)?;
                    pairs.push((key, self.empty_here()?));
                }
            }
        }
        self.scanner.take()?;
        Ok(Content::Map(pairs))
    }

    fn flow_pair(&mut self) -> Result<(usize, usize)> {
        self.scanner.take()?;
        let key = match self.peek()? {
            Token::Value | Token::FlowEntry | Token::FlowMapEnd => self.empty_here()?,
            _ => self.node(false, false)?,
        };
        Ok((key, self.flow_value(Token::FlowMapEnd)?))
    }

    fn peek(&mut self) -> Result<&Token> {
        self.scanner.peek().map(|placed| &placed.token)
    }
}

/// Kubernetes: the line that go-yaml names is one too low, and it names none on the first (decode.go,
/// parser.fail).
fn refuse(problem: &'static str, found: Mark, context: Option<Mark>) -> Box<YamlError> {
    let line = match found.line {
        0 => context.unwrap_or_default().line,
        line => line,
    };
    Box::new(YamlError::Syntax { line, problem })
}
