//! Single changes to a descriptor: each number, name, type, label, mark and flag in turn, and each thing left out.

use crate::descriptor::{Enum, Field, File, Method, Msg, Service};

/// A file with one thing changed. `subject` is the name under which `facts` lists that thing.
pub(crate) struct Change {
    pub(crate) subject: String,
    pub(crate) what: &'static str,
    pub(crate) file: File,
}

/// The file changed in its first place, its second, and so on; none when there is no such place.
pub(crate) fn nth(file: &File, place: usize) -> Option<Change> {
    let mut changed = file.clone();
    let mut walk = Walk { ahead: place, made: None };
    walk.file(&mut changed);
    let (subject, what) = walk.made?;
    assert!(changed != *file, "changing the {what} of {subject} changed nothing");
    Some(Change { subject, what, file: changed })
}

/// Goes over all places in a fixed order, lets `ahead` of them pass and changes the next.
struct Walk {
    ahead: usize,
    made: Option<(String, &'static str)>,
}

impl Walk {
    fn place(&mut self, subject: &str, what: &'static str, change: impl FnOnce()) {
        if self.made.is_some() {
            return;
        }
        if let Some(fewer) = self.ahead.checked_sub(1) {
            self.ahead = fewer;
        } else {
            change();
            self.made = Some((subject.to_owned(), what));
        }
    }

    /// Each of the list left out, and each changed in itself.
    fn each<T: Named>(&mut self, scope: &str, list: &mut Vec<T>, inside: fn(&mut Self, &str, &mut T)) {
        for index in 0..list.len() {
            let subject = list[index].full_name(scope);
            self.place(&subject, "presence", || drop(list.remove(index)));
            if self.made.is_some() {
                return;
            }
            self.place(&subject, "name", || rename(list[index].name()));
            inside(self, &subject, &mut list[index]);
        }
    }

    fn file(&mut self, file: &mut File) {
        let package = file.package.clone().unwrap_or_default();
        self.place(&format!("{package} syntax"), "syntax", || rename(&mut file.syntax));
        self.each(&package, &mut file.messages, Self::message);
        self.each(&package, &mut file.enums, Self::list);
        self.each(&package, &mut file.services, Self::service);
        self.each(&package, &mut file.extensions, Self::field);
    }

    fn message(&mut self, subject: &str, message: &mut Msg) {
        let options = message.options.get_or_insert_default();
        self.place(subject, "alpha mark", || flip(&mut options.alpha));
        self.place(subject, "map mark", || flip(&mut options.map_entry));
        self.each(subject, &mut message.fields, Self::field);
        self.each(subject, &mut message.messages, Self::message);
        self.each(subject, &mut message.enums, Self::list);
    }

    fn field(&mut self, subject: &str, field: &mut Field) {
        let options = field.options.get_or_insert_default();
        self.place(subject, "secret mark", || flip(&mut options.secret));
        self.place(subject, "alpha mark", || flip(&mut options.alpha));
        self.place(subject, "number", || bump(&mut field.number));
        self.place(subject, "label", || field.label = if field.label == Some(3) { Some(1) } else { Some(3) });
        self.place(subject, "type", || field.r#type = field.r#type.map(|number| number % 18 + 1));
        self.place(subject, "type name", || rename(&mut field.type_name));
        self.place(subject, "JSON name", || rename(&mut field.json_name));
        self.place(subject, "presence mark", || flip(&mut field.proto3_optional));
        if field.extendee.is_some() {
            self.place(subject, "extended message", || rename(&mut field.extendee));
        }
        self.place(subject, "oneof", || {
            field.oneof_index = if field.oneof_index.is_some() { None } else { Some(0) };
        });
    }

    fn list(&mut self, subject: &str, list: &mut Enum) {
        let options = list.options.get_or_insert_default();
        self.place(subject, "alpha mark", || flip(&mut options.alpha));
        self.each(subject, &mut list.values, |walk, subject, value| {
            let options = value.options.get_or_insert_default();
            walk.place(subject, "alpha mark", || flip(&mut options.alpha));
            walk.place(subject, "number", || bump(&mut value.number));
        });
    }

    fn service(&mut self, subject: &str, service: &mut Service) {
        let options = service.options.get_or_insert_default();
        self.place(subject, "alpha mark", || flip(&mut options.alpha));
        self.each(subject, &mut service.methods, Self::method);
    }

    fn method(&mut self, subject: &str, method: &mut Method) {
        let options = method.options.get_or_insert_default();
        self.place(subject, "alpha mark", || flip(&mut options.alpha));
        self.place(subject, "request", || rename(&mut method.input));
        self.place(subject, "response", || rename(&mut method.output));
        self.place(subject, "request stream", || flip(&mut method.client_streaming));
        self.place(subject, "response stream", || flip(&mut method.server_streaming));
    }
}

trait Named {
    const SEPARATOR: char = '.';

    fn name(&mut self) -> &mut Option<String>;

    fn full_name(&mut self, scope: &str) -> String {
        format!("{scope}{}{}", Self::SEPARATOR, self.name().as_deref().unwrap_or_default())
    }
}

macro_rules! named {
    ($($kind:ty),*) => {
        $(impl Named for $kind {
            fn name(&mut self) -> &mut Option<String> {
                &mut self.name
            }
        })*
    };
}

named!(Msg, Field, Enum, crate::descriptor::EnumValue, Service);

impl Named for Method {
    const SEPARATOR: char = '/';

    fn name(&mut self) -> &mut Option<String> {
        &mut self.name
    }
}

fn bump(number: &mut Option<i32>) {
    *number = Some(number.unwrap_or_default() + 1);
}

fn flip(mark: &mut Option<bool>) {
    *mark = Some(!mark.unwrap_or_default());
}

fn rename(name: &mut Option<String>) {
    name.get_or_insert_default().push_str("Other");
}
