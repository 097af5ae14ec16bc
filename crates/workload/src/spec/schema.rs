//! `docs/workload.schema.json` is what the types accept: the same keys, required or not, and the
//! same names of values. `scripts/workloads.py` makes the page of it.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::WorkloadSpec;
use crate::access::AccessSpec;
use crate::access::addresses::{AddressesSpec, ZoneSpec};
use crate::access::mix::MixSpec;
use crate::access::sizes::{RangeSpec, SizesSpec, WeightedSize};
use crate::access::span::SpanSpec;
use crate::bursts::BurstsSpec;
use crate::closed::{ClosedSpec, ThinkTime};
use crate::combine::CombineSpec;
use crate::open::OpenSpec;
use crate::phases::PhaseSpec;
use crate::replay::ReplaySpec;

const SCHEMA: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/workload.schema.json"));

/// Definitions that are no type of a spec.
const QUANTITIES: [&str; 2] = ["size", "time"];

fn definitions() -> Map<String, Value> {
    let schema: Value = serde_json::from_str(SCHEMA).expect("the schema is JSON");
    schema["$defs"].as_object().expect("it has definitions").clone()
}

fn parsed<T: DeserializeOwned>(value: &Value) -> Result<(), String> {
    serde_json::from_value::<T>(value.clone()).map(drop).map_err(|error| error.to_string())
}

/// Parses a value as the type that a definition describes.
fn parse(definition: &str, value: &Value) -> Result<(), String> {
    match definition {
        "workload" => parsed::<WorkloadSpec>(value),
        "closed" => parsed::<ClosedSpec>(value),
        "think_time" => parsed::<ThinkTime>(value),
        "open" => parsed::<OpenSpec>(value),
        "bursts" => parsed::<BurstsSpec>(value),
        "replay" => parsed::<ReplaySpec>(value),
        "combine" => parsed::<CombineSpec>(value),
        "phase" => parsed::<PhaseSpec>(value),
        "access" => parsed::<AccessSpec>(value),
        "addresses" => parsed::<AddressesSpec>(value),
        // The types of these two are private to the ones that have them.
        "zipf" => parsed::<AddressesSpec>(&json!({ "zipf": value })),
        "part" => parsed::<SpanSpec>(value),
        "zone" => parsed::<ZoneSpec>(value),
        "span" => parsed::<SpanSpec>(value),
        "sizes" => parsed::<SizesSpec>(value),
        "range" => parsed::<RangeSpec>(value),
        "weighted_size" => parsed::<WeightedSize>(value),
        "mix" => parsed::<MixSpec>(value),
        other => panic!("{other}: name its type here"),
    }
}

/// Returns the names in backquotes that a message says are expected.
fn expected(message: &str) -> Vec<String> {
    let listed = message.split_once("expected").map_or("", |(_, listed)| listed);
    let mut names: Vec<String> =
        listed.split('`').skip(1).step_by(2).map(ToOwned::to_owned).collect();
    names.sort();
    names
}

fn sorted<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut names: Vec<String> = names.map(ToOwned::to_owned).collect();
    names.sort();
    names
}

/// A definition of a structure.
struct Structure {
    name: String,
    properties: Map<String, Value>,
    required: Vec<String>,
    /// An example that has every key.
    example: Map<String, Value>,
}

fn structures() -> Vec<Structure> {
    let mut found = Vec::new();
    for (name, definition) in definitions() {
        let Some(properties) = definition["properties"].as_object() else {
            continue;
        };
        if definition["maxProperties"] == 1 {
            continue;
        }
        let required = definition["required"].as_array().cloned().unwrap_or_default();
        let required = required.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect();
        let example = definition["examples"][0].as_object().expect("an object").clone();
        assert_eq!(
            sorted(properties.keys().map(String::as_str)),
            sorted(example.keys().map(String::as_str)),
            "{name}: its example has every key"
        );
        found.push(Structure { name, properties: properties.clone(), required, example });
    }
    assert!(found.len() > 10, "structures are found");
    found
}

#[test]
fn every_example_is_accepted() {
    for (name, definition) in definitions() {
        let examples = definition["examples"].as_array().expect("every definition has examples");
        for example in examples.iter().filter(|_| !QUANTITIES.contains(&name.as_str())) {
            assert_eq!(parse(&name, example), Ok(()), "{name}: {example}");
        }
    }
}

#[test]
fn the_keys_are_those_of_the_types() {
    for Structure { name, properties, example, .. } in structures() {
        let mut wrong = example.clone();
        wrong.insert("no-such-key".to_owned(), json!(1));
        let message = parse(&name, &Value::Object(wrong)).expect_err(&name);
        let keys = sorted(properties.keys().map(String::as_str));
        assert_eq!(expected(&message), keys, "{name}: {message}");
    }
}

#[test]
fn keys_are_required_where_the_schema_says_so() {
    for Structure { name, properties, required, example } in structures() {
        for key in properties.keys() {
            let mut without = example.clone();
            without.remove(key);
            let outcome = parse(&name, &Value::Object(without));
            assert_eq!(outcome.is_err(), required.contains(key), "{name}.{key}: {outcome:?}");
        }
    }
}

#[test]
fn kinds_are_those_of_the_types() {
    let definitions = definitions();
    let kinds =
        |value: &Value| sorted(value.as_object().expect("an object").keys().map(String::as_str));
    for name in ["workload", "think_time"] {
        let message = parse(name, &json!({ "no_such_kind": 1 })).expect_err(name);
        let expected = expected(&message);
        assert_eq!(expected, kinds(&definitions[name]["properties"]), "{name}: {message}");
    }
}

#[test]
fn names_of_values_are_those_of_the_types() {
    let mut count = 0;
    for Structure { name, properties, example, .. } in structures() {
        for (key, property) in properties {
            let Some(values) = property["enum"].as_array() else {
                continue;
            };
            count += 1;
            let with = |value: Value| {
                let mut changed = example.clone();
                changed.insert(key.clone(), value);
                parse(&name, &Value::Object(changed))
            };
            for value in values {
                assert_eq!(with(value.clone()), Ok(()), "{name}.{key} = {value}");
            }
            let message = with(json!("no_such_value")).expect_err(&key);
            let values = sorted(values.iter().filter_map(Value::as_str));
            assert_eq!(expected(&message), values, "{name}.{key}: {message}");
        }
    }
    assert!(count >= 6, "enumerations are found");
}
