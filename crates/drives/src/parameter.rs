//! Errors about parameters that were parsed but are impossible.

/// A parameter that no drive can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{parameter}` is {value}: {right}")]
pub struct ParameterError {
    /// The parameter, as a path below `[parameters]`: `iops.peak`.
    pub parameter: String,
    /// The value given.
    pub value: String,
    /// The values that are allowed.
    pub right: String,
}

impl ParameterError {
    /// Refuses `value` of `parameter`; `right` describes the allowed values.
    pub fn new(parameter: &str, value: impl ToString, right: impl ToString) -> ParameterError {
        let (value, right) = (value.to_string(), right.to_string());
        ParameterError { parameter: parameter.to_owned(), value, right }
    }
}

/// Returns an error for `parameter` unless `holds`.
pub(crate) fn require(
    holds: bool,
    parameter: &str,
    value: impl ToString,
    right: impl ToString,
) -> Result<(), ParameterError> {
    if holds { Ok(()) } else { Err(ParameterError::new(parameter, value, right)) }
}
