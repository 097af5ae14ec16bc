//! What is wrong with a parameter that was understood but cannot be.

/// A parameter that no drive can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{parameter}` is {value}: {right}")]
pub struct ParameterError {
    /// Which, as a path below `[parameters]`: `iops.peak`.
    pub parameter: String,
    /// What it is.
    pub value: String,
    /// What would be right.
    pub right: String,
}

impl ParameterError {
    /// Refuses `value` of `parameter`; `right` says what would be taken.
    pub fn new(parameter: &str, value: impl ToString, right: impl ToString) -> ParameterError {
        let (value, right) = (value.to_string(), right.to_string());
        ParameterError { parameter: parameter.to_owned(), value, right }
    }
}

/// Refuses `value` unless `holds`.
pub(crate) fn require(
    holds: bool,
    parameter: &str,
    value: impl ToString,
    right: impl ToString,
) -> Result<(), ParameterError> {
    if holds { Ok(()) } else { Err(ParameterError::new(parameter, value, right)) }
}
