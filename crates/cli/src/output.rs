//! In which format a command prints: one type for all commands, of which each takes some.

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use serde::Serialize;
use volmedic_view::render::{JsonPath, json, yaml};
use volmedic_view::text::plain;

const JSONPATH: &str = "jsonpath=";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Output {
    /// For people; a table or a text.
    Plain,
    /// The table with more columns.
    Wide,
    Json,
    Yaml,
    Name,
    Markdown,
    JsonPath(JsonPath),
}

impl Output {
    /// The document in a format for machines; nothing where the format is another one.
    pub(crate) fn document(&self, document: &impl Serialize) -> anyhow::Result<Option<String>> {
        Ok(match self {
            Self::Json => Some(json(document)?),
            Self::Yaml => Some(yaml(document)?),
            Self::JsonPath(template) => Some(template.print(&serde_json::to_value(document)?)?),
            Self::Plain | Self::Wide | Self::Name | Self::Markdown => None,
        })
    }
}

/// A claim, as kubectl prints it with `-o name`, and reads it.
pub(crate) fn name(claim: &str) -> String {
    format!("persistentvolumeclaim/{}\n", plain(claim))
}

/// The formats of one command, each with what it means. Every command also takes a template.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Formats(pub(crate) &'static [(&'static str, Format)]);

#[derive(Debug, Clone, Copy)]
pub(crate) enum Format {
    Plain,
    Wide,
    Json,
    Yaml,
    Name,
    Markdown,
}

impl Format {
    fn help(self) -> Option<&'static str> {
        match self {
            Self::Wide => Some("The table, with the messages in full"),
            Self::Name => Some("The names of the claims, as kubectl prints and reads them"),
            Self::Markdown => Some("For a document or an issue"),
            Self::Plain | Self::Json | Self::Yaml => None,
        }
    }

    fn output(self) -> Output {
        match self {
            Self::Plain => Output::Plain,
            Self::Wide => Output::Wide,
            Self::Json => Output::Json,
            Self::Yaml => Output::Yaml,
            Self::Name => Output::Name,
            Self::Markdown => Output::Markdown,
        }
    }
}

impl TypedValueParser for Formats {
    type Value = Output;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<Output, clap::Error> {
        let text = StringValueParser::new().parse_ref(command, argument, value)?;
        if let Some((_, format)) = self.0.iter().find(|(name, _)| *name == text) {
            return Ok(format.output());
        }
        let mut error = clap::Error::new(ErrorKind::InvalidValue).with_cmd(command);
        if let Some(argument) = argument {
            error.insert(ContextKind::InvalidArg, ContextValue::String(argument.to_string()));
        }
        if let Some(template) = text.strip_prefix(JSONPATH) {
            match JsonPath::parse(template) {
                Ok(template) => return Ok(Output::JsonPath(template)),
                Err(why) => {
                    error = clap::Error::raw(
                        ErrorKind::ValueValidation,
                        format!("the template of -o jsonpath cannot be used: {why}\n"),
                    );
                    return Err(error.with_cmd(command));
                }
            }
        }
        let known = self.0.iter().map(|(name, _)| (*name).to_owned());
        let known = known.chain([format!("{JSONPATH}TEMPLATE")]).collect();
        error.insert(ContextKind::InvalidValue, ContextValue::String(text));
        error.insert(ContextKind::ValidValue, ContextValue::Strings(known));
        Err(error)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let values = self.0.iter().map(|(name, format)| {
            let value = PossibleValue::new(*name);
            format.help().map_or_else(|| value.clone(), |help| value.clone().help(help))
        });
        let template = PossibleValue::new(JSONPATH)
            .help("What a template of kubectl selects from the JSON, as in jsonpath='{.volumes[*].claim}'");
        Some(Box::new(values.chain([template])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMATS: Formats = Formats(&[("table", Format::Plain), ("json", Format::Json)]);

    fn parse(text: &str) -> Result<Output, String> {
        let argument = clap::Arg::new("output").short('o').long("output").value_parser(FORMATS);
        let command = clap::Command::new("x").arg(argument);
        let matches = command.try_get_matches_from(["x", "-o", text]).map_err(|error| error.to_string())?;
        Ok(matches.get_one::<Output>("output").unwrap().clone())
    }

    #[test]
    fn only_the_formats_of_a_command_and_templates() {
        assert_eq!(parse("table"), Ok(Output::Plain));
        assert!(matches!(parse("jsonpath={.a}"), Ok(Output::JsonPath(_))));
        let error = parse("xml").unwrap_err();
        assert!(
            error.contains("invalid value 'xml' for '--output <output>'")
                && error.contains("jsonpath=TEMPLATE"),
            "{error}"
        );
        let error = parse("jsonpath={..a}").unwrap_err();
        assert!(error.contains("character 3 of the template: `..` is not supported"), "{error}");
    }

    #[test]
    fn a_template_prints_from_the_json_and_nothing_else() {
        let document = serde_json::json!({"a": [{"b": 1}, {"b": "x"}]});
        let print = |text: &str| parse(text).unwrap().document(&document).unwrap();
        assert_eq!(print("jsonpath={.a[*].b}").as_deref(), Some("1 x"));
        assert_eq!(print("table"), None);
        assert!(print("json").unwrap().ends_with("}\n"));
    }
}
