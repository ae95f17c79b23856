//! The Helm chart: the objects of the operator as templates, with values.
//!
//! A template is the YAML of an object in which placeholders stand for actions. They are replaced
//! line by line, because an action may add lines.

use std::collections::BTreeMap;

use mizzen_value::{Value, value, yaml};

use super::Manifests;
use super::files::MARK;
use super::kustomize::generated;
use super::objects::{Installation, LEADER_ELECTION, ManifestFile, resources};

/// How a placeholder begins; it ends at the end of its word.
const PLACEHOLDER: &str = "HELM-";

/// What a placeholder stands for.
enum TemplateAction {
    /// An action within a line.
    Inline(String),
    /// The value of a key: a value of the chart, left out with its key if it is empty.
    With(&'static str),
    /// The value of a key: a named template.
    Include(String),
    /// An item of a list, if a value of the chart is set.
    ItemIf(&'static str, String),
    /// Further items of a list, from a value of the chart.
    Items(&'static str),
}

/// The placeholders of a template.
#[derive(Default)]
struct Placeholders(Vec<TemplateAction>);

impl Placeholders {
    fn add(&mut self, action: TemplateAction) -> String {
        self.0.push(action);
        format!("{PLACEHOLDER}{}-", self.0.len() - 1)
    }

    /// The text with actions instead of placeholders.
    fn replace(&self, text: &str) -> String {
        // Braces in descriptions are no actions.
        let text = text.replace("{{", "{{ \"{{\" }}");
        let lines = text.lines().flat_map(|line| self.replace_line(line));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The lines that a line becomes.
    fn replace_line(&self, line: &str) -> Vec<String> {
        let Some((before, idx, after)) = self.find(line) else {
            return vec![line.to_owned()];
        };
        let n_spaces = line.len() - line.trim_start().len();
        let (indent, deeper) = (&line[..n_spaces], n_spaces + 2);
        match &self.0[idx] {
            // A line may have several.
            TemplateAction::Inline(action) => {
                let rest = self.replace_line(after).concat();
                vec![format!("{before}{{{{ {action} }}}}{rest}")]
            }
            TemplateAction::With(path) => vec![
                format!("{indent}{{{{- with {path} }}}}"),
                before.trim_end().to_owned(),
                format!("{indent}  {{{{- toYaml . | nindent {deeper} }}}}"),
                format!("{indent}{{{{- end }}}}"),
            ],
            TemplateAction::Include(name) => vec![
                before.trim_end().to_owned(),
                format!("{indent}  {{{{- include \"{name}\" . | nindent {deeper} }}}}"),
            ],
            TemplateAction::ItemIf(path, item) => vec![
                format!("{indent}{{{{- if {path} }}}}"),
                format!("{before}{item}"),
                format!("{indent}{{{{- end }}}}"),
            ],
            TemplateAction::Items(path) => vec![
                format!("{indent}{{{{- with {path} }}}}"),
                format!("{indent}{{{{- toYaml . | nindent {n_spaces} }}}}"),
                format!("{indent}{{{{- end }}}}"),
            ],
        }
    }

    /// The first placeholder of a line: the text before it, its index and the text after it.
    fn find<'a>(&self, line: &'a str) -> Option<(&'a str, usize, &'a str)> {
        let (before, rest) = line.split_once(PLACEHOLDER)?;
        let (number, after) = rest.split_once('-')?;
        let idx = number.parse().ok().filter(|idx| *idx < self.0.len())?;
        Some((before, idx, after))
    }
}

impl Manifests {
    /// The files of the chart, by their paths.
    pub(super) fn chart_files(&self) -> BTreeMap<String, String> {
        let name = &self.name;
        let mut placeholders = Placeholders::default();
        let at = Installation {
            namespace: placeholders.add(TemplateAction::Inline(".Release.Namespace".into())),
            service_account: placeholders.add(TemplateAction::Inline(format!(
                "include \"{name}.serviceAccountName\" ."
            ))),
        };
        let mut files = BTreeMap::from([
            ("Chart.yaml".to_owned(), self.chart_yaml()),
            ("values.yaml".to_owned(), self.values_yaml()),
            ("templates/_helpers.tpl".to_owned(), self.helpers()),
            ("templates/NOTES.txt".to_owned(), self.notes()),
        ]);
        for ManifestFile {
            base,
            name: file,
            objects,
        } in self.manifest_files(&at)
        {
            // Helm does not render the files of `crds`; a conversion webhook is in the namespace of the release.
            let has_conversion =
                |object: &Value| object.at("spec.conversion.webhook") != &Value::Null;
            if base == "crd" && !objects.iter().any(has_conversion) {
                files.insert(format!("crds/{file}"), generated(&objects));
                continue;
            }
            let objects = objects
                .into_iter()
                .map(|object| self.template(object, base, &mut placeholders));
            let text = generated(&objects.collect::<Vec<_>>());
            let (mark, body) = text.split_once('\n').expect("the mark is a line");
            let condition = match (base, file.as_str()) {
                ("webhook", _) => Some(".Values.webhook.enabled"),
                (_, "service_account.yaml") => Some(".Values.serviceAccount.create"),
                (_, file) if file.starts_with(LEADER_ELECTION) => {
                    Some(".Values.leaderElection.enabled")
                }
                _ => None,
            };
            let body = placeholders.replace(body);
            let text = match condition {
                Some(condition) => {
                    format!("{mark}\n{{{{- if {condition} }}}}\n{body}\n{{{{- end }}}}\n")
                }
                None => format!("{mark}\n{body}\n"),
            };
            let prefix = if base == "webhook" { "webhook_" } else { "" };
            files.insert(format!("templates/{prefix}{file}"), text);
        }
        let files = files.into_iter();
        files
            .map(|(path, text)| (format!("charts/{name}/{path}"), text))
            .collect()
    }

    /// An object with placeholders for the values of the chart.
    fn template(&self, mut object: Value, base: &str, placeholders: &mut Placeholders) -> Value {
        let labels = placeholders.add(TemplateAction::Include(format!("{}.labels", self.name)));
        object.entry("metadata").set("labels", labels);
        match object["kind"].str() {
            "ServiceAccount" => {
                let annotations =
                    placeholders.add(TemplateAction::With(".Values.serviceAccount.annotations"));
                object.entry("metadata").set("annotations", annotations);
            }
            "Service" => {
                let selector = self.selector(placeholders);
                object.entry("spec").set("selector", selector);
            }
            "Deployment" => self.deployment_template(&mut object, placeholders),
            // Objects of the user are not deleted with the release.
            _ if base == "crd" => {
                let keep = value!({"helm.sh/resource-policy": "keep"});
                object.entry("metadata").set("annotations", keep);
            }
            _ => {}
        }
        object
    }

    fn selector(&self, placeholders: &mut Placeholders) -> Value {
        placeholders
            .add(TemplateAction::Include(format!(
                "{}.selectorLabels",
                self.name
            )))
            .into()
    }

    fn deployment_template(&self, deployment: &mut Value, placeholders: &mut Placeholders) {
        let replicas = placeholders.add(TemplateAction::Inline(".Values.replicas".into()));
        let spec = deployment.entry("spec");
        spec.set("replicas", replicas);
        spec.entry("selector")
            .set("matchLabels", self.selector(placeholders));
        let template = spec.entry("template");
        let metadata = template.entry("metadata");
        metadata.set("labels", self.selector(placeholders));
        let annotations = placeholders.add(TemplateAction::With(".Values.podAnnotations"));
        metadata.set("annotations", annotations);
        let pod = template.entry("spec");
        for (field, path) in [
            ("affinity", ".Values.affinity"),
            ("imagePullSecrets", ".Values.imagePullSecrets"),
            ("nodeSelector", ".Values.nodeSelector"),
            ("tolerations", ".Values.tolerations"),
        ] {
            pod.set(field, placeholders.add(TemplateAction::With(path)));
        }
        for container in pod.entry("containers").list_mut() {
            let image = format!("include \"{}.image\" .", self.name);
            container.set("image", placeholders.add(TemplateAction::Inline(image)));
            let policy =
                placeholders.add(TemplateAction::Inline(".Values.image.pullPolicy".into()));
            container.set("imagePullPolicy", policy);
            container.set(
                "resources",
                placeholders.add(TemplateAction::With(".Values.resources")),
            );
            let args = container.entry("args").make_list();
            if self.lease.is_some() {
                args.pop();
                let action = TemplateAction::ItemIf(
                    ".Values.leaderElection.enabled",
                    "--leader-elect".into(),
                );
                args.push(placeholders.add(action).into());
            }
            args.push(
                placeholders
                    .add(TemplateAction::Items(".Values.extraArgs"))
                    .into(),
            );
        }
    }

    fn chart_yaml(&self) -> String {
        generated(&[value!({
            "apiVersion": "v2",
            "name": (&self.name),
            "description": (format!("The operator {}", self.name)),
            "type": "application",
            "version": (&self.version),
            "appVersion": (&self.version),
        })])
    }

    fn values_yaml(&self) -> String {
        let (repository, tag) = match self.image.split_once('@') {
            Some((repository, _)) => (repository, ""),
            None => {
                let (repository, tag) = self.image_parts();
                (repository, tag.unwrap_or_default())
            }
        };
        let digest = self.image.split_once('@').map_or("", |(_, digest)| digest);
        let resources = yaml::write(&value!({"resources": (resources())}));
        let mut text = format!(
            "# {MARK}\n\
             # Set values with `helm install --set replicas=2` or in a file of your own with `--values`.\n\
             \n# The number of pods; one of them leads.\n\
             replicas: 1\n\
             \nimage:\n  repository: {repository}\n  \
             # The default is the appVersion of the chart.\n  tag: {tag:?}\n  \
             # With a digest the tag is ignored.\n  digest: {digest:?}\n  pullPolicy: IfNotPresent\n\
             imagePullSecrets: []\n\
             \nserviceAccount:\n  # Without it, a ServiceAccount of the given name must exist.\n  create: true\n  \
             # The default is the name of the chart.\n  name: \"\"\n  annotations: {{}}\n"
        );
        if self.lease.is_some() {
            text += "\n# Pods elect a leader with a Lease in their namespace.\nleaderElection:\n  enabled: true\n";
        }
        #[cfg(feature = "webhook")]
        if self.webhooks.is_some() {
            text += "\n# The Service of the webhooks and their configurations.\nwebhook:\n  enabled: true\n";
        }
        text += "\n# Further arguments of the manager.\nextraArgs: []\n\n";
        text += &resources;
        text += "\npodAnnotations:\n  kubectl.kubernetes.io/default-container: manager\n\
                 nodeSelector: {}\ntolerations: []\naffinity: {}\n";
        text
    }

    fn helpers(&self) -> String {
        HELPERS.replace("MARK", MARK).replace("NAME", &self.name)
    }

    fn notes(&self) -> String {
        NOTES.replace("MARK", MARK).replace("NAME", &self.name)
    }
}

/// Names are those of the operator and not of the release: CustomResourceDefinitions exist once in a
/// cluster, and so does their operator.
const HELPERS: &str = r#"{{- /* MARK */ -}}
{{- define "NAME.selectorLabels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/name: NAME
{{- end }}

{{- define "NAME.labels" -}}
{{ include "NAME.selectorLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "NAME.serviceAccountName" -}}
{{ .Values.serviceAccount.name | default "NAME" }}
{{- end }}

{{- define "NAME.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}
"#;

const NOTES: &str = r#"{{- /* MARK */ -}}
NAME runs in the namespace {{ .Release.Namespace }} as the ServiceAccount {{ include "NAME.serviceAccountName" . }}.

    kubectl --namespace {{ .Release.Namespace }} rollout status deployment/NAME
    kubectl --namespace {{ .Release.Namespace }} logs deployment/NAME
"#;
